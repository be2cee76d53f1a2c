"""The panels' content, from a frame and what the screen remembers."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Dict, List, Optional, Sequence

from udsprobe.model.coverage import observed_s
from udsprobe.model.report import (
    Connect,
    Latency,
    Listener,
    Report,
    Served,
    Target,
    Upstream,
    WholeRequest,
)
from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.dashboard.pages.slow import slow_key
from udsprobe.views.dashboard.pages.verdict import SEVERITY, finding_key
from udsprobe.views.dashboard.state import ViewState, connect_key, group_key, listener_key
from udsprobe.views.dashboard.table import (
    CRITICAL,
    DIM,
    GAP,
    MARGIN,
    PLAIN,
    WARNING,
    Line,
    Table,
    laid_out,
    note,
    row,
)
from udsprobe.views.fields import bars, cells, numbers, sequence, words
from udsprobe.views.fields.breakdown import beside_requests, no_turns
from udsprobe.views.fields.columns import (
    CONNECTIONS,
    FINDINGS,
    LISTENERS,
    SYSCALLS,
    TARGETS,
    Column,
    extras,
    pick,
    widths,
)
from udsprobe.views.fields.escape import column as padded
from udsprobe.views.fields.escape import fit, fit_words, visible

PANELS = ("findings", "requests", "listeners", "system calls", "targets", "connections")

# The most important first.
_SYSCALL_BASE = ("name", "calls_per_s", "p99", "socket", "errors_per_s", "p50", "cpu", "now")
_SYSCALL_EXTRA = ("bytes_per_s", "max", "errors", "calls", "p90", "p999", "slow", "bytes", "mean")
_LISTENER_BASE = ("address", "state", "now", "limit", "bar", "socket")
_LISTENER_EXTRA = extras(
    LISTENERS, _LISTENER_BASE, "max", "wait", "backlog", "owners", "trouble", "history"
)
_TARGET_BASE = ("pid", "comm", "fds", "fds_limit", "cmdline", "bar")
_TARGET_EXTRA = extras(
    TARGETS, _TARGET_BASE, "threads", "state", "full_in", "exhausted", "via", "fds_pct"
)
_FINDING_BASE = ("id", "summary", "severity")
_CONNECTION_BASE = ("peer", "role", "queued", "local", "socket", "bar")
_CONNECTION_EXTRA = extras(
    CONNECTIONS,
    _CONNECTION_BASE,
    *("state", "most", "buffer", "bytes_out", "bytes_in", "requests"),
    *("received", "unread_most"),
)
_ENDS = {"address": "end", "owners": "end"}
_BELOW = " " * 10
_ROOM_FOR_ADDRESSES, _ADDRESS = 96, 26
_ROOM_FOR_SUBJECTS = 150
_SLOWEST_ASKED = 3
_FDS_HEADROOM_PCT = 90.0
_HISTORY_LABEL = 16


def build(frame: Optional[Frame], state: ViewState, width: int, *, tall: bool) -> Dict[str, Table]:
    """Every panel's table; before the first frame each says what it waits for.

    Args:
        width: of the screen, in cells.
        tall: there is room for more than one line of history.
    """
    if frame is None:
        waiting = (note("waiting for the first numbers"),)
        return {name: Table(name, waiting) for name in PANELS}
    return {
        "findings": findings(frame.interval, width),
        "requests": requests(frame, state, width, tall=tall),
        "listeners": listeners(frame, state, width),
        "system calls": syscalls(frame, state, width),
        "targets": targets(frame.window, state, width),
        "connections": connections(frame.window, state, width),
    }


def findings(report: Report, width: int) -> Table:
    """All that is wrong or worth knowing, the verdict's own first."""
    if report.findings is None:
        return Table("findings", (note(f"not measured: {words.NOT_IN_THIS_VERSION}"),))
    if not report.findings:
        return Table("findings", (note("none: nothing is refused, full, blocked or saturated"),))
    wide = ("subject",) if width >= _ROOM_FOR_SUBJECTS else ()
    columns = pick(FINDINGS, _FINDING_BASE, wide, width - MARGIN, GAP)
    lines = []
    for each in report.findings:
        shown = {
            "severity": visible(each.severity),
            "id": visible(each.id),
            "subject": visible(each.subject or numbers.NOT_MEASURED),
            "summary": each.summary,
        }
        severity = SEVERITY.get(each.severity, PLAIN)
        lines.append(Line(finding_key(each), row(columns, shown, width), severity))
    return laid_out("findings", columns, lines, width)


