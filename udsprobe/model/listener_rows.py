"""Listeners and outgoing connects of a window, from its first and last sample."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Tuple, TypeVar

from udsprobe.model.counters import grown, grown_by_key, grown_if_measured
from udsprobe.model.histogram import NOTHING, added, latency_us, subtract
from udsprobe.model.report import Backlog, BlockedConnects, Connect, Depth, Latency, Listener
from udsprobe.sample import (
    ConnectCounts,
    LatencyCounts,
    ListenerReading,
    QueueCounts,
    Sample,
)

Key = TypeVar("Key", int, str)

_NO_EVENTS = QueueCounts(
    since_ns=0,
    established=0,
    accepted=0,
    accepted_early=0,
    accepted_by={},
    accepted_by_thread={},
    depth={},
    depth_max=0,
    depth_max_recent=None,
    wait=NOTHING,
    blocked=NOTHING,
    blocked_now=0,
    refused={},
    drops=0,
    syn_queue=None,
    syn_young=None,
)


def listener_rows(first: Sample, last: Sample) -> Optional[List[Listener]]:
    """Every listener known at the end of the window, in the order of the sample.

    One that was closed before the window began is left out, unless somebody
    still tried to connect to its address.
    """
    if last.listeners is None:
        return None
    before = {reading.inode: reading for reading in first.listeners or ()}
    consecutive = last.sequence - first.sequence == 1
    return [
        listener_row(reading, before.get(reading.inode), consecutive=consecutive)
        for reading in last.listeners
        if _has_news(reading, before.get(reading.inode))
    ]


def listener_row(
    reading: ListenerReading, before: Optional[ListenerReading] = None, *, consecutive: bool = False
) -> Listener:
    """One listener; without a probe at its queue, the events are None.

    Args:
        before: the same listener at the beginning of the window; None when it
            was not there.
        consecutive: the window is one interval, whose high-water mark is known.
    """
    row = Listener(
        transport=reading.transport,
        socket_type=reading.socket_type,
        address=reading.address,
        netns=reading.netns,
        inode=reading.inode,
        state="listening" if reading.is_open else "closed",
        pids=None if reading.pids is None else list(reading.pids),
        backlog=_backlog(reading),
        depth=Depth(
            now=reading.depth_now, max=None, limit=reading.backlog_effective + 1, histogram=None
        ),
        host_path=reading.host_path,
    )
    if reading.queue is None:
        return row
    earlier = before.queue if before is not None and before.queue is not None else _NO_EVENTS
    return _with_events(row, reading.queue, earlier, high_water(reading, before, consecutive))


def _has_news(reading: ListenerReading, before: Optional[ListenerReading]) -> bool:
    if reading.is_open or before is None or before.is_open:
        return True
    if reading.queue is None or before.queue is None:
        return False
    return reading.queue.refused != before.queue.refused


def connect_rows(first: Sample, last: Sample) -> Optional[List[Connect]]:
    """The targets' connect() calls of the window by destination, most calls first."""
    if first.connects is None or last.connects is None:
        return None
    before = {_connect_key(counts): counts.latency for counts in first.connects}
    grouped: Dict[Tuple[str, str], List[ConnectCounts]] = {}
    for counts in last.connects:
        latency = subtract(
            f"connects to {counts.address}",
            counts.latency,
            before.get(_connect_key(counts), NOTHING),
        )
        if latency.count:
            grown_counts = replace(counts, latency=latency)
            grouped.setdefault((counts.transport, counts.address), []).append(grown_counts)
    rows = [_connect(results) for results in grouped.values()]
    return sorted(rows, key=lambda row: (-row.calls, row.address))


def _connect_key(counts: ConnectCounts) -> Tuple[str, str, Optional[str], bool]:
    return (counts.transport, counts.address, counts.error, counts.in_background)


def _connect(results: List[ConnectCounts]) -> Connect:
    calls = [counts for counts in results if not counts.in_background]
    later = [counts for counts in results if counts.in_background]
    total = added([counts.latency for counts in calls])
    return Connect(
        transport=results[0].transport,
        address=results[0].address,
        calls=total.count,
        errors=_by_error(calls),
        failed_in_background=_by_error(later),
        latency_us=latency_us(total),
    )


