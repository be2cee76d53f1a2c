"""A diagnosis as text: findings first, then what they rest on. Fits 80 columns."""

from __future__ import annotations

from collections import Counter
from typing import Iterable, Iterator, List, Optional, Sequence

from rich.cells import cell_len
from rich.text import Text

from udsprobe.doctor.examine import Diagnosis
from udsprobe.doctor.facts import NetworkLimits, ProcessFacts
from udsprobe.doctor.finding import Finding
from udsprobe.host_facts import KernelFacts
from udsprobe.rules.suspects.suspect import SEVERITIES
from udsprobe.views.fields.escape import column, fit, visible
from udsprobe.views.text.lines_of_text import printed

MIN_WIDTH, MAX_WIDTH = 80, 120
_STYLES = {"critical": "bold red", "warning": "yellow", "info": ""}
_DIM = "dim"
_PROCESSES_SHOWN = 12
_LABEL_CELLS, _NAME_CELLS = 9, 24
_NOT_BUILT = "not measured in this version"


def render(
    found: Diagnosis, width: int = MIN_WIDTH, *, colour: bool = False, verbose: bool = False
) -> str:
    """The whole diagnosis, ending in a newline.

    Args:
        verbose: with what each measurement rests on.
        width: terminal columns; at least 80 and at most 120 are used.
        colour: ANSI styles; without them nothing is lost.
    """
    width = max(MIN_WIDTH, min(width, MAX_WIDTH))
    lines = [
        Text(fit(f"udsprobe {found.version} doctor · {found.host.hostname}", width), style="bold"),
        *_findings(found.findings, width),
        *_kernel(found, width, verbose),
        *_limits(found, width),
        *_processes(found.processes, width),
        *_servers(found, width),
        *_not_checked(found, width),
    ]
    return printed(lines, width, colour=colour)


def _findings(findings: Sequence[Finding], width: int) -> Iterator[Text]:
    counts = Counter(one.severity for one in findings)
    counted = [f"{counts[name]} {name}" for name in reversed(SEVERITIES) if counts[name]]
    yield _heading("findings: " + (", ".join(counted) or "none"), width)
    for one in findings:
        title = f"{one.severity.upper()} {one.id}"
        yield Text(fit(title, width), style=_STYLES[one.severity])
        yield from _wrapped("", one.summary, width)
        if one.places:
            more = one.places_total - len(one.places)
            shown = ", ".join(one.places) + (f" and {more} more" if more else "")
            yield from _wrapped("at", shown, width)
        for action in one.actions:
            yield from _wrapped("do", action.say, width)
            if action.run is not None:
                yield from _wrapped("$", action.run, width)
            yield from _wrapped("", action.why, width, style=_DIM)
        yield from _wrapped("see", one.docs, width, style=_DIM)


def _kernel(found: Diagnosis, width: int, verbose: bool) -> Iterator[Text]:
    kernel = found.kernel
    yield _heading(f"kernel {visible(found.host.kernel)} {visible(found.host.arch)}", width)
    for way in kernel.strategies:
        reason = f": {way.reason}" if way.reason else ""
        yield from _wrapped("strategy", f"{way.name} {way.state}{reason}", width)
    yield from _wrapped("offers", "; ".join(_offers(kernel)), width)
    on = [one for one in kernel.measurements if one.state == "on"]
    if on and verbose:
        rests = (f"{one.name.replace('_', ' ')} ({one.rests_on})" for one in on)
        yield from _wrapped("measures", ", ".join(rests), width)
    elif on:
        built = sum(one.reason != _NOT_BUILT for one in kernel.measurements)
        said = f"{len(on)} of {built} measurements in full (--verbose lists what each rests on)"
        yield from _wrapped("measures", said, width)
    for one in kernel.measurements:
        if one.state != "on" and one.reason != _NOT_BUILT:
            yield from _wrapped(one.state, f"{one.name.replace('_', ' ')}: {one.reason}", width)


def _offers(kernel: KernelFacts) -> Iterator[str]:
    missing = kernel.missing_capabilities
    yield f"lacking {' and '.join(missing)}" if missing else "capabilities to trace"
    yield _known("type information", kernel.btf_bytes, "bytes", absent="no type information (BTF)")
    yield _known("libbpf", kernel.libbpf, absent="no usable libbpf")
    yield _known("lockdown", kernel.lockdown, absent="lockdown not known")
    yield _known("io_uring", kernel.io_uring, absent="io_uring without a switch")
    if kernel.call_functions is not None:
        yield f"{kernel.call_functions or 'no'} functions of system calls"
    if kernel.preempts is not None:
        yield (
            "preempted inside the kernel" if kernel.preempts else "not preempted inside the kernel"
        )
    if kernel.jit is not None:
        yield "BPF compiled" if kernel.jit else "BPF interpreted"


