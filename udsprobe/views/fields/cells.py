"""Table cells from the rows of a report: one dict of strings a row, keyed by column.

The dashboard and `--plain` both take their cells here, so they cannot show
different numbers. Knows nothing of screens.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from udsprobe.model.report import (
    Backlog,
    BlockedConnects,
    Connect,
    Connection,
    Fds,
    Hop,
    HttpReplies,
    Latency,
    Listener,
    Peer,
    Syscall,
    Target,
    Upstream,
)
from udsprobe.model.requests.http_replies import most_first
from udsprobe.model.requests.unanswered import ended
from udsprobe.views.fields import numbers
from udsprobe.views.fields.bars import limit_bar
from udsprobe.views.fields.columns import CONNECTIONS, LISTENERS, TARGETS, figures
from udsprobe.views.fields.escape import fit, visible

Cells = Dict[str, str]
SyscallKey = Tuple[str, str, str, str]

NOTHING_HAPPENED = "·"
"""Shown where a percentile has no calls to rest on: measured, and there were none."""

_SHORT_TYPES = {"seqpacket": "seq", "dgram": "dgram"}
STATUSES_SHOWN = 2
_UNDER_WAY = frozenset({"EINPROGRESS", "EALREADY"})
# As `docker ps` and `crictl ps` write them.
_CONTAINER_DIGITS = 12
_PERCENTILES = ("p50", "p90", "p99", "p999", "max", "mean")


def syscall_key(call: Syscall) -> SyscallKey:
    """What tells one row of the table from another."""
    return call.name, call.transport, call.socket_type or "", call.abi


def socket_label(transport: str, socket_type: Optional[str]) -> str:
    """`unix`, `unix/seq`, `tcp` …: the type is named where it is not the usual one."""
    short = _SHORT_TYPES.get(socket_type or "")
    return visible(f"{transport}/{short}" if short and transport == "unix" else transport)


def call_label(call: Syscall) -> str:
    return visible(call.name + ("/32" if call.abi == "compat" else ""))


def per_second(amount: Optional[float], seconds: float) -> Optional[float]:
    """A rate; None where there was no time to have one in."""
    return amount / seconds if amount is not None and seconds > 0 else None


def share_pct(part: Optional[float], whole: float) -> Optional[float]:
    return None if part is None or whole <= 0 else 100 * part / whole


def failed(call: Syscall) -> int:
    return sum(call.errors.values())


def syscall(
    interval: Optional[Syscall],
    window: Syscall,
    interval_s: float,
    units: Optional[numbers.SteadyUnits] = None,
) -> Cells:
    """One row of the system-call table.

    Args:
        interval: the same row of the last interval, which rates and
            percentiles are of; None when nothing happened in it.
        window: since the start.
        units: remembers each cell's unit between refreshes.
    """
    rates = interval or _quiet(window)
    cells = {
        "name": call_label(window),
        "socket": socket_label(window.transport, window.socket_type),
        "calls": numbers.count(window.calls),
        "calls_per_s": numbers.rate(per_second(rates.calls, interval_s)),
        "errors_per_s": numbers.rate(per_second(failed(rates), interval_s)),
        "cpu": numbers.percentage(share_pct(rates.cpu_us, interval_s * 1e6)),
        "now": numbers.count(rates.in_flight, 4),
        "bytes": numbers.size(window.bytes),
        "bytes_per_s": numbers.size(per_second(rates.bytes, interval_s)),
        "slow": slow_share(rates),
        "errors": errors(window.errors),
    }
    cells.update(latency(rates.latency_us, units, syscall_key(window)))
    return cells


def latency(
    value: Optional[Latency],
    units: Optional[numbers.SteadyUnits] = None,
    place: Tuple[str, ...] = (),
) -> Cells:
    """Percentiles, `max` and `mean` of a latency; `–` when None, `·` when nothing happened."""
    if value is None:
        return dict.fromkeys(_PERCENTILES, numbers.NOT_MEASURED)
    if value.count == 0:
        return dict.fromkeys(_PERCENTILES, NOTHING_HAPPENED)
    steady = units or numbers.SteadyUnits()
    return {name: steady.duration((*place, name), getattr(value, name)) for name in _PERCENTILES}


def slow_share(call: Syscall) -> str:
    if call.wall_us <= 0:
        return NOTHING_HAPPENED
    return numbers.percentage(share_pct(call.slow_us, call.wall_us))


def errors(by_errno: Mapping[str, int]) -> str:
    """`EAGAIN 842, EMFILE 3`, most frequent first; empty when none failed."""
    ranked = sorted(by_errno.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{visible(name)} {numbers.count(calls)}" for name, calls in ranked if calls)


def listener(
    row: Listener, comms: Mapping[int, str], bar_width: int, peak: Optional[int] = None
) -> Cells:
    """One row of the listener table.

    Args:
        comms: names of the processes that are known, by PID.
        peak: most connections seen by the caller, where the kernel's
            high-water mark is not measured.
    """
    depth = row.depth
    most = depth.max if depth.max is not None else peak
    return {
        **figures(LISTENERS, row),
        "socket": socket_label(row.transport, row.socket_type),
        "address": visible(row.address),
        "bar": limit_bar(depth.now, depth.limit, bar_width, peak=most),
        "history": "",
        "state": listener_state(row),
        "backlog": backlog(row.backlog),
        "wait": latency(row.wait_us)["p99"],
        "trouble": trouble(row),
        "owners": owners(row.pids, comms),
    }


def listener_state(row: Listener) -> str:
    """The word for what is wrong with it, the worst first; empty when nothing is."""
    if row.state == "closed":
        return "CLOSED"
    if is_full(row):
        return "FULL"
    if refused(row):
        return "REFUSED"
    if _blocked(row):
        return "BLOCKED"
    return "DROPPED" if row.drops else ""


def refused(row: Listener) -> Optional[int]:
    """Connections refused in the window."""
    return None if row.refused is None else sum(row.refused.values())


def trouble(row: Listener) -> str:
    """What befell newcomers: refusals, blocked clients, drops; empty when nothing did."""
    parts = []
    if refused(row):
        parts.append(f"REFUSED {errors(row.refused or {})}")
    if _blocked(row):
        parts.append(_blocked_clients(row.blocked_connects))
    if row.drops:
        parts.append(f"DROPPED {numbers.count(row.drops)}")
    return " · ".join(parts)


def suffers(row: Listener) -> bool:
    """Whether newcomers are or were turned away or made to wait."""
    return is_full(row) or bool(trouble(row))


def has_suffered(row: Listener) -> bool:
    """Whether it `suffers`, or was full at any time since the start."""
    return suffers(row) or (row.depth.max or 0) >= row.depth.limit


def accept_story(row: Listener) -> str:
    """`accepted 512, waited p50 24µs, p99 2.95ms`; empty when none was accepted or measured."""
    if not row.accepted:
        return "accepted none" if row.accepted == 0 and row.depth.now else ""
    waits = latency(row.wait_us)
    accepted = f"accepted {numbers.count(row.accepted)}"
    return f"{accepted}, waited p50 {waits['p50']}, p99 {waits['p99']}"


def _blocked(row: Listener) -> bool:
    blocked = row.blocked_connects
    return blocked is not None and bool(blocked.count or blocked.waiting_now != 0)


def _blocked_clients(blocked: Optional[BlockedConnects]) -> str:
    assert blocked is not None
    text = f"BLOCKED {numbers.count(blocked.waiting_now)} now"
    if blocked.count:
        wait = latency(blocked.wait_us)["p99"]
        text += f", {numbers.count(blocked.count)} before: p99 {wait}"
    return text


def connect(row: Connect, seconds: float, units: Optional[numbers.SteadyUnits] = None) -> Cells:
    """Outgoing connects to one destination, as cells."""
    shown = latency(row.latency_us, units, ("connects", row.transport, row.address))
    return {
        "address": visible(f"{row.transport}:{row.address}"),
        "calls": numbers.count(row.calls),
        "calls_per_s": numbers.rate(per_second(row.calls, seconds)),
        "p50": shown["p50"],
        "p99": shown["p99"],
        "errors": ", ".join(filter(None, (errors(connect_errors(row)), _connected_later(row)))),
    }


def _connected_later(row: Connect) -> str:
    """`89 connected after 1.02 s`, of those in the background."""
    later = row.connected_later_us
    if later is None:
        return ""
    return f"{numbers.count(later.count)} connected after {numbers.duration(later.mean)}"


def connect_errors(row: Connect) -> Dict[str, int]:
    """errno → connects that failed with it, in the call or in the background after it."""
    totals = dict(row.errors)
    for error, count in row.failed_in_background.items():
        totals[error] = totals.get(error, 0) + count
    return totals


def connect_failed(row: Connect) -> bool:
    """Whether any failed; one that goes on in the background did not."""
    return any(calls for error, calls in connect_errors(row).items() if error not in _UNDER_WAY)


def failed_asking(row: Upstream) -> str:
    """`201 without an answer, 17 HTTP 503`; empty where none failed, or it is not measured."""
    lost = ended(row.dropped, row.given_up)
    told = [f"{numbers.count(lost)} without an answer"] if lost else []
    if row.no_seat:
        told.append(f"{numbers.count(row.no_seat)} turned away")
    return ", ".join([*told, *http_failed(row.http)])


def queued_answers(row: Upstream) -> str:
    """`222 ms queued for the app`, on average, where that is most of it; empty else."""
    queued_us = row.recv_wait_mean_us or 0.0
    if not queued_us or 2 * queued_us <= (row.latency_us.mean or 0.0):
        return ""
    return f"{numbers.spaced(numbers.duration(queued_us))} queued for the app"


def login_answers(row: Upstream) -> str:
    """`618 to logins`, where that is a tenth of the answers or more; empty else."""
    if not row.logins or 10 * row.logins < row.count:
        return ""
    return f"{numbers.count(row.logins)} to logins"


def http_failed(http: Optional[HttpReplies]) -> List[str]:
    """`17 HTTP 503`, of the statuses with most, and of the others; what is not measured is none."""
    statuses = dict(http.statuses) if http is not None else {}
    others = statuses.pop("other", 0)
    ranked = most_first(statuses)
    others += sum(statuses[status] for status in ranked[STATUSES_SHOWN:])
    told = [f"{numbers.count(statuses[each])} HTTP {each}" for each in ranked[:STATUSES_SHOWN]]
    return [*told, f"{numbers.count(others)} other HTTP 5xx"] if others else told


def by_trouble(rows: Sequence[Connect]) -> List[Connect]:
    """Destinations that fail first, then most calls."""
    return sorted(rows, key=lambda row: (not connect_failed(row), -row.calls, row.address))


def listener_groups(rows: Sequence[Listener]) -> List[List[Listener]]:
    """Open listeners at one address (SO_REUSEPORT) together, in the order of the first of each."""
    groups: Dict[Tuple[object, ...], List[Listener]] = {}
    for row in rows:
        shared: Tuple[object, ...] = (row.transport, row.address, row.netns)
        key = shared if row.transport == "tcp" and row.state != "closed" else (row.inode,)
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def listener_sum(rows: Sequence[Listener], bar_width: int) -> Cells:
    """The line above listeners that share an address: what can be added up."""
    now = [row.depth.now for row in rows if row.depth.now is not None]
    total = sum(now) if now else None
    limit = sum(row.depth.limit for row in rows)
    full = sum(map(is_full, rows))
    return {
        **dict.fromkeys(LISTENERS, ""),
        "socket": socket_label(rows[0].transport, rows[0].socket_type),
        "address": f"{visible(rows[0].address)} ×{len(rows)}",
        "bar": limit_bar(total, limit, bar_width),
        "now": numbers.count(total, 5),
        "limit": numbers.count(limit, 5),
        "state": f"{full} FULL" if full else "",
        "owners": f"{len(rows)} sockets (SO_REUSEPORT)",
    }


MEMBER = "└ "
"""Before each listener of a group, whose address is above it."""


def member_address(row: Listener, comms: Mapping[int, str]) -> str:
    """Who holds it: what tells apart listeners at one address."""
    held = f"socket {row.inode}" if not row.pids else owners(row.pids, comms)
    return MEMBER + held


def is_full(row: Listener) -> bool:
    return row.depth.now is not None and row.depth.now >= row.depth.limit


def backlog(value: Backlog) -> str:
    """`128=somaxconn` where that limit is what one would have to raise, else the number."""
    if value.equals_somaxconn or value.clamped_by is not None:
        return f"{value.effective}=somaxconn"
    return str(value.effective)


def owners(pids: Optional[Sequence[int]], comms: Mapping[int, str]) -> str:
    """`node 4711 +2`; `–` when other users' processes hide the owners."""
    if pids is None:
        return numbers.NOT_MEASURED
    if not pids:
        return "none"
    first = pids[0]
    more = f" +{len(pids) - 1}" if len(pids) > 1 else ""
    return f"{process(first, comms.get(first))}{more}"


