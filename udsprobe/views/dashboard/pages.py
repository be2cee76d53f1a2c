"""Full-screen pages: what a row rests on, and help. Lines of text, made without a screen."""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from udsprobe.model.report import Backlog, Latency, Listener, Report, Syscall, Target
from udsprobe.views import cells, numbers, words
from udsprobe.views.columns import LISTENERS, SYSCALLS, TARGETS, Column
from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.dashboard.state import listener_key
from udsprobe.views.dashboard.table import DIM, Line, Table
from udsprobe.views.escape import visible

Fact = Tuple[str, str]

_LABEL = 24
_LISTENER_MEASUREMENTS = ("listeners", "accept_queue", "accept_wait", "refused_connects")

KEYS_HELP = (
    ("q, Ctrl+C", "quit; the report of everything seen stays in the terminal"),
    ("p", "freeze the picture; measuring goes on"),
    ("s", "sort system calls by the next of: calls, errors, p99, cpu, bytes"),
    ("/", "show only rows of this panel that contain a text; Esc shows all again"),
    ("Tab, Shift+Tab", "next panel, previous panel; a click does the same"),
    ("↑ ↓ PgUp PgDn", "move in the panel; the wheel does the same"),
    ("z", "give the panel the whole screen, and back"),
    ("Enter", "what the row rests on; a double click does the same"),
    ("?", "this page"),
    ("Esc, q", "leave a page"),
)

MARKS_HELP = (
    ("–", "not measured; the reason is below or under Enter, and it is never a zero"),
    ("·", "measured, and nothing happened in this interval"),
    ("<.01", "more than zero, less than can be shown"),
    ("FULL, REFUSED, LOST, PAUSED", "words for whatever else is told by colour"),
)


def help_page(frame: Optional[Frame], width: int) -> Table:
    """Keys, marks, one sentence for each column, and what is not measured here."""
    lines = [*_section("keys", KEYS_HELP, width), *_section("marks", MARKS_HELP, width)]
    lines += _section(
        "requests",
        (
            ("served", "replies sent on connections a target accepted, per second"),
            ("p50 … max", "first byte of a request queued to its reply handed to the kernel"),
            ("calls a request", "all system calls of the targets, by served requests"),
        ),
        width,
    )
    for name, columns in (
        ("listeners", LISTENERS),
        ("system calls", SYSCALLS),
        ("targets", TARGETS),
    ):
        lines += _section(name, _sentences(columns), width)
    if frame is not None:
        lines += _missing(frame.window, width)
    return Table("help (Esc leaves)", tuple(lines))


def details(panel: str, key: object, frame: Frame, width: int) -> Table:
    """What one row rests on; says so when the row is gone."""
    makers = {
        "requests": _requests,
        "listeners": _listener,
        "system calls": _syscall,
        "targets": _target,
    }
    missing = key is None
    lines = _missing(frame.window, width) if missing else makers[panel](key, frame, width)
    return Table(f"{panel}: details (Esc leaves)", tuple(lines))


def _syscall(key: object, frame: Frame, width: int) -> List[Line]:
    window = _call(frame.window, key)
    if window is None:
        return [_plain("no such row any more")]
    interval = _call(frame.interval, key)
    facts = [
        ("system call", cells.call_label(window)),
        ("socket", cells.socket_label(window.transport, window.socket_type)),
        ("calls", numbers.count(window.calls, 15)),
        ("failed", f"{numbers.count(cells.failed(window), 15)}  {cells.errors(window.errors)}"),
        ("bytes", f"{numbers.count(window.bytes, 20)}"),
        ("time inside", f"{numbers.duration(window.wall_us).strip()}, all threads together"),
        ("on a CPU", numbers.duration(window.cpu_us).strip()),
        ("in calls of 1 ms or more", f"{cells.slow_share(window)} % of the time inside"),
        ("threads inside now", numbers.count((interval or window).in_flight)),
    ]
    quiet = interval.latency_us if interval else Latency(count=0)
    return [
        *_section("since the start", facts, width),
        *_latencies({"this interval": quiet, "since the start": window.latency_us}),
        *_rests_on(frame.window, ("syscalls", "in_flight"), width),
    ]


def _requests(key: object, frame: Frame, width: int) -> List[Line]:
    served, since = frame.interval.requests.served, frame.window.requests.served
    if since is None:
        return _missing(frame.window, width)
    per_request = frame.window.requests.syscalls_per_request
    calls = {} if per_request is None else per_request.by_syscall
    ranked = sorted(calls.items(), key=lambda item: (-item[1], item[0]))
    latencies = {"since the start": since.latency_us}
    if served is not None:
        latencies = {"this interval": served.latency_us, **latencies}
    stages = {name: value for name, value in vars(since.stages_us).items() if value is not None}
    return [
        *_section("since the start", [("served", numbers.count(since.count, 15))], width),
        *_latencies(latencies),
        *(_latencies(stages, "stages") if stages else []),
        *_section(
            "system calls a request",
            [(visible(name), numbers.ratio(value)) for name, value in ranked],
            width,
        ),
        *_rests_on(frame.window, ("served_requests",), width),
    ]


def _listener(key: object, frame: Frame, width: int) -> List[Line]:
    rows = frame.window.listeners or []
    row = next((item for item in rows if listener_key(item) == key), None)
    if row is None:
        return [_plain("no such listener any more")]
    waits = {}
    if row.wait_us is not None:
        waits["until accept"] = row.wait_us
    if row.blocked_connects is not None:
        waits["in connect(), queue full"] = row.blocked_connects.wait_us
    return [
        *_section(visible(row.address), _listener_facts(row, frame.window), width),
        *_section("queue", _queue_facts(row), width),
        *(_latencies(waits, "waits") if waits else []),
        *_rests_on(frame.window, _LISTENER_MEASUREMENTS, width),
    ]


