"""Waits that go on at the end of a window: since when, for what, what is known of the other end.

Who will end them nobody knows yet, and nothing here says so.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone
from typing import Dict, List, NamedTuple, Optional, Tuple

from udsprobe.model.report import Peer, WaitNow, Waker
from udsprobe.sample import ConnectionReading, PeerReading, Sample, ThreadActivities, WaitCounts

WAITS_NOW_SHOWN_MAX = 50
# Shorter ones are soon among those that ended: an interval lasts a second.
LASTED_NS_MIN = 1_000_000_000
# A thread without work sleeps so.
_IDLE = frozenset(("poll", "accept", "sleep"))
_ABOUT_NO_SOCKET = frozenset(
    ("poll", "lock", "file_lock", "disk", "child", "sleep", "pipe", "other")
)
# In which a thread waits for its clients.
_FOR_CLIENTS = ("blocked_poll", "blocked_recv")
_NS_PER_US, _NS_PER_S = 1000, 1_000_000_000

_Futex = Tuple[int, int]  # pid, address


class WaitsNow(NamedTuple):
    """`rows`: of processes that owe replies first, then the longest; `total` is how many."""

    rows: List[WaitNow]
    total: int


class _Connections:
    """Which connection a thread waits for."""

    def __init__(self, sample: Sample) -> None:
        kept = sample.connections or ()
        self._by_inode = {each.inode: each for each in kept}
        pids = Counter(each.pid for each in kept)
        self._threads = Counter(each.pid for each in sample.threads or ())
        # Where some are not listed, one that is listed need not be the only one.
        complete = sample.connections_open is not None and sample.connections_open <= len(kept)
        served = Counter(each.pid for each in kept if each.role == "served")
        self._clients = served if complete else None
        self._only = {each.pid: each for each in kept if complete and pids[each.pid] == 1}

    def clients(self, pid: int) -> Optional[int]:
        """Connections that a process serves; None where not all are listed."""
        return None if self._clients is None else self._clients[pid]

    def of(self, thread: ThreadActivities) -> Optional[ConnectionReading]:
        """That of its call; of no socket, the only one of a process of one thread."""
        if thread.inode and thread.kind != "poll":
            return self._by_inode.get(thread.inode)
        return self._only.get(thread.pid) if self._is_alone(thread) else None

    def _is_alone(self, thread: ThreadActivities) -> bool:
        return thread.kind in _ABOUT_NO_SOCKET and self._threads[thread.pid] == 1


def waits_now(last: Sample) -> Optional[WaitsNow]:
    """The threads that sleep at this moment, for a second or longer; None when not measured."""
    asleep = [each for each in last.threads or () if each.asleep is not None]
    told = [each for each in asleep if each.kind is not None]
    if last.waits is None or (asleep and not told):
        return None
    owed = _owed(last)
    wakers = _last_wakers(last.waits)
    connections = _Connections(last)
    rows = [
        _row(each, last, owed, wakers.get((each.pid, each.object)), connections)
        for each in told
        if each.slept_ns(last.monotonic_ns) >= LASTED_NS_MIN
    ]
    return WaitsNow(sorted(rows, key=_order)[:WAITS_NOW_SHOWN_MAX], len(rows))


def _order(row: WaitNow) -> Tuple[bool, bool, float, int, int]:
    return not row.replies_owed, row.kind in _IDLE, -row.lasted_us, row.pid, row.tid


def _owed(sample: Sample) -> Optional[Dict[int, int]]:
    if sample.served_by is None:
        return None
    return {each.pid: each.in_progress.count for each in sample.served_by}


def _last_wakers(waits: Tuple[WaitCounts, ...]) -> Dict[_Futex, WaitCounts]:
    """Of each futex: the row whose author ended the last wait for it."""
    found: Dict[_Futex, WaitCounts] = {}
    for row in waits:
        if not row.object or row.author != "thread":
            continue
        known = found.get((row.pid, row.object))
        if known is None or known.last_ns < row.last_ns:
            found[row.pid, row.object] = row
    return found


def _row(
    thread: ThreadActivities,
    sample: Sample,
    owed: Optional[Dict[int, int]],
    waker: Optional[WaitCounts],
    connections: _Connections,
) -> WaitNow:
    connection = connections.of(thread)
    lasted_ns = thread.slept_ns(sample.monotonic_ns)
    since = datetime.fromtimestamp(sample.unix_s - lasted_ns / _NS_PER_S, tz=timezone.utc)
    return WaitNow(
        pid=thread.pid,
        tid=thread.tid,
        comm=thread.comm,
        kind=thread.kind or "",
        call=thread.call,
        since=since.isoformat(timespec="milliseconds"),
        lasted_us=lasted_ns / _NS_PER_US,
        replies_owed=None if owed is None else owed.get(thread.pid, 0),
        lock=f"{thread.object:#x}" if thread.object else None,
        last_woken_by=None if waker is None else _waker(waker),
        connection=None if connection is None else connection.role,
        peer=None if connection is None else _peer(connection),
        polls_clients=thread.polls_clients,
        held_by=None if thread.lock_holder is None else _process(thread.lock_holder),
        is_serving=_is_serving(thread, sample.monotonic_ns),
        clients=connections.clients(thread.pid),
    )


def _is_serving(thread: ThreadActivities, now_ns: int) -> bool:
    spent_ns = thread.until(now_ns)
    waited_ns = sum(spent_ns.get(name, 0) for name in _FOR_CLIENTS)
    return spent_ns.get("sys_socket", 0) > 0 and waited_ns > 0


def _process(reading: PeerReading) -> Peer:
    return Peer(reading.pid, reading.comm)


def _waker(row: WaitCounts) -> Waker:
    return Waker(pid=row.author_pid, tid=row.author_tid, comm=row.author_comm)


def _peer(connection: ConnectionReading) -> Optional[Peer]:
    peer, address = connection.peer, connection.peer_address or None
    if peer is None:
        return None if address is None else Peer(None, None, address)
    return Peer(peer.pid, peer.comm, address)