def process(pid: int, comm: Optional[str]) -> str:
    return f"{visible(comm)} {pid}" if comm else f"pid {pid}"


def comms_of(targets: Sequence[Target]) -> Dict[int, str]:
    return {target.pid: target.comm for target in targets}


def target(row: Target, bar_width: int) -> Cells:
    """One row of the target table."""
    fds = row.fds
    used = None if fds.open is None or not fds.limit else share_pct(fds.open, fds.limit)
    return {
        **figures(TARGETS, row),
        "pid": str(row.pid),
        "comm": fit(row.comm, 15),
        "state": visible(row.state),
        "via": visible(row.via),
        "threads": numbers.count(row.threads, 7),
        "bar": limit_bar(fds.open, fds.limit, bar_width),
        "fds": numbers.count(fds.open, 6),
        "fds_limit": numbers.count(fds.limit, 8),
        "fds_pct": numbers.percentage(used),
        "full_in": full_in(row.fds),
        "exhausted": exhausted(row.fds),
        "cmdline": _command_line(row),
        "place": place(row),
    }


def place(row: Target) -> str:
    """`nginx.service`, `docker 0123456789ab in docker.service`; empty where nothing says."""
    told = []
    if row.container is not None:
        told.append(f"{row.runtime or 'container'} {row.container[:_CONTAINER_DIGITS]}")
    if row.pod is not None:
        told.append(f"pod {row.pod}")
    if row.unit is not None:
        told.append(f"in {row.unit}" if told else row.unit)
    return visible(" ".join(told))