def connections(report: Report, state: ViewState, width: int) -> Table:
    """The busiest connections; those that cannot send first."""
    if report.connections is None:
        return Table("connections", (_not_measured(report, "connections"),))
    columns = pick(CONNECTIONS, _CONNECTION_BASE, _CONNECTION_EXTRA, width - MARGIN, GAP)
    bar = widths(columns, width - MARGIN, GAP).get("bar", CONNECTIONS["bar"].width)
    lines = []
    for key, each in state.ordered_connections(report.connections):
        shown = cells.connection(each, bar)
        if state.passes("connections", " ".join(shown.values())):
            severity = WARNING if each.stalled_us else PLAIN
            ends = {"local": "end", "peer": "end"}
            lines.append(Line(key, row(columns, shown, width, keep=ends), severity))
    if not lines:
        nothing = "none: no target has moved bytes on a connection yet"
        lines.append(_empty(state, bool(report.connections), nothing))
    more = (report.connections_total or 0) - len(report.connections)
    if more > 0:
        lines.append(note(f"and {more:,} more that are less busy"))
    return laid_out("connections", columns, lines, width)


def requests(frame: Frame, state: ViewState, width: int, *, tall: bool) -> Table:
    room = width - MARGIN
    lines = _served_lines(frame, state, room, tall=tall)
    lines += _hops(frame, room)
    for upstream in frame.interval.requests.upstream or []:
        lines.append(Line(("upstream", upstream.address), _upstream(upstream, frame, state, room)))
    lines += _connects(frame, state, room)
    slowest = frame.window.requests.slowest or []
    return Table(
        "requests",
        (*lines, *(_slow(request, room) for request in slowest)),
        asks_for=len(lines) + min(_SLOWEST_ASKED, len(slowest)),
    )


def _slow(request: WholeRequest, room: int) -> Line:
    """One of the slowest since the start; Enter draws it."""
    took = numbers.duration(request.latency_us)
    who = padded(fit(cells.process(request.pid, request.comm), 20), 20)
    text = f"slow     {took:>6}  {who}  {sequence.parts_line(request)}"
    return Line(slow_key(request), fit_words(text, room))


def _served_lines(frame: Frame, state: ViewState, room: int, *, tall: bool) -> List[Line]:
    served = frame.interval.requests.served
    if served is None:
        return [_not_measured(frame.window, "served_requests")]
    lines = [Line("served", _served(served, state, room, spark=not tall))]
    why = _why_no_turns(frame)
    if why is not None:
        lines.append(Line("served", why, WARNING))
    lines += [Line("served", fit(each, room)) for each in beside_requests(frame.window)]
    per_request = frame.window.requests.syscalls_per_request
    if per_request is not None:
        lines.append(Line("served", words.per_request(per_request, room)))
    else:
        lines.append(note("no reply was sent yet on a connection a target accepted"))
    if tall:
        lines += [Line("served", _history(name, state, room)) for name in state.shown]
    return lines


def _hops(frame: Frame, width: int) -> List[Line]:
    """The chain of targets that ask each other: own time of the whole, of this interval."""
    seconds = observed_s(frame.interval, "served_requests")
    comms = cells.comms_of(frame.window.targets)
    lines = []
    for hop in frame.interval.requests.hops or []:
        shown = cells.hop(hop, seconds, comms)
        right = f"{shown['calls_per_s']:>5}/s  own {shown['own']:>6} of {shown['whole']:>6}"
        asks = f" → {shown['asks']}" if shown["asks"] else ""
        room = width - len(right) - 11
        who = padded(fit(f"{shown['who']}{asks}", room), room)
        lines.append(Line("served", f"hop      {who}  {right}"))
    return lines


def _why_no_turns(frame: Frame) -> Optional[str]:
    reports = (frame.interval, frame.window)
    every = [report.requests.served for report in reports if report.requests.served is not None]
    return next(filter(None, map(no_turns, every)), None)


def _connects(frame: Frame, state: ViewState, width: int) -> List[Line]:
    """Outgoing connects by destination; errors since the start, the rest of the interval."""
    latest = {connect_key(one): one for one in frame.interval.connects or []}
    seconds = observed_s(frame.interval, "connects")
    lines = []
    for one in state.ordered_connects(frame.window.connects or []):
        key = connect_key(one)
        rates = latest.get(key) or replace(one, calls=0, latency_us=Latency(count=0))
        text = _connect(one, cells.connect(rates, seconds, state.units), width)
        lines.append(Line(key, text, WARNING if cells.connect_failed(one) else PLAIN))
    return lines