def _by_error(results: List[ConnectCounts]) -> Dict[str, int]:
    return {c.error: c.latency.count for c in results if c.error is not None}


def _with_events(
    row: Listener, queue: QueueCounts, earlier: QueueCounts, most: Optional[int]
) -> Listener:
    name = f"listener {row.address}"
    by_process = _by_key(name, queue.accepted_by, earlier.accepted_by)
    by_thread = _by_key(name, queue.accepted_by_thread, earlier.accepted_by_thread)
    owners = dict.fromkeys(row.pids or (), 0)
    return replace(
        row,
        depth=replace(
            row.depth,
            max=most,
            histogram=_as_text(grown_by_key(name, queue.depth, earlier.depth)),
        ),
        established=grown(name, queue.established, earlier.established),
        accepted=grown(name, queue.accepted, earlier.accepted),
        accepted_early=grown(name, queue.accepted_early, earlier.accepted_early),
        accepted_by=None if by_process is None else _as_text({**owners, **by_process}),
        accepted_by_thread=None if by_thread is None else _as_text(by_thread),
        wait_us=_latency(name, queue.wait, earlier.wait),
        refused=_by_key(name, queue.refused, earlier.refused),
        blocked_connects=_blocked(name, queue, earlier),
        drops=grown_if_measured(name, queue.drops, earlier.drops),
        syn_queue=_syn_queue(queue),
    )


def _by_key(
    name: str, now: Optional[Mapping[Key, int]], earlier: Optional[Mapping[Key, int]]
) -> Optional[Dict[Key, int]]:
    return None if now is None else grown_by_key(name, now, earlier or {})


def _latency(
    name: str, now: Optional[LatencyCounts], earlier: Optional[LatencyCounts]
) -> Optional[Latency]:
    return None if now is None else latency_us(subtract(name, now, earlier or NOTHING))


def _blocked(name: str, queue: QueueCounts, earlier: QueueCounts) -> Optional[BlockedConnects]:
    """Clients that wait now are known even where nobody tells of those that waited."""
    grew = _latency(name, queue.blocked, earlier.blocked)
    if grew is None and queue.blocked_now is None:
        return None
    return BlockedConnects(None if grew is None else grew.count, grew, queue.blocked_now)


def high_water(
    reading: ListenerReading, before: Optional[ListenerReading], consecutive: bool
) -> Optional[int]:
    """Most connections in its accept queue in a window; None when no probe tells.

    Args:
        before, consecutive: as of `listener_row`.
    """
    queue = reading.queue
    if queue is None:
        return None
    seen = [reading.depth_now or 0]
    if before is not None and before.depth_now is not None:
        seen.append(before.depth_now)
    if before is None or before.queue is None or queue.depth_max > before.queue.depth_max:
        return max(queue.depth_max, *seen)
    # Slots tell the depth, or a lower bound at most 1/16 too low; an event that
    # falls between a sample's parts is in them and not in its interval's mark.
    slots = grown_by_key("depth", queue.depth, before.queue.depth)
    recent = queue.depth_max_recent if consecutive else None
    return max(recent or 0, *seen, *slots)


def _syn_queue(queue: QueueCounts) -> Optional[Dict[str, int]]:
    if queue.syn_queue is None or queue.syn_young is None:
        return None
    return {"now": queue.syn_queue, "young": queue.syn_young}


def _as_text(counts: Mapping[int, int]) -> Dict[str, int]:
    return {str(key): count for key, count in sorted(counts.items())}


def _backlog(reading: ListenerReading) -> Backlog:
    at_somaxconn = (
        None if reading.somaxconn is None else reading.backlog_effective == reading.somaxconn
    )
    clamped = at_somaxconn and _asks_for_more(reading)
    return Backlog(
        requested=reading.backlog_requested,
        effective=reading.backlog_effective,
        clamped_by="net.core.somaxconn" if clamped else None,
        equals_somaxconn=at_somaxconn,
    )


def _asks_for_more(reading: ListenerReading) -> bool:
    # The kernel compares listen()'s argument as unsigned: -1 asks for the most.
    requested = reading.backlog_requested
    return requested is not None and (requested < 0 or requested > reading.backlog_effective)