def hop(row: Hop, seconds: float, comms: Mapping[int, str]) -> Cells:
    """One server of a chain: who, how many requests, its own part of their mean time."""
    several = f" ×{len(row.pids)}" if len(row.pids) > 1 else ""
    # Own requests that overlap each other leave nothing to tell.
    told = row.own_us or (row.own_us if not row.upstream_us else None)
    return {
        "who": process(row.pid, row.comm) + several,
        "asks": ", ".join(process(pid, comms.get(pid)) for pid in row.next),
        "address": visible(row.address or ""),
        "calls": numbers.count(row.count),
        "calls_per_s": numbers.rate(per_second(row.count, seconds)),
        "own": numbers.duration(told),
        "whole": numbers.duration(row.latency_mean_us),
    }


def full_in(fds: Fds) -> str:
    """`42 s`; `·` while they do not grow."""
    if fds.full_in_s is not None:
        return numbers.span(fds.full_in_s)
    return numbers.NOT_MEASURED if fds.growth_per_s is None else NOTHING_HAPPENED


def exhausted(fds: Fds) -> str:
    """`EMFILE 312`; `–` when not measured."""
    if fds.exhausted is None:
        return numbers.NOT_MEASURED
    return errors(fds.exhausted_by_errno or {}) or numbers.count(fds.exhausted)


