"""Listeners and outgoing connects of a window, from its first and last sample."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

from udsprobe.model.counters import grown_by_key
from udsprobe.model.growth import by_name, growth
from udsprobe.model.histogram import NOTHING, added, latency_us, subtract
from udsprobe.model.report import Backlog, BlockedConnects, Connect, Depth, Listener
from udsprobe.sample import (
    ConnectCounts,
    ListenerReading,
    QueueCounts,
    Sample,
)

# Transport, address, errno name, in the background.
_Result = Tuple[str, str, Optional[str], bool]


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
        **by_name(reading, Listener),
        state="listening" if reading.is_open else "closed",
        pids=None if reading.pids is None else list(reading.pids),
        backlog=_backlog(reading),
        depth=Depth(
            now=reading.depth_now, max=None, limit=reading.backlog_effective + 1, histogram=None
        ),
    )
    if reading.queue is None:
        return row
    earlier = None if before is None else before.queue
    grew = growth(f"listener {row.address}", reading.queue, earlier)
    return _with_events(row, grew, high_water(reading, before, consecutive))


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
    before = _by_result(first.connects)
    grouped: Dict[Tuple[str, str], List[ConnectCounts]] = {}
    for key, counts in _by_result(last.connects).items():
        earlier = before[key].latency if key in before else NOTHING
        latency = subtract(f"connects to {counts.address}", counts.latency, earlier)
        if latency.count:
            grown_counts = replace(counts, latency=latency)
            grouped.setdefault((counts.transport, counts.address), []).append(grown_counts)
    rows = [_connect(results) for results in grouped.values()]
    return sorted(rows, key=lambda row: (-row.calls, row.address))


def _by_result(connects: Iterable[ConnectCounts]) -> Dict[_Result, ConnectCounts]:
    """Sockets of several types that connect to one path are counted apart, and are one here."""
    found: Dict[_Result, ConnectCounts] = {}
    for counts in connects:
        key = _connect_key(counts)
        if key in found:
            both = added([found[key].latency, counts.latency])
            found[key] = replace(counts, latency=both)
        else:
            found[key] = counts
    return found


def _connect_key(counts: ConnectCounts) -> _Result:
    return (counts.transport, counts.address, counts.error, counts.in_background)


def _connect(results: List[ConnectCounts]) -> Connect:
    calls = [counts for counts in results if not counts.in_background]
    later = [counts for counts in results if counts.in_background]
    total = added([counts.latency for counts in calls])
    connected = added([counts.latency for counts in later if counts.error is None])
    return Connect(
        transport=results[0].transport,
        address=results[0].address,
        calls=total.count,
        errors=_by_error(calls),
        failed_in_background=_by_error(later),
        latency_us=latency_us(total),
        connected_later_us=latency_us(connected) if connected.count else None,
    )


def _by_error(results: List[ConnectCounts]) -> Dict[str, int]:
    return {c.error: c.latency.count for c in results if c.error is not None}


def _with_events(row: Listener, grew: QueueCounts, most: Optional[int]) -> Listener:
    by_process, by_thread = grew.accepted_by, grew.accepted_by_thread
    owners = dict.fromkeys(row.pids or (), 0)
    return replace(
        row,
        **by_name(grew, Listener),
        depth=replace(row.depth, max=most, histogram=_as_text(grew.depth)),
        accepted_by=None if by_process is None else _as_text({**owners, **by_process}),
        accepted_by_thread=None if by_thread is None else _as_text(by_thread),
        wait_us=None if grew.wait is None else latency_us(grew.wait),
        refused=None if grew.refused is None else dict(grew.refused),
        blocked_connects=_blocked(grew),
        syn_queue=_syn_queue(grew),
    )


def _blocked(grew: QueueCounts) -> Optional[BlockedConnects]:
    """Clients that wait now are known even where nobody tells of those that waited."""
    waits = None if grew.blocked is None else latency_us(grew.blocked)
    if waits is None and grew.blocked_now is None:
        return None
    return BlockedConnects(None if waits is None else waits.count, waits, grew.blocked_now)


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