def _connect(since: Connect, shown: cells.Cells, width: int) -> str:
    right = f"{shown['calls_per_s']:>5}/s"
    failed = cells.connect_failed(since)
    # Errors are worth more than latencies where there is room for one of them.
    shorter = width < _ROOM_FOR_ADDRESSES, width < _ROOM_FOR_ADDRESSES + 24
    for name in ("p50", "p99")[shorter[0] + (failed and shorter[1]) :]:
        right += f"  {name} {shown[name]:>6}"
    told = f"  {'FAILED ' if failed else ''}{cells.errors(since.errors)}" if since.errors else ""
    where = 28 if width < _ROOM_FOR_ADDRESSES else 40
    address = padded(fit(shown["address"], where, keep="middle"), where)
    return fit(f"connect  {address}  {right}{told}", width)


def _served(served: Served, state: ViewState, width: int, *, spark: bool) -> str:
    latency = cells.latency(served.latency_us, state.units, ("served",))
    names = ("p50", "p99", "p999") if width < 110 else ("p50", "p90", "p99", "p999", "max")
    right = "  ".join(f"{name} {latency[name]:>6}" for name in names)
    left = f"served {numbers.rate(served.rate_per_s):>5}/s"
    room = max(0, width - len(left) - len(right) - 4)
    return f"{left}  {_spark('rate', state, room) if spark else ''}  {right}"


def _upstream(upstream: Upstream, frame: Frame, state: ViewState, width: int) -> str:
    latency = cells.latency(upstream.latency_us, state.units, ("upstream", upstream.address))
    rate = cells.per_second(upstream.count, observed_s(frame.interval, "upstream_requests"))
    right = f"{numbers.rate(rate):>5}/s  p50 {latency['p50']:>6}  p99 {latency['p99']:>6}"
    for tells in (cells.login_answers, cells.queued_answers, cells.failed_asking):
        told = tells(upstream)
        right = f"{told}  {right}" if told else right
    room = width - len(right) - 11
    where = fit(f"{upstream.transport}:{upstream.address}", room, keep="middle")
    return f"upstream {padded(where, room)}  {right}"


def _history(name: str, state: ViewState, width: int) -> str:
    values = state.shown[name]
    newest = values[-1] if values else None
    if name in ("p50", "p99"):
        shown = state.units.duration(("served", name), newest) if newest is not None else "·"
        top = numbers.duration(bars.steady_ceiling(values))
    else:
        per = "/s" if name in ("rate", "errors") else ""
        shown = numbers.rate(newest) + per
        top = numbers.rate(bars.steady_ceiling(values)) + per
    label = f"{name:<{_HISTORY_LABEL}}{shown:>7}  "
    scale = f"  0–{top.strip()}"
    return label + _spark(name, state, width - len(label) - 12) + scale


def _spark(name: str, state: ViewState, width: int) -> str:
    values = list(state.shown[name])[-width:] if width > 0 else []
    return bars.sparkline(values, max(0, width), bars.steady_ceiling(values))


def listeners(frame: Frame, state: ViewState, width: int) -> Table:
    report = frame.window
    if report.listeners is None:
        return Table("listeners", (_not_measured(report, "listeners"),))
    extra = [key for key in _LISTENER_EXTRA if _measured(report.listeners, key)]
    table = _with_room_for(report.listeners, width)
    columns = pick(table, _LISTENER_BASE, extra, width - MARGIN, GAP)
    rows = ListenerRows(columns, frame, state, width)
    lines: List[Line] = []
    groups = cells.listener_groups(report.listeners)
    for group in sorted(groups, key=_has_not_suffered):
        ranked = sorted(group, key=lambda row: not cells.has_suffered(row))
        members = [line for listener in ranked for line in rows.lines(listener, len(group) > 1)]
        lines += [rows.sum_line(group), *members] if len(group) > 1 and members else members
    if not lines:
        lines.append(_empty(state, bool(report.listeners), "no listener: no target listens"))
    return laid_out("listeners", columns, lines, width)


def _with_room_for(rows: Sequence[Listener], width: int) -> Dict[str, Column]:
    """The columns, with one for addresses that is as wide as they need and the screen allows."""
    address = LISTENERS["address"]
    longest = max((len(row.address) for row in rows), default=0) + len(" ×99")
    needed = max(address.width, min(longest, address.grows_to))
    least = min(needed, address.width if width < _ROOM_FOR_ADDRESSES else _ADDRESS)
    return {**LISTENERS, "address": replace(address, width=least, grows_to=needed)}


