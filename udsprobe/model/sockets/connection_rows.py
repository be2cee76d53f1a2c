"""Connections of a window and the requests the targets made upstream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

from udsprobe.model.counters import counted_share, grown, mean_us
from udsprobe.model.growth import by_name, growth, together
from udsprobe.model.histogram import NOTHING, added, latency_us, subtract
from udsprobe.model.report import Connection, Latency, Peer, SendBlocked, Upstream
from udsprobe.model.requests.http_replies import http_replies
from udsprobe.model.requests.reply_pieces import in_pieces, paused_us
from udsprobe.model.requests.unanswered import ended, unanswered
from udsprobe.sample import (
    CONNECTIONS_KEPT_MAX,
    ConnectionReading,
    PeerReading,
    Sample,
    UpstreamCounts,
)

CONNECTIONS_SHOWN_MAX = 50
UPSTREAM_ROLE = "upstream"
# Of requests: connections that carry ten and fewer are hardly kept.
KEPT_OPENED_SHARE_MAX = 0.1
# A connection in the last sample, and in the first one.
_Pair = Tuple[ConnectionReading, Optional[ConnectionReading]]


def connection_rows(first: Sample, last: Sample) -> Optional[List[Connection]]:
    """The busiest connections of the window; those that block first."""
    if last.connections is None:
        return None
    before = {reading.inode: reading for reading in first.connections or ()}
    busy_before = _busy_peers(first)
    # Of one that found no place before, nobody knows what it did before.
    is_full = len(before) >= CONNECTIONS_KEPT_MAX
    known = [each for each in last.connections if each.inode in before or not is_full]
    pairs = [(each, before.get(each.inode)) for each in known]
    # Rows are made of those alone that are told.
    told = sorted(filter(_is_of_interest, pairs), key=_order)
    return [
        _connection(
            reading,
            earlier,
            **_maxima(reading, first, last),
            stopped_us=_stopped_us(reading, earlier, first, last),
            reader_busy_us=_reader_busy_us(reading, busy_before, first),
            reader_seen_us=_reader_seen_us(reading, first, last),
            window_full_us=_window_full_us(reading, earlier, first, last),
            asking_us=_asking_us(reading, last),
        )
        for reading, earlier in told[:CONNECTIONS_SHOWN_MAX]
    ]


def upstream_rows(first: Sample, last: Sample) -> Optional[List[Upstream]]:
    """Requests by destination, most first; destinations without one are left out."""
    if last.upstream is None:
        return None
    before = _by_destination(first.upstream or ())
    rows = []
    for (transport, address), parts in _by_destination(last.upstream).items():
        earlier = added([part.latency for part in before.get((transport, address), [])])
        latency = subtract(f"upstream {address}", added([p.latency for p in parts]), earlier)
        peer = _peer(next((p.peer for p in parts if p.peer is not None), None))
        row = Upstream(transport, address, peer, latency.count, latency_us(latency))
        row = _with_unanswered(row, parts, before.get((transport, address), []))
        row = _with_replies(row, parts, before.get((transport, address), []))
        if not row.count + ended(row.dropped, row.given_up) + (row.no_seat or 0):
            continue
        opened = sum(p.opened for p in parts)
        opened -= sum(p.opened for p in before.get((transport, address), []))
        rows.append(_with_pool(row, opened, first, last))
    return sorted(rows, key=lambda row: (-row.count, row.address))


def _with_unanswered(
    row: Upstream, parts: List[UpstreamCounts], before: List[UpstreamCounts]
) -> Upstream:
    name = f"upstream {row.address}"
    return replace(
        row,
        dropped=unanswered(
            name, together(p.dropped for p in parts), together(p.dropped for p in before)
        ),
        dropped_kept=_grown_together(f"{name} kept", "dropped_kept", parts, before),
        given_up=unanswered(
            name, together(p.given_up for p in parts), together(p.given_up for p in before)
        ),
    )


def _with_replies(
    row: Upstream, parts: List[UpstreamCounts], before: List[UpstreamCounts]
) -> Upstream:
    name = f"upstream {row.address}"
    logins = _grown_together(f"{name} logins", "logins", parts, before)
    return replace(
        row,
        logins=logins,
        login_mean_us=mean_us(
            _grown_together(f"{name} login", "login_ns", parts, before), logins or 0
        ),
        http=http_replies(name, together(p.http for p in parts), together(p.http for p in before)),
        in_pieces=in_pieces(
            name, together(p.in_pieces for p in parts), together(p.in_pieces for p in before)
        ),
        no_seat=_grown_together(f"{name} no seat", "no_seat", parts, before),
        no_seat_by=next((p.no_seat_by for p in parts if p.no_seat_by is not None), None),
        recv_wait_mean_us=mean_us(
            _grown_together(f"{name} recv_wait", "recv_wait_ns", parts, before), row.count
        ),
    )


def _grown_together(
    name: str, field: str, parts: List[UpstreamCounts], before: List[UpstreamCounts]
) -> Optional[int]:
    now = [getattr(each, field) for each in parts if getattr(each, field) is not None]
    if not now:
        return None
    return grown(name, sum(now), sum(getattr(each, field) or 0 for each in before))


def _with_pool(row: Upstream, opened: int, first: Sample, last: Sample) -> Upstream:
    """Of connections that are opened for each request none is ever waited for."""
    kept = last.connections or ()
    if len(kept) >= CONNECTIONS_KEPT_MAX or opened > KEPT_OPENED_SHARE_MAX * row.count:
        return row
    place = (UPSTREAM_ROLE, row.transport, row.address)
    pool = [c for c in kept if (c.role, c.transport, c.peer_address) == place]
    each_us = (row.latency_us.mean or 0.0) - (row.recv_wait_mean_us or 0.0)
    window_us = (last.monotonic_ns - first.monotonic_ns) / 1000
    # Of requests that were sent before the observation began the answers are not counted.
    is_first = first.sequence == 0
    there_us = len(pool) * window_us * counted_share(window_us, each_us, is_first)
    if not there_us:
        return row
    # An answer that has begun still has its connection.
    waited_us = each_us * row.count + paused_us(row)
    busy_pct = min(100.0, 100 * waited_us / there_us)
    multiplexed = any(c.is_multiplexed for c in pool)
    return replace(row, connections=len(pool), busy_pct=busy_pct, multiplexed=multiplexed)


def _by_destination(
    counts: Tuple[UpstreamCounts, ...],
) -> Dict[Tuple[str, str], List[UpstreamCounts]]:
    grouped: Dict[Tuple[str, str], List[UpstreamCounts]] = {}
    for part in counts:
        grouped.setdefault((part.transport, part.address), []).append(part)
    return grouped


def _connection(
    reading: ConnectionReading, before: Optional[ConnectionReading], **of_window: Any
) -> Connection:
    grew = growth(f"connection {reading.inode}", reading, before)
    return Connection(
        **{**by_name(grew, Connection), **of_window},
        peer=_peer(reading.peer, reading.peer_address),
        requests=grew.turns,
        send_blocked=_send_blocked(grew),
        stalled_us=None if reading.stalled_ns is None else reading.stalled_ns / 1000,
        held_us=None if grew.held_ns is None else grew.held_ns / 1000,
    )


def _send_blocked(grew: ConnectionReading) -> SendBlocked:
    """Where no system call is seen, refusals alone are known."""
    waits = None
    if grew.send_blocked is not None:
        waited_ns, max_ns = grew.send_blocked_ns or 0, grew.send_blocked_max_ns or 0
        waits = _waits(grew.send_blocked, waited_ns, max_ns)
    return SendBlocked(count=grew.send_blocked, wait_us=waits, eagain=grew.send_eagain)


def _stopped_us(
    reading: ConnectionReading, before: Optional[ConnectionReading], first: Sample, last: Sample
) -> Optional[float]:
    """Of the window alone: a stop can have begun before it, and last on."""
    if reading.stopped_ns is None:
        return None
    stopped_ns = reading.stopped_ns
    if before is not None:
        stopped_ns -= before.stopped_ns or 0
        if before.stopped_since_ns and reading.stopped_since_ns != before.stopped_since_ns:
            stopped_ns -= first.monotonic_ns - before.stopped_since_ns
    # Two threads may send on one connection: what one slept so far is then the other's.
    stopped_ns = max(0, stopped_ns)
    # With room again, nothing more was to be sent.
    if reading.stopped_since_ns and 4 * reading.send_queue_bytes > reading.send_buffer_bytes:
        began_ns = max(reading.stopped_since_ns, first.monotonic_ns)
        stopped_ns += max(0, last.monotonic_ns - began_ns)
    return min(stopped_ns, last.monotonic_ns - first.monotonic_ns) / 1000


def _asking_us(reading: ConnectionReading, last: Sample) -> Optional[float]:
    since_ns = reading.asking_since_ns
    return max(0, last.monotonic_ns - since_ns) / 1000 if since_ns else None


def _window_full_us(
    reading: ConnectionReading, before: Optional[ConnectionReading], first: Sample, last: Sample
) -> Optional[float]:
    """In the window. Ticks can add up to a little more."""
    if reading.window_full_ns is None:
        return None
    earlier = (before.window_full_ns or 0) if before is not None else 0
    full_ns = grown(f"connection {reading.inode} window_full", reading.window_full_ns, earlier)
    return min(full_ns, last.monotonic_ns - first.monotonic_ns) / 1000


def _busy_peers(sample: Sample) -> Dict[Tuple[int, int], int]:
    """Process id of a peer and since when it is looked at → what it was busy with since."""
    peers = [each.peer for each in sample.connections or ()]
    return {
        (p.pid, p.looked_ns): p.busy_ns for p in peers if p is not None and p.busy_ns is not None
    }


def _reader_busy_us(
    reading: ConnectionReading, before: Dict[Tuple[int, int], int], first: Sample
) -> Optional[float]:
    """At the most: before it was looked at, it may have been busy all the time."""
    peer = reading.peer
    if peer is None or peer.busy_ns is None:
        return None
    known_ns = before.get((peer.pid, peer.looked_ns))
    if known_ns is None:
        unseen_ns = max(0, peer.looked_ns - first.monotonic_ns)
        return (peer.busy_ns + unseen_ns) / 1000
    return max(0, peer.busy_ns - known_ns) / 1000


def _reader_seen_us(reading: ConnectionReading, first: Sample, last: Sample) -> Optional[float]:
    """For how long of the window it was looked at."""
    peer = reading.peer
    if peer is None or peer.busy_ns is None:
        return None
    return max(0, last.monotonic_ns - max(first.monotonic_ns, peer.looked_ns)) / 1000


def _maxima(reading: ConnectionReading, first: Sample, last: Sample) -> Dict[str, Any]:
    """Of both queues. They are kept for one interval and for the whole observation."""
    received = sent = None
    if last.sequence - first.sequence == 1:
        received, sent = reading.recv_queue_recent_max_bytes, reading.send_queue_recent_max_bytes
    elif first.sequence == 0:
        received, sent = reading.recv_queue_max_bytes, reading.send_queue_max_bytes
    return {"recv_queue_max_bytes": received, "send_queue_max_bytes": sent}


def _waits(count: int, waited_ns: int, max_ns: int) -> Latency:
    # No histogram is kept for each connection: mean and maximum are all there is.
    if not count:
        return latency_us(NOTHING)
    return Latency(count, mean=waited_ns / count / 1000, max=max_ns / 1000)


def _peer(reading: Optional[PeerReading], address: Optional[str] = None) -> Optional[Peer]:
    if reading is None:
        return Peer(None, None, address) if address else None
    return Peer(reading.pid, reading.comm, address or None)


def _is_of_interest(pair: _Pair) -> bool:
    reading, before = pair
    queued = (reading.recv_queue_bytes or 0) + (reading.send_queue_bytes or 0)
    is_told = queued or reading.asking_since_ns
    return bool(is_told or (reading is not before and _grew(pair, "bytes_in", "bytes_out")))


def _order(pair: _Pair) -> Tuple[int, int, int]:
    stuck = _grew(pair, "send_blocked", "send_eagain")
    return (-stuck, -_grew(pair, "turns"), -_grew(pair, "bytes_in", "bytes_out"))


def _grew(pair: _Pair, *counters: str) -> int:
    reading, before = pair
    values = [(getattr(reading, n) or 0, getattr(before, n, None) or 0) for n in counters]
    try:
        grew = [now - earlier for now, earlier in values]
        if min(grew) >= 0:
            return sum(grew)
    except TypeError:  # of a forged recording
        pass
    # What they are called is told of none that is sound: each kept connection is asked.
    names = (f"connection {reading.inode} {name}" for name in counters)
    return sum(grown(name, *value) for name, value in zip(names, values))
