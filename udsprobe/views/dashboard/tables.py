"""The four panels' content, from a frame and what the screen remembers."""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence

from udsprobe.model.report import Listener, Report, Served, Target, Upstream
from udsprobe.views import bars, cells, numbers, words
from udsprobe.views.columns import LISTENERS, SYSCALLS, TARGETS, pick, widths
from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.dashboard.state import ViewState, listener_key
from udsprobe.views.dashboard.table import (
    CRITICAL,
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
from udsprobe.views.escape import column as padded
from udsprobe.views.escape import fit

PANELS = ("requests", "listeners", "system calls", "targets")

_SYSCALL_BASE = ("name", "socket", "calls_per_s", "errors_per_s", "p50", "p99", "cpu", "now")
_SYSCALL_EXTRA = ("bytes_per_s", "max", "errors", "calls", "p90", "p999", "slow", "bytes", "mean")
_LISTENER_BASE = ("socket", "address", "bar", "now", "limit", "state", "backlog")
_LISTENER_EXTRA = ("wait", "refused", "max", "owners")
_TARGET_BASE = ("pid", "comm", "bar", "fds", "fds_limit", "cmdline")
_TARGET_EXTRA = ("threads", "state", "via", "fds_pct")
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
        "requests": requests(frame, state, width, tall=tall),
        "listeners": listeners(frame.window, state, width),
        "system calls": syscalls(frame, state, width),
        "targets": targets(frame.window, state, width),
    }


def requests(frame: Frame, state: ViewState, width: int, *, tall: bool) -> Table:
    served = frame.interval.requests.served
    if served is None:
        return Table("requests", (_not_measured(frame.window, "served_requests"),))
    room = width - MARGIN
    lines = [Line("served", _served(served, state, room, spark=not tall))]
    per_request = frame.window.requests.syscalls_per_request
    if per_request is not None:
        lines.append(Line("served", words.per_request(per_request, room)))
    else:
        lines.append(note("no reply was sent yet on a connection a target accepted"))
    if tall:
        lines += [Line("served", _history(name, state, room)) for name in state.shown]
    for upstream in frame.interval.requests.upstream or []:
        lines.append(Line(("upstream", upstream.address), _upstream(upstream, frame, state, room)))
    return Table("requests", tuple(lines))


def _served(served: Served, state: ViewState, width: int, *, spark: bool) -> str:
    latency = cells.latency(served.latency_us, state.units, ("served",))
    names = ("p50", "p99", "p999") if width < 110 else ("p50", "p90", "p99", "p999", "max")
    right = "  ".join(f"{name} {latency[name]:>6}" for name in names)
    left = f"served {numbers.rate(served.rate_per_s):>5}/s"
    if served.turn_based is False:
        left += " (turns, not requests)"
    room = max(0, width - len(left) - len(right) - 4)
    return f"{left}  {_spark('rate', state, room) if spark else ''}  {right}"


def _upstream(upstream: Upstream, frame: Frame, state: ViewState, width: int) -> str:
    latency = cells.latency(upstream.latency_us, state.units, ("upstream", upstream.address))
    rate = cells.per_second(upstream.count, frame.interval.window.duration_s)
    right = f"{numbers.rate(rate):>5}/s  p50 {latency['p50']:>6}  p99 {latency['p99']:>6}"
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


def listeners(report: Report, state: ViewState, width: int) -> Table:
    extra = [key for key in _LISTENER_EXTRA if _measured(report.listeners or [], key)]
    columns = pick(LISTENERS, _LISTENER_BASE, extra, width - MARGIN, GAP)
    if report.listeners is None:
        return Table("listeners", (_not_measured(report, "listeners"),))
    comms = cells.comms_of(report.targets)
    bar = widths(columns, width - MARGIN, GAP)["bar"]
    lines: List[Line] = []
    for listener in report.listeners:
        shown = cells.listener(listener, comms, bar, peak=state.peak(listener))
        text = row(columns, shown, width, keep={"address": "end", "owners": "end"})
        if state.passes("listeners", " ".join(shown.values())):
            lines.append(Line(listener_key(listener), text, _listener_severity(listener)))
    if not lines:
        lines.append(_empty(state, bool(report.listeners), "no listener: no target listens"))
    return laid_out("listeners", columns, lines, width)


def _measured(rows: Sequence[Listener], key: str) -> bool:
    """A column that nothing fills leaves its room to the others."""
    fields: Dict[str, Callable[[Listener], object]] = {
        "max": lambda row: row.depth.max,
        "wait": lambda row: row.wait_us,
        "refused": lambda row: row.refused,
    }
    return key not in fields or any(fields[key](row) is not None for row in rows)


def _listener_severity(listener: Listener) -> str:
    return CRITICAL if cells.is_full(listener) or cells.refused(listener) else PLAIN


def syscalls(frame: Frame, state: ViewState, width: int) -> Table:
    columns = pick(SYSCALLS, _SYSCALL_BASE, _SYSCALL_EXTRA, width - MARGIN, GAP)
    window = frame.window.syscalls
    if window is None:
        return Table("system calls", (_not_measured(frame.window, "syscalls"),))
    latest = {cells.syscall_key(call): call for call in frame.interval.syscalls or []}
    seconds = frame.interval.window.duration_s
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
        lines.append(_empty(state, bool(report.targets), "no target is left"))
    return laid_out("targets", columns, lines, width)


def _target_severity(target: Target) -> str:
    used, limit = target.fds.open, target.fds.limit
    if used is None or not limit:
        return PLAIN
    return WARNING if 100 * used / limit >= _FDS_HEADROOM_PCT else PLAIN


def _not_measured(report: Report, name: str) -> Line:
    return note(f"not measured: {words.why_not(report, name)}")


def _empty(state: ViewState, filtered: bool, otherwise: str) -> Line:
    if filtered and state.filter:
        return note(f"no row matches the filter {fit(state.filter, 30)!r}; Esc clears it")
    return note(otherwise)