def connection(row: Connection, bar_width: int) -> Cells:
    """One row of the connection table."""
    queued, most = row.send_queue_bytes, row.send_queue_max_bytes
    return {
        **figures(CONNECTIONS, row),
        "socket": visible(row.transport),
        "local": visible(row.local),
        "peer": peer(row.peer),
        "role": visible(row.role),
        "requests": numbers.count(row.requests),
        "bytes_in": numbers.size(row.bytes_in),
        "bytes_out": numbers.size(row.bytes_out),
        "bar": limit_bar(queued, row.send_buffer_bytes, bar_width, peak=most),
        "queued": numbers.size(queued),
        "most": numbers.size(most),
        "buffer": numbers.size(row.send_buffer_bytes),
        "received": numbers.size(row.recv_queue_bytes),
        "unread_most": numbers.size(row.recv_queue_max_bytes),
        "state": connection_state(row),
    }


def peer(row: Optional[Peer]) -> str:
    """Process, or address where the process is not known."""
    if row is None:
        return numbers.NOT_MEASURED
    if row.pid is None:
        return visible(row.address) if row.address else numbers.NOT_MEASURED
    return process(row.pid, row.comm)


def connection_state(row: Connection) -> str:
    """What holds the sender up, the worst first; empty when nothing does."""
    parts = []
    if row.stalled_us:
        parts.append(f"STALLED {numbers.spaced(numbers.duration(row.stalled_us))}")
    if row.send_blocked is not None and row.send_blocked.count:
        parts.append(f"BLOCKED {numbers.count(row.send_blocked.count)}")
    if row.send_blocked is not None and row.send_blocked.eagain:
        parts.append(f"EAGAIN {numbers.count(row.send_blocked.eagain)}")
    if row.sends_held:
        parts.append(f"NAGLE {numbers.count(row.sends_held)}")
    return " · ".join(parts)


def _command_line(row: Target) -> str:
    shown = numbers.NOT_MEASURED if row.cmdline is None else visible(row.cmdline)
    state = f"stopped by {row.stopped}" if row.stopped else row.state
    return shown if state == "running" else f"[{visible(state)}] {shown}"


def by_busiest(calls: Sequence[Syscall]) -> List[Syscall]:
    """Most calls first; ties in name order, so that equal rows never swap."""
    return sorted(calls, key=lambda call: (-call.calls, syscall_key(call)))


def _quiet(call: Syscall) -> Syscall:
    return Syscall(
        name=call.name,
        transport=call.transport,
        socket_type=call.socket_type,
        abi=call.abi,
        calls=0,
        in_flight=call.in_flight,
        errors={},
        bytes=0,
        wall_us=0.0,
        cpu_us=None if call.cpu_us is None else 0.0,
        latency_us=Latency(count=0),
        slow_us=0.0,
    )
