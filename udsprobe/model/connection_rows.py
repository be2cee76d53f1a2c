"""Connections of a window and the requests the targets made upstream."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from udsprobe.model.counters import grown
from udsprobe.model.histogram import NOTHING, added, latency_us, subtract
from udsprobe.model.report import Connection, Latency, Peer, SendBlocked, Upstream
from udsprobe.sample import (
    CONNECTIONS_KEPT_MAX,
    ConnectionReading,
    PeerReading,
    Sample,
    UpstreamCounts,
)

CONNECTIONS_SHOWN_MAX = 50
Maxima = Tuple[Optional[int], Optional[int]]


def connection_rows(first: Sample, last: Sample) -> Optional[List[Connection]]:
    """The busiest connections of the window; those that block first."""
    if last.connections is None:
        return None
    before = {reading.inode: reading for reading in first.connections or ()}
    # Of one that found no place before, nobody knows what it did before.
    is_full = len(before) >= CONNECTIONS_KEPT_MAX
    known = [each for each in last.connections if each.inode in before or not is_full]
    rows = [
        _connection(reading, before.get(reading.inode), _maxima(reading, first, last))
        for reading in known
    ]
    rows = [row for row in rows if _is_of_interest(row)]
    return sorted(rows, key=_order)[:CONNECTIONS_SHOWN_MAX]


def upstream_rows(first: Sample, last: Sample) -> Optional[List[Upstream]]:
    """Requests by destination, most first; destinations without one are left out."""
    if last.upstream is None:
        return None
    before = _by_destination(first.upstream or ())
    rows = []
    for (transport, address), parts in _by_destination(last.upstream).items():
        earlier = added([part.latency for part in before.get((transport, address), [])])
        latency = subtract(f"upstream {address}", added([p.latency for p in parts]), earlier)
        if latency.count:
            peer = _peer(next((p.peer for p in parts if p.peer is not None), None))
            rows.append(Upstream(transport, address, peer, latency.count, latency_us(latency)))
    return sorted(rows, key=lambda row: (-row.count, row.address))


def _by_destination(
    counts: Tuple[UpstreamCounts, ...],
) -> Dict[Tuple[str, str], List[UpstreamCounts]]:
    grouped: Dict[Tuple[str, str], List[UpstreamCounts]] = {}
    for part in counts:
        grouped.setdefault((part.transport, part.address), []).append(part)
    return grouped


def _connection(
    reading: ConnectionReading, before: Optional[ConnectionReading], maxima: Maxima
) -> Connection:
    def since(name: str) -> int:
        earlier: int = (getattr(before, name) or 0) if before is not None else 0
        now: int = getattr(reading, name)
        return grown(f"connection {reading.inode} {name}", now, earlier)

    count, waited_ns = since("send_blocked"), since("send_blocked_ns")
    return Connection(
        transport=reading.transport,
        local=reading.local,
        peer=_peer(reading.peer, reading.peer_address),
        pid=reading.pid,
        role=reading.role,
        requests=since("turns"),
        bytes_in=since("bytes_in"),
        bytes_out=since("bytes_out"),
        recv_queue_bytes=reading.recv_queue_bytes,
        send_queue_bytes=reading.send_queue_bytes,
        send_buffer_bytes=reading.send_buffer_bytes,
        send_blocked=SendBlocked(
            count=count,
            wait_us=_waits(count, waited_ns, reading.send_blocked_max_ns),
            eagain=since("send_eagain"),
        ),
        recv_queue_max_bytes=maxima[0],
        send_queue_max_bytes=maxima[1],
        recv_buffer_bytes=reading.recv_buffer_bytes,
        recv_buffer_is_fixed=reading.recv_buffer_is_fixed,
        send_buffer_is_fixed=reading.send_buffer_is_fixed,
        stalled_us=None if reading.stalled_ns is None else reading.stalled_ns / 1000,
        sends_held=since("sends_held") if reading.sends_held is not None else None,
    )


def _maxima(reading: ConnectionReading, first: Sample, last: Sample) -> Maxima:
    """Of both queues. They are kept for one interval and for the whole observation."""
    if last.sequence - first.sequence == 1:
        return reading.recv_queue_recent_max_bytes, reading.send_queue_recent_max_bytes
    if first.sequence == 0:
        return reading.recv_queue_max_bytes, reading.send_queue_max_bytes
    return None, None


def _waits(count: int, waited_ns: int, max_ns: int) -> Latency:
    # No histogram is kept for each connection: mean and maximum are all there is.
    if not count:
        return latency_us(NOTHING)
    return Latency(count, mean=waited_ns / count / 1000, max=max_ns / 1000)


def _peer(reading: Optional[PeerReading], address: Optional[str] = None) -> Optional[Peer]:
    if reading is None:
        return Peer(None, None, address) if address else None
    return Peer(reading.pid, reading.comm, address or None)


def _is_of_interest(row: Connection) -> bool:
    queued = (row.recv_queue_bytes or 0) + (row.send_queue_bytes or 0)
    return bool((row.bytes_in or 0) + (row.bytes_out or 0) + queued)


def _order(row: Connection) -> Tuple[int, int, int]:
    blocked = row.send_blocked
    stuck = blocked.count + blocked.eagain if blocked is not None else 0
    return (-stuck, -(row.requests or 0), -((row.bytes_in or 0) + (row.bytes_out or 0)))