def _listener_facts(row: Listener, report: Report) -> List[Fact]:
    comms = cells.comms_of(report.targets)
    pids = row.pids
    held = (
        "not visible to this user"
        if pids is None
        else ", ".join(cells.process(pid, comms.get(pid)) for pid in pids) or "none"
    )
    requested = row.backlog.requested
    return [
        ("socket", cells.socket_label(row.transport, row.socket_type)),
        ("state", visible(row.state)),
        ("network namespace", f"{row.netns}, socket {row.inode}"),
        ("owners", held),
        ("backlog in force", str(row.backlog.effective)),
        ("asked of listen()", "not seen" if requested is None else str(requested)),
        ("and net.core.somaxconn", _somaxconn(row.backlog)),
        ("when full", _when_full(row)),
    ]


def _queue_facts(row: Listener) -> List[Fact]:
    return [
        ("now", f"{numbers.count(row.depth.now)} of {row.depth.limit}"),
        ("high-water", numbers.count(row.depth.max)),
        ("accepted", numbers.count(row.accepted, 15)),
        ("by process", _shares(row.accepted_by)),
        ("refused", "–" if row.refused is None else cells.errors(row.refused) or "0"),
        ("dropped", numbers.count(row.drops, 15)),
    ]


def _shares(by_name: Optional[Mapping[str, int]]) -> str:
    if by_name is None:
        return numbers.NOT_MEASURED
    ranked = sorted(by_name.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{visible(name)} {numbers.count(n, 15)}" for name, n in ranked) or "nobody"


def _somaxconn(backlog: Backlog) -> str:
    if backlog.clamped_by is not None:
        return f"cut to it: raise {visible(backlog.clamped_by)}, then listen again"
    if backlog.equals_somaxconn is None:
        return "not known: it has the limit of another network namespace"
    return "equal to it" if backlog.equals_somaxconn else "below it: listen() asked for no more"


def _when_full(row: Listener) -> str:
    if row.transport == "unix":
        return "connect() blocks, or fails with EAGAIN on a non-blocking socket"
    return "handshakes are dropped and retried after about a second, unseen by the target"


def _target(key: object, frame: Frame, width: int) -> List[Line]:
    row = next((item for item in frame.window.targets if item.pid == key), None)
    if row is None:
        return [_plain("this target has exited")]
    return [
        *_section(cells.process(row.pid, row.comm), _target_facts(row), width),
        *_rests_on(frame.window, ("targets",), width),
    ]


def _target_facts(row: Target) -> List[Fact]:
    return [
        ("command line", "–" if row.cmdline is None else visible(row.cmdline)),
        ("state", visible(row.state)),
        ("became a target by", visible(row.via)),
        ("threads", numbers.count(row.threads)),
        ("open files", f"{numbers.count(row.fds.open)} of {numbers.count(row.fds.limit, 15)}"),
    ]


def _call(report: Report, key: object) -> Optional[Syscall]:
    rows = report.syscalls or []
    return next((call for call in rows if cells.syscall_key(call) == key), None)


def _latencies(rows: Dict[str, Latency], name: str = "latency") -> List[Line]:
    names = ("p50", "p90", "p99", "p999", "max", "mean")
    lines = [_rule(name), _plain(" " * _LABEL + "".join(f"{title:>9}" for title in names))]
    for label, latency in rows.items():
        shown = cells.latency(latency)
        lines.append(_plain(f"{label:<{_LABEL}}" + "".join(f"{shown[n]:>9}" for n in names)))
    return [*lines, _plain("")]


def _rests_on(report: Report, wanted: Sequence[str], width: int) -> List[Line]:
    facts = []
    for item in report.probe.measurements:
        if item.name in wanted:
            rests = visible(item.rests_on or "nothing on this kernel")
            reason = f": {visible(item.reason)}" if item.reason else ""
            facts.append((visible(item.name), f"{visible(item.state)}{reason}; rests on {rests}"))
    return _section("rests on", facts, width) if facts else []


def _missing(report: Report, width: int) -> List[Line]:
    facts = [("on this kernel", reason) for reason in words.impaired(report)]
    absent = words.not_built(report)
    if absent:
        facts.append(("in this version", ", ".join(absent)))
    return _section("not measured", facts, width) if facts else []


def _sentences(columns: Dict[str, Column]) -> List[Fact]:
    return [(column.title or "FULL", column.says) for column in columns.values()]


def _section(name: str, facts: Iterable[Fact], width: int) -> List[Line]:
    lines = [_rule(name)]
    for label, text in facts:
        wrapped = _wrap(text, max(20, width - _LABEL - 6))
        lines += [
            _plain(f"{label if index == 0 else '':<{_LABEL}} {part}")
            for index, part in enumerate(wrapped)
        ]
    return [*lines, _plain("")]


def _wrap(text: str, width: int) -> List[str]:
    lines = [""]
    for word in text.split(" "):
        while len(word) > width:
            lines, word = [*lines, word[:width]] if lines[-1] else [word[:width]], word[width:]
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def _rule(name: str) -> Line:
    return Line(None, f"── {name} ──", DIM)


def _plain(text: str) -> Line:
    return Line(None, text)
