"""What a listener's row rests on: limits, queue, histograms, and who accepts."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from udsprobe.model.report import Backlog, Latency, Listener, Report
from udsprobe.views.dashboard.pages.lines import (
    LABEL,
    Fact,
    latencies,
    plain,
    rests_on,
    rule,
    section,
)
from udsprobe.views.dashboard.state import group_key, listener_key
from udsprobe.views.dashboard.table import Line
from udsprobe.views.fields import bars, cells, numbers
from udsprobe.views.fields.escape import column, fit, visible

_MEASUREMENTS = ("listeners", "accept_queue", "accept_wait", "refused_connects")
_BAR = 40
_WORKERS_SHOWN = 32
_WAITS = ("p50", "p90", "p99", "p999", "max")
Comms = Mapping[int, str]


def listener_page(key: object, report: Report, width: int) -> List[Line]:
    """One listener, or all that share an address; says so when it is gone."""
    rows = report.listeners or []
    group = [row for row in rows if group_key(row) == key and row.state != "closed"]
    if group:
        return [*_group(group, report), *rests_on(report, _MEASUREMENTS, width)]
    row = next((item for item in rows if listener_key(item) == key), None)
    if row is None:
        return [plain("this listener no longer exists")]
    waits = {}
    if row.wait_us is not None:
        waits["until accept"] = row.wait_us
    if row.blocked_connects is not None and row.blocked_connects.wait_us is not None:
        waits["in connect(), queue full"] = row.blocked_connects.wait_us
    return [
        *section(visible(row.address), _facts(row, report), width),
        *section("queue", _queue_facts(row), width),
        *_namespace(row, report, width),
        *_depths(row),
        *(latencies(waits, "waits") if waits else []),
        *_wait_bars(row.wait_us),
        *_workers(row, report),
        *rests_on(report, _MEASUREMENTS, width),
    ]


def _facts(row: Listener, report: Report) -> List[Fact]:
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
        *([] if row.host_path is None else [("path here", visible(row.host_path))]),
        ("state", visible(row.state)),
        ("network namespace", f"{row.netns}, socket {row.inode}"),
        ("owners", held),
        (
            "passed to listen()",
            "not seen: called before attach" if requested is None else str(requested),
        ),
        ("backlog in force", f"{row.backlog.effective}: {_binding(row.backlog)}"),
        ("full at", f"{row.depth.limit}, the backlog plus one"),
        ("when full", _when_full(row)),
    ]


def _binding(backlog: Backlog) -> str:
    """Which of the two bounds one would have to raise."""
    if backlog.clamped_by is not None:
        return f"cut to it: raise {visible(backlog.clamped_by)}, then call listen() again"
    if backlog.equals_somaxconn is None:
        return "net.core.somaxconn of that network namespace is not known"
    if not backlog.equals_somaxconn:
        return "below net.core.somaxconn: the argument of listen() is the limit"
    if backlog.requested is not None:
        return "the argument of listen(), equal to net.core.somaxconn: raise both"
    return "equal to net.core.somaxconn: that or the argument of listen() is the limit"


def _when_full(row: Listener) -> str:
    if row.transport == "unix":
        return "connect() blocks, or fails with EAGAIN on a non-blocking socket"
    return "handshakes are dropped and retried after about a second; the target does not see it"


def _queue_facts(row: Listener) -> List[Fact]:
    early = (
        f", {numbers.count(row.accepted_early)} queued before attach" if row.accepted_early else ""
    )
    facts = [
        ("now", f"{numbers.count(row.depth.now)} of {row.depth.limit}"),
        ("high-water", numbers.count(row.depth.max)),
        ("came in", numbers.count(row.established, 15)),
        ("accepted", numbers.count(row.accepted, 15) + early),
        ("refused", "–" if row.refused is None else cells.errors(row.refused) or "0"),
        ("blocked in connect()", _blocked(row)),
    ]
    if row.transport == "tcp":
        facts.append(("dropped", numbers.count(row.drops, 15)))
        facts.append(("of these, queue full", numbers.count(row.overflows, 15)))
        facts.append(("handshakes in progress", _syn_queue(row.syn_queue)))
    return facts


def _namespace(row: Listener, report: Report, width: int) -> List[Line]:
    space = next((s for s in report.namespaces or () if s.netns == row.netns), None)
    if space is None or row.transport != "tcp":
        return []
    abort = {True: "1: a full queue resets them", False: "0: a full queue drops them silently"}
    overflow = abort.get(space.tcp_abort_on_overflow or False, "")
    facts = [
        ("net.core.somaxconn", numbers.count(space.somaxconn)),
        (
            "tcp_abort_on_overflow",
            numbers.NOT_MEASURED if space.tcp_abort_on_overflow is None else overflow,
        ),
        ("tcp_syncookies", numbers.count(space.tcp_syncookies)),
        ("cookies sent, received", _pair(space.syncookies_sent, space.syncookies_received)),
        ("overflows, drops", _pair(space.listen_overflows, space.listen_drops)),
    ]
    return section(f"network namespace {row.netns}, since the start", facts, width)


def _pair(first: Optional[int], second: Optional[int]) -> str:
    return f"{numbers.count(first)}, {numbers.count(second)}"


def _blocked(row: Listener) -> str:
    blocked = row.blocked_connects
    if blocked is None:
        return numbers.NOT_MEASURED
    now, before = numbers.count(blocked.waiting_now), numbers.count(blocked.count)
    return f"{now} waiting now, {before} before"


def _syn_queue(queue: Optional[Mapping[str, int]]) -> str:
    if queue is None:
        return numbers.NOT_MEASURED
    return ", ".join(f"{visible(name)} {numbers.count(n)}" for name, n in queue.items())


def _depths(row: Listener) -> List[Line]:
    if not row.depth.histogram:
        return []
    ranges = depth_ranges(row.depth.histogram, row.depth.limit)
    most = max(count for _, count in ranges)
    lines = [rule("depth after each connection that came in"), *_bars(ranges, most)]
    return [*lines, plain("")]


def depth_ranges(histogram: Mapping[str, int], limit: int) -> List[Tuple[str, int]]:
    """`1`, `2–3`, `4–7` … → how often; empty ranges between the others included."""
    counts: Dict[int, int] = {}
    for depth, count in histogram.items():
        power = int(depth).bit_length()
        counts[power] = counts.get(power, 0) + count
    used = [power for power, count in counts.items() if count]
    if not used:
        return [("0", 0)]
    powers = range(min(used), max(used) + 1)
    return [(_range(power, limit), counts.get(power, 0)) for power in powers]


def _range(power: int, limit: int) -> str:
    low, high = (1 << power) >> 1, (1 << power) - 1
    high = min(high, limit) if limit >= low else high
    return f"{low:,}" if low >= high else f"{low:,}–{high:,}"


def _wait_bars(wait: Optional[Latency]) -> List[Line]:
    if wait is None or not wait.count or not wait.max:
        return []
    shown = cells.latency(wait)
    lines = [rule("time until accept, relative to the longest")]
    for name in _WAITS:
        value = getattr(wait, name) or 0.0
        bar = bars.share_bar(value, wait.max, _BAR)
        lines.append(plain(f"{name:<{LABEL}} {shown[name]:>9}  {bar.rstrip()}"))
    return [*lines, plain("")]


def _workers(row: Listener, report: Report) -> List[Line]:
    """Accepted by process, those that accepted nothing too, and by thread where they differ."""
    if row.accepted_by is None:
        return []
    comms = cells.comms_of(report.targets)
    lines = [rule("accepted by process"), *_split(row.accepted_by, comms), plain("")]
    threads = row.accepted_by_thread or {}
    if len(threads) > 1 and set(threads) - set(row.accepted_by):
        named = {thread.tid: thread.comm for thread in (report.time.threads if report.time else [])}
        lines += [rule("accepted by thread"), *_split(threads, named), plain("")]
    return lines


def _split(counts: Mapping[str, int], comms: Comms) -> List[Line]:
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0].zfill(10)))
    whole = sum(counts.values())
    lines = []
    for number, count in ranked[:_WORKERS_SHOWN]:
        comm = comms.get(int(number)) if number.isdigit() else None
        name = fit(f"{comm} {number}" if comm else number, LABEL)
        pct = numbers.share(count / whole) if whole else "0.0"
        bar = bars.share_bar(count, whole, _BAR)
        told = f"{column(name, LABEL)} {numbers.count(count, 11):>11} {pct:>5} %  {bar.rstrip()}"
        lines.append(plain(told.rstrip()))
    if len(ranked) > _WORKERS_SHOWN:
        lines.append(plain(f"and {len(ranked) - _WORKERS_SHOWN} more"))
    return lines or [plain("nobody")]


def _bars(rows: Sequence[Tuple[str, int]], most: int) -> List[Line]:
    return [
        plain(
            f"{label:<{LABEL}} {numbers.count(count, 11):>11}  "
            f"{bars.share_bar(count, most, _BAR).rstrip()}"
        )
        for label, count in rows
    ]


def _group(group: Sequence[Listener], report: Report) -> List[Line]:
    """How the kernel and the workers divided connections among sockets at one address."""
    comms = cells.comms_of(report.targets)
    whole = sum(row.established or 0 for row in group)
    lines = [rule(f"{visible(group[0].address)}: {len(group)} sockets (SO_REUSEPORT)")]
    heads = ("came in", "share %", "now", "max", "limit", "wait p99")
    lines.append(plain(" " * LABEL + "".join(f"{title:>10}" for title in heads)))
    for row in group:
        shown = cells.listener(row, comms, 10)
        came = row.established
        values = (
            numbers.count(came),
            numbers.share(came / whole) if came is not None and whole else numbers.NOT_MEASURED,
            *(shown[name].strip() for name in ("now", "max", "limit", "wait")),
        )
        name = fit(shown["owners"], LABEL)
        told = cells.trouble(row)
        cellar = "".join(f"{value:>10}" for value in values)
        lines.append(plain(f"{column(name, LABEL)}{cellar}  {told}".rstrip()))
    return [*lines, plain("")]
