"""The sentences views share: who is watched, what is missing, what it costs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

from udsprobe.model.report import (
    Exits,
    Measurement,
    Probe,
    Report,
    Sleeps,
    Stacks,
    Starts,
    SyscallsPerRequest,
    Target,
    Window,
)
from udsprobe.rules.code_kinds import KIND_WORDS
from udsprobe.views.fields import numbers
from udsprobe.views.fields.cells import process
from udsprobe.views.fields.escape import visible

NOT_IN_THIS_VERSION = "not measured in this version"
_WORTH_NAMING = 0.01


def who(targets: Sequence[Target], exited: int = 0) -> str:
    """`node 4711 +3, 62 exited`: the first that a selector named, how many more live, who ended.

    Args:
        exited: all that ended; the last of them are in `targets`.
    """
    if not targets:
        return "no target left" if exited else "no target yet"
    living = [target for target in targets if target.state == "running"]
    named = living or targets
    first = next((target for target in named if target.via == "selector"), named[0])
    exited = max(exited, len(targets) - len(living))
    more = len(living or range(exited)) - 1
    told = process(first.pid, first.comm) + (f" +{more}" if more else "")
    if not living:
        return f"{told}, {'all ' if more else ''}exited"
    return told + (f", {exited} exited" if exited else "")


def ends(rows: Optional[Sequence[Exits]]) -> str:
    """`SIGSEGV: 67 gunicorn · status 3: 2 sh`; "" for none, or not told."""
    return " · ".join(f"{row.how}: {row.processes:,} {visible(row.comm)}" for row in rows or ())


def unstarted(rows: Optional[Sequence[Starts]]) -> str:
    """`EAGAIN 1,383 of 1,400 python (pids.max of /app: 4 of 4)`; "" for none, or not told."""
    return " · ".join(map(_unstarted, (row for row in rows or () if row.refused)))


def _unstarted(row: Starts) -> str:
    errors = ", ".join(f"{errno} {n:,}" for errno, n in row.refused_by_errno.items())
    told = f"{errors} of {row.started + row.refused:,} {visible(row.comm)}"
    limit = row.limit
    if limit is None:
        return told
    of = f" of {visible(limit.cgroup)}" if limit.cgroup is not None else ""
    return f"{told} ({limit.name}{of}: {limit.used:,} of {limit.limit:,})"


def clock(window: Window) -> str:
    """Wall clock at the end of the window, `03:12:41`, in the report's own offset."""
    moment = _moment(window.start)
    if moment is None:
        return "--:--:--"
    return (moment + timedelta(seconds=window.duration_s)).strftime("%H:%M:%S")


def started(window: Window) -> str:
    """`2026-11-21 03:12:41`; whatever the report says where that is no time."""
    moment = _moment(window.start)
    return visible(window.start) if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")


def per_request(value: SyscallsPerRequest, width: int) -> str:
    """`3.35 calls a request: read 1.00, writev 1.00, and 5 more`, cut to `width`."""
    ranked = sorted(value.by_syscall.items(), key=lambda item: (-item[1], item[0]))
    parts = [
        f"{visible(name)} {numbers.ratio(calls)}"
        for name, calls in ranked
        if calls >= _WORTH_NAMING
    ]
    head = f"{numbers.ratio(value.total)} system calls per request"
    for shown in range(len(parts), 0, -1):
        more = len(ranked) - shown
        line = f"{head}: {', '.join(parts[:shown])}" + (f", and {more} more" if more else "")
        if len(line) <= width:
            return line
    return head


def sampled(stacks: Stacks) -> str:
    """`396 samples in 4.00 s; of 3 the outer callers were not found`."""
    parts = [f"{stacks.samples:,} samples in {numbers.span(stacks.sampled_s)}"]
    if stacks.truncated:
        parts.append(f"of {stacks.truncated:,} the outer callers were not found")
    if stacks.lost:
        parts.append(f"{stacks.lost:,} more were lost")
    return "; ".join(parts)


STAGES = {
    "receiving": "being received",
    "processing": "processed",
    "sending": "being answered",
    "none": "none to be answered",
}


def stages(stacks: Stacks) -> List[Tuple[str, float, List[str]]]:
    """Stage in words, its part of the samples (0 to 1), and the stack of what most of it was in."""
    return [
        (STAGES[each.stage], each.samples / stacks.samples, each.code[0].stack)
        for each in stacks.stages or ()
        if each.code and stacks.samples
    ]