def _limits(found: Diagnosis, width: int) -> Iterator[Text]:
    yield _heading("limits", width)
    host = found.limits
    used = (
        ("open files", host.files_open, host.file_max),
        ("threads", host.threads, host.threads_max),
    )
    texts = [f"{name} {_number(now)} of {_number(most)}" for name, now, most in used]
    yield from _wrapped("host", ", ".join(texts), width)
    buffers = (
        f"receive {_number(host.rmem_default_bytes)} (at most {_number(host.rmem_max_bytes)})",
        f"send {_number(host.wmem_default_bytes)} (at most {_number(host.wmem_max_bytes)})",
    )
    yield from _wrapped("buffers", ", ".join(buffers) + " bytes", width)
    for one in found.networks:
        yield from _wrapped("network", _network(one), width)


def _network(one: NetworkLimits) -> str:
    where = "" if one.own else f" (namespace {one.netns})"
    return (
        f"somaxconn {_number(one.somaxconn)}, max_dgram_qlen {_number(one.max_dgram_qlen)}, "
        f"tcp_abort_on_overflow {_number(one.tcp_abort_on_overflow)}, "
        f"tcp_syncookies {_number(one.tcp_syncookies)}{where}"
    )


def _processes(processes: Sequence[ProcessFacts], width: int) -> Iterator[Text]:
    if not processes:
        return
    yield _heading("descriptors: open, soft and hard limit", width)
    ranked = sorted(processes, key=lambda one: (-_share(one), one.pid))
    for one in ranked[:_PROCESSES_SHOWN]:
        unit = f"  {one.unit}" if one.unit else ""
        counts = (one.fds_open, one.nofile_soft, one.nofile_hard)
        numbers = " ".join(_number(each).rjust(9) for each in counts)
        name = column(fit(f"{fit(one.comm, 16)} {one.pid}", _NAME_CELLS), _NAME_CELLS)
        line = f"  {name}{numbers}"
        yield Text(line + fit(unit, width - cell_len(line)))
    if len(ranked) > _PROCESSES_SHOWN:
        yield Text(f"  and {len(ranked) - _PROCESSES_SHOWN} more", style=_DIM)


def _share(one: ProcessFacts) -> float:
    return (one.fds_open or 0) / one.nofile_soft if one.nofile_soft else 0.0


def _servers(found: Diagnosis, width: int) -> Iterator[Text]:
    if not found.servers:
        return
    yield _heading("servers", width)
    for one in found.servers:
        where = f"{one.config}: " if one.config else ""
        yield from _wrapped(one.kind, f"{one.name}: {where}{one.says}", width)


def _not_checked(found: Diagnosis, width: int) -> Iterator[Text]:
    if not found.not_checked:
        return
    yield _heading("not checked", width)
    for one in found.not_checked:
        remedy = f"; {one.remedy}" if one.remedy else ""
        yield from _wrapped("–", f"{one.what}: {one.why}{remedy}", width)


def _heading(title: str, width: int) -> Text:
    text = Text(f"── {fit(title, width - 6)} ", style="bold")
    text.append("─" * (width - text.cell_len))
    return text


def _wrapped(label: str, text: str, width: int, *, style: str = "") -> List[Text]:
    """`text` after its label, as many lines as it takes; what is longer than a line is broken."""
    lines = _broken(visible(text).split(" "), width - _LABEL_CELLS - 2)
    heads = [label, *[""] * (len(lines) - 1)]
    return [
        Text("  " + head.ljust(_LABEL_CELLS) + line, style=style)
        for head, line in zip(heads, lines)
    ]


def _broken(words: Iterable[str], room: int) -> List[str]:
    lines: List[str] = [""]
    for word in words:
        for piece in _pieces(word, room):
            if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(piece) > room:
                lines.append(piece)
            else:
                lines[-1] = f"{lines[-1]} {piece}" if lines[-1] else piece
    return lines


def _pieces(word: str, room: int) -> Iterator[str]:
    while cell_len(word) > room:
        end = room
        while cell_len(word[:end]) > room:
            end -= 1
        yield word[:end]
        word = word[end:]
    yield word


def _known(name: str, value: object, unit: str = "", *, absent: str) -> str:
    return absent if value is None else f"{name} {visible(str(value))} {unit}".rstrip()


def _number(value: Optional[int]) -> str:
    if value is None:
        return "–"
    # A limit as high as the word's end is none.
    return "no limit" if value > 1 << 60 else f"{value}"