class ListenerRows:
    """Draws listeners in the columns that are shown; tells their trouble below without one."""

    def __init__(
        self, columns: Sequence[Column], frame: Frame, state: ViewState, width: int
    ) -> None:
        self._columns = columns
        self._room = widths(columns, width - MARGIN, GAP)
        self._comms = cells.comms_of(frame.window.targets)
        self._latest = {listener_key(row): row for row in frame.interval.listeners or []}
        self._seconds = observed_s(frame.interval, "accept_queue")
        self._state = state
        self._width = width

    def sum_line(self, group: Sequence[Listener]) -> Line:
        shown = cells.listener_sum(group, self._room.get("bar", LISTENERS["bar"].width))
        severity = CRITICAL if any(map(cells.suffers, group)) else PLAIN
        text = row(self._columns, shown, self._width, keep=_ENDS)
        return Line(group_key(group[0]), text, severity)

    def lines(self, listener: Listener, is_member: bool) -> List[Line]:
        shown = cells.listener(
            listener,
            self._comms,
            self._room.get("bar", LISTENERS["bar"].width),
            peak=self._state.peak(listener),
        )
        if not self._state.passes("listeners", " ".join(shown.values())):
            return []
        shown["history"] = self._history(listener)
        shown["trouble"] = self._trouble(listener)
        if is_member:
            shown["address"] = cells.member_address(listener, self._comms)
        key = listener_key(listener)
        severity = _listener_severity(listener)
        lines = [Line(key, row(self._columns, shown, self._width, keep=_ENDS), severity)]
        if shown["trouble"] and "trouble" not in self._room:
            told = fit(_BELOW + shown["trouble"], self._width - MARGIN)
            lines.append(Line(key, told, severity))
        return lines

    def _trouble(self, listener: Listener) -> str:
        """Since the start; and, while there is trouble, how fast connections are taken now."""
        told = cells.trouble(listener)
        latest = self._latest.get(listener_key(listener))
        if latest is None or latest.accepted is None or not cells.suffers(listener):
            return told
        rate = numbers.rate(cells.per_second(latest.accepted, self._seconds))
        return " · ".join(filter(None, (told, f"accepting {rate}/s")))

    def _history(self, listener: Listener) -> str:
        room = self._room.get("history", 0)
        values = self._state.depths(listener)[-room:] if room else ()
        return bars.sparkline(values, room, listener.depth.limit)


def _has_not_suffered(group: Sequence[Listener]) -> bool:
    """Once full or refusing, always first: rows move once at most."""
    return not any(cells.has_suffered(row) for row in group)


def _measured(rows: Sequence[Listener], key: str) -> bool:
    """A column that nothing fills leaves its room to the others."""
    fields: Dict[str, Callable[[Listener], object]] = {
        "max": lambda row: row.depth.max is not None,
        "wait": lambda row: row.wait_us is not None,
        "trouble": lambda row: row.refused is not None,
    }
    return key not in fields or any(fields[key](row) for row in rows)


def _listener_severity(listener: Listener) -> str:
    if cells.suffers(listener):
        return CRITICAL
    return DIM if listener.state == "closed" else PLAIN


def syscalls(frame: Frame, state: ViewState, width: int) -> Table:
    columns = pick(SYSCALLS, _SYSCALL_BASE, _SYSCALL_EXTRA, width - MARGIN, GAP)
    window = frame.window.syscalls
    if window is None:
        return Table("system calls", (_not_measured(frame.window, "syscalls"),))
    latest = {cells.syscall_key(call): call for call in frame.interval.syscalls or []}
    seconds = observed_s(frame.interval, "syscalls")
    lines = []
    for call in state.ordered(window):
        shown = cells.syscall(latest.get(cells.syscall_key(call)), call, seconds, state.units)
        if state.passes("system calls", f"{shown['name']} {shown['socket']} {shown['errors']}"):
            lines.append(Line(cells.syscall_key(call), row(columns, shown, width)))
    if not lines:
        lines.append(_empty(state, bool(window), "no call on a socket or a poller yet"))
    return laid_out("system calls", columns, lines, width)


def targets(report: Report, state: ViewState, width: int) -> Table:
    columns = pick(TARGETS, _TARGET_BASE, _TARGET_EXTRA, width - MARGIN, GAP)
    lines = []
    for target in report.targets:
        shown = cells.target(target, TARGETS["bar"].width)
        if state.passes("targets", " ".join(shown.values())):
            lines.append(Line(target.pid, row(columns, shown, width), _target_severity(target)))
    if not lines:
        lines.append(_empty(state, bool(report.targets), "all targets have exited"))
    return laid_out("targets", columns, lines, width)


def _target_severity(target: Target) -> str:
    used, limit = target.fds.open, target.fds.limit
    if target.fds.exhausted:
        return CRITICAL
    if used is None or not limit:
        return PLAIN
    return WARNING if 100 * used / limit >= _FDS_HEADROOM_PCT else PLAIN


def _not_measured(report: Report, name: str) -> Line:
    return note(f"not measured: {words.why_not(report, name)}")


def _empty(state: ViewState, filtered: bool, otherwise: str) -> Line:
    if filtered and state.filter:
        return note(f"no row matches the filter {fit(state.filter, 30)!r}; Esc clears it")
    return note(otherwise)