IN_SOCKETS = "calls on sockets and in pollers"


def code_kinds(stacks: Stacks) -> List[Tuple[str, float, List[str]]]:
    """Kind of code in words, its part of all samples (0 to 1), and functions that it is in.

    The transport's calls are the last; their functions are not told. Hardly any is left out.
    """
    parts: Dict[str, float] = {}
    functions: Dict[str, List[str]] = {}
    for ran in stacks.processes:
        for kind in ran.kinds:
            weight = kind.share_pct / 100 * ran.samples
            parts[kind.kind] = parts.get(kind.kind, 0.0) + weight / stacks.samples
            functions.setdefault(kind.kind, kind.stack)
    ranked = sorted(parts, key=lambda name: -parts[name])
    rows = [(KIND_WORDS[name], parts[name], functions[name]) for name in ranked]
    moving = sum(ran.in_sockets for ran in stacks.processes)
    rows += [(IN_SOCKETS, moving / stacks.samples, [])] if moving else []
    return [row for row in rows if row[1] >= _WORTH_NAMING]


def own_functions(stacks: Stacks) -> FrozenSet[str]:
    """The programs' own ones that most of their time goes to, running and in each call asleep."""
    sleeping = () if stacks.sleeps is None else stacks.sleeps.processes
    places = [each.code[:1] for each in stacks.processes]
    places += [call.code[:1] for each in sleeping for call in each.calls]
    return frozenset(place.own for found in places for place in found if place.own is not None)


def slept(sleeps: Sleeps) -> str:
    """`210 sleeps, 3.43s together, in 4.00 s; of 3 the outer callers were not found`."""
    took = numbers.duration(sleeps.total_us)
    parts = [f"{sleeps.count:,} sleeps, {took} together, in {numbers.span(sleeps.watched_s)}"]
    if sleeps.truncated:
        parts.append(f"of {sleeps.truncated:,} the outer callers were not found")
    if sleeps.lost:
        parts.append(f"{sleeps.lost:,} more were lost")
    return "; ".join(parts)


def lost(probe: Probe) -> int:
    losses = probe.events_lost
    return losses.map_full + losses.ring_full + losses.missed


def losses(probe: Probe) -> str:
    """`lost 0`, or how many and why."""
    total = lost(probe)
    if not total:
        return "lost 0"
    kinds = probe.events_lost
    reasons = [
        f"{name} {numbers.count(events)}"
        for name, events in (
            ("map full", kinds.map_full),
            ("ring full", kinds.ring_full),
            ("missed", kinds.missed),
        )
        if events
    ]
    return f"LOST {numbers.count(total)} ({', '.join(reasons)})"


def account(probe: Probe) -> str:
    """`lost 0 of 161k`: calls that were not counted of those seen; a map that was full."""
    seen = numbers.count(probe.events_seen, 5)
    return f"{losses(probe)} of {seen}{unaccounted(probe)}{turned_away(probe)}"


def unaccounted(probe: Probe) -> str:
    """That the account does not add up; empty when it does."""
    amount = probe.events_unaccounted
    return f" · UNACCOUNTED {numbers.count(amount)}" if amount else ""


def is_incomplete(probe: Probe) -> bool:
    """Whether anything is missing in what was counted."""
    return bool(lost(probe) or probe.turned_away or probe.events_unaccounted)


def way(probe: Probe) -> str:
    """`tracepoint`, or `tracepoint, light`: how was looked, and how closely."""
    return visible(probe.strategy) + ("" if probe.detail == "full" else f", {probe.detail}")


def full_detail(report: Report) -> str:
    """`full detail: 1.0 s of the last 30 s, at 12:00:03`; empty unless detail is auto."""
    probe = report.probe
    if probe.detail != "auto":
        return ""
    found = next((m.coverage for m in probe.measurements if m.coverage is not None), None)
    if found is None:
        return "full detail: not yet"
    began, start = _moment(found.from_), _moment(report.window.start)
    if began is None or start is None:
        return f"full detail: {numbers.span(found.observed_s)}"
    end = start + timedelta(seconds=report.window.duration_s)
    since_s = max(found.observed_s, (end - began).total_seconds())
    told = f"full detail: {numbers.span(found.observed_s)} of the last {numbers.span(since_s)}"
    seen = "light sees" if _has_light(report) else "is seen without probes"
    by = "" if _verdict_of_full(report) else f"; the verdict is what {seen}"
    return f"{told}, at {began.strftime('%H:%M:%S')}{by}"


def _has_light(report: Report) -> bool:
    """Whether requests were counted between full windows, too."""
    rows = report.probe.measurements
    return any(each.name == "served_requests" and each.coverage is None for each in rows)


def _verdict_of_full(report: Report) -> bool:
    rows = report.probe.measurements
    return any(each.name == "verdict" and each.coverage is not None for each in rows)


def cost(probe: Probe) -> str:
    """CPU and memory: of the process, then of the programs and their maps."""
    maps = probe.maps_bytes
    return (
        f"own CPU {numbers.percentage(probe.self_cpu_pct)} %"
        f" · probes {numbers.percentage(probe.bpf_cpu_pct)} %"
        f" · {numbers.size(probe.rss_bytes).replace(' ', '')}"
        + (f" · maps {numbers.size(maps).replace(' ', '')}" if maps is not None else "")
    )


def events(probe: Probe) -> str:
    """`seen 1,234 · counted 1,234 · lost 0`."""
    seen, counted = numbers.count(probe.events_seen, 15), numbers.count(probe.events_counted, 15)
    return (
        f"seen {seen} · counted {counted} · {losses(probe)}{unaccounted(probe)}{turned_away(probe)}"
    )


def turned_away(probe: Probe) -> str:
    """What found its map full, by map; empty when nothing did."""
    if not probe.turned_away:
        return ""
    by_map = [f"{visible(m)} {numbers.count(n)}" for m, n in probe.turned_away_by_map.items()]
    kinds = f" ({', '.join(by_map)})" if by_map else ""
    return f" · NO ROOM FOR {numbers.count(probe.turned_away)}{kinds}"


def impaired(report: Report) -> List[str]:
    """A line for each reason why this kernel does not fully carry a measurement."""
    names: Dict[Tuple[str, str], List[str]] = {}
    for item in report.probe.measurements:
        if item.state != "on" and not _not_built(item):
            reason = item.reason or "no reason given"
            names.setdefault((item.state, reason), []).append(_spoken(item))
    return [
        f"{', '.join(named)}: {visible(state)}: {visible(reason)}"
        for (state, reason), named in names.items()
    ]


def why_not(report: Report, name: str) -> str:
    """Why the measurement `name` has no value."""
    for item in report.probe.measurements:
        if item.name == name and item.state != "on":
            return visible(item.reason or item.state)
    return "not in this version"


def not_built(report: Report) -> List[str]:
    """What this version cannot measure anywhere, whatever the kernel."""
    off = [item for item in report.probe.measurements if item.state != "on"]
    accounted = {item.name for item in off}
    absent = [name for name, keys in _absent(report) if not accounted.intersection(keys)]
    return [_spoken(item) for item in off if _not_built(item)] + absent


def _not_built(item: Measurement) -> bool:
    return item.reason == NOT_IN_THIS_VERSION


def _spoken(item: Measurement) -> str:
    return visible(item.name.replace("_", " "))


def _absent(report: Report) -> List[Tuple[str, Tuple[str, ...]]]:
    served = report.requests.served
    listeners = report.listeners or []
    stages = None if served is None else served.stages_us
    return [
        (words, keys)
        for words, keys, absent in (
            ("verdict", ("verdict",), report.verdict is None),
            ("system calls", ("syscalls",), report.syscalls is None),
            ("served requests", ("served_requests",), served is None),
            ("request stages", ("stages", "served_requests"), _all_none(stages)),
            (
                "upstream requests",
                ("upstream_requests", "served_requests"),
                report.requests.upstream is None,
            ),
            ("listeners", ("listeners",), report.listeners is None),
            (
                "accept-queue high-water and wait",
                ("accept_wait", "accept_queue", "listeners"),
                bool(listeners) and all(row.depth.max is None for row in listeners),
            ),
            ("connections", ("connections",), report.connections is None),
            ("thread time", ("thread_time",), report.time is None),
        )
        if absent
    ]


def _all_none(stages: object) -> bool:
    return stages is None or all(value is None for value in vars(stages).values())


def _moment(start: str) -> Optional[datetime]:
    try:
        return datetime.fromisoformat(start.replace("Z", "+00:00"))
    except ValueError:
        return None
