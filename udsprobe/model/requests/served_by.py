"""Served requests of a window by process, the requests each makes, and what waits now."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional

from udsprobe.model.counters import grown, grown_if_measured, mean_us, ratio
from udsprobe.model.growth import growth
from udsprobe.model.histogram import latency_us, subtract
from udsprobe.model.report import (
    GivenUp,
    Latency,
    OwnRequests,
    Peer,
    ServedBy,
    StageMeans,
    Waiting,
)
from udsprobe.model.requests.http_replies import http_replies
from udsprobe.model.requests.reply_pieces import in_pieces
from udsprobe.model.requests.served_requests import (
    app_growth_ns,
    app_parts_ns,
    handed_over_ns,
    rest_of_requests_ns,
    shares_pct,
    with_rest_of_requests,
)
from udsprobe.model.requests.unanswered import ended, unanswered
from udsprobe.sample import (
    GivenUpCounts,
    LatencyCounts,
    OwnRequestCounts,
    Sample,
    ServerReading,
)
from udsprobe.sample import Waiting as WaitingNow

_NS_PER_S = 1_000_000_000
_NS_PER_US = 1000


def served_by(first: Sample, last: Sample) -> Optional[List[ServedBy]]:
    """The processes that answered or made a request in the window, or have one waiting.

    The busiest first. None when not measured.
    """
    if last.served_by is None:
        return None
    before = {reading.pid: reading for reading in first.served_by or ()}
    rows = [
        _row(reading, before.get(reading.pid), first.monotonic_ns, last.monotonic_ns)
        for reading in last.served_by
    ]
    return sorted(filter(_is_of_interest, rows), key=lambda row: (-row.count, row.pid))


def _row(
    reading: ServerReading, before: Optional[ServerReading], first_ns: int, now_ns: int
) -> ServedBy:
    def since(name: str) -> int:
        earlier: int = getattr(before, name) if before is not None else 0
        now: int = getattr(reading, name)
        return grown(f"process {reading.pid} {name}", now, earlier)

    count = since("count")
    return ServedBy(
        pid=reading.pid,
        comm=reading.comm,
        count=count,
        rate_per_s=ratio(count, (now_ns - first_ns) / _NS_PER_S),
        latency_us=_latency(reading, before, count, since("total_ns")),
        stages_mean_us=_stages(reading, before, count, since("accept_waits")),
        app_time_pct=_app_time_pct(reading, before, since("upstream_wait_ns")),
        handed_over=_measured("handed_over", reading, before),
        pipelined=_measured("pipelined", reading, before),
        upstream=_upstream(reading, before),
        in_progress=_in_progress(reading, now_ns),
        unread=_waiting(reading.unread, now_ns),
        asking=_waiting(reading.asking, now_ns),
        unanswered=_waiting(reading.in_progress, now_ns),
        multiplexed=_measured("multiplexed", reading, before),
        tls_handshakes=_measured("tls_handshakes", reading, before),
        at_once=_at_once(reading, before, count),
        given_up=_given_up(reading, before),
        dropped=unanswered(
            f"process {reading.pid}", reading.dropped, before.dropped if before else None
        ),
        abandoned=_waiting_if_measured(reading.abandoned, now_ns),
        asked_before=_waiting_if_measured(reading.asked_before, now_ns),
        http=http_replies(f"process {reading.pid}", reading.http, before.http if before else None),
        in_pieces=in_pieces(
            f"process {reading.pid}", reading.in_pieces, before.in_pieces if before else None
        ),
        handed_over_us=_handed_over_us(reading, before),
    )


def _handed_over_us(reading: ServerReading, before: Optional[ServerReading]) -> Optional[float]:
    spent_ns = handed_over_ns(reading, before)
    return None if spent_ns is None else spent_ns / _NS_PER_US


def _given_up(reading: ServerReading, before: Optional[ServerReading]) -> Optional[GivenUp]:
    now = reading.given_up
    if now is None:
        return None
    earlier = (before.given_up if before is not None else None) or GivenUpCounts(0, 0, 0)
    who = f"process {reading.pid} given up"
    count = grown(who, now.count, earlier.count)
    kept_open = max(0, _abandoned(reading) - _abandoned(before))
    if not count:
        return GivenUp(0, kept_open, None, None)
    waited_ns = grown(f"{who} ns", now.total_ns, earlier.total_ns)
    upstream_ns = grown(f"{who} upstream ns", now.upstream_ns, earlier.upstream_ns)
    return GivenUp(
        count, kept_open, waited_ns / count / _NS_PER_US, upstream_ns / count / _NS_PER_US
    )


def _abandoned(reading: Optional[ServerReading]) -> int:
    return reading.abandoned.count if reading is not None and reading.abandoned is not None else 0


def _at_once(
    reading: ServerReading, before: Optional[ServerReading], count: int
) -> Optional[float]:
    together = _measured("at_once", reading, before)
    return None if together is None else ratio(together, count)


def _measured(name: str, reading: ServerReading, before: Optional[ServerReading]) -> Optional[int]:
    earlier = getattr(before, name) if before is not None else 0
    return grown_if_measured(f"process {reading.pid} {name}", getattr(reading, name), earlier)


def latency_by_process(first: Sample, last: Sample) -> Dict[int, LatencyCounts]:
    """pid → the latencies of what it served in the window, where its histogram is known."""
    before = {reading.pid: reading for reading in first.served_by or ()}
    found = {each.pid: _histogram(each, before.get(each.pid)) for each in last.served_by or ()}
    return {pid: grown for pid, grown in found.items() if grown is not None}


def _histogram(reading: ServerReading, before: Optional[ServerReading]) -> Optional[LatencyCounts]:
    if reading.latency is None:
        return None
    if before is None:
        return reading.latency
    if before.latency is None:
        return None
    return subtract(f"latency of process {reading.pid}", reading.latency, before.latency)


def _latency(
    reading: ServerReading, before: Optional[ServerReading], count: int, total_ns: int
) -> Latency:
    if not count:
        return Latency(count=0)
    histogram = _histogram(reading, before)
    if histogram is not None:
        return latency_us(histogram)
    return Latency(count, mean=mean_us(total_ns, count), max=reading.max_ns / _NS_PER_US)


def _stages(
    reading: ServerReading, before: Optional[ServerReading], count: int, accept_waits: int
) -> StageMeans:
    earlier: Mapping[str, int] = before.stages_ns if before is not None else {}
    means: Dict[str, Optional[float]] = {}
    for name, total_ns in reading.stages_ns.items():
        spent_ns = grown(f"process {reading.pid} stage {name}", total_ns, earlier.get(name, 0))
        mean_ns = ratio(spent_ns, accept_waits if name == "accept_wait" else count)
        means[name] = None if mean_ns is None else mean_ns / _NS_PER_US
    return StageMeans(**means)


def _app_time_pct(
    reading: ServerReading, before: Optional[ServerReading], upstream_wait_ns: int
) -> Optional[Dict[str, float]]:
    earlier: Mapping[str, int] = before.app_activity_ns if before is not None else {}
    app_ns = app_growth_ns(reading.app_activity_ns, earlier)
    shares = shares_pct(app_parts_ns(app_ns, upstream_wait_ns))
    return with_rest_of_requests(shares, *rest_of_requests_ns(reading, before))


def _upstream(reading: ServerReading, before: Optional[ServerReading]) -> List[OwnRequests]:
    known = {(each.transport, each.address): each for each in before.upstream} if before else {}
    rows = []
    for each in reading.upstream:
        row = _own_requests(each, known.get((each.transport, each.address)))
        if row is not None:
            rows.append(row)
    return sorted(rows, key=lambda row: (-row.count, row.address))


def _own_requests(
    now: OwnRequestCounts, before: Optional[OwnRequestCounts]
) -> Optional[OwnRequests]:
    grew = growth(f"requests to {now.address}", now, before)
    if not grew.count:
        return None
    return OwnRequests(
        *(now.transport, now.address),
        peer=None if now.peer is None else Peer(now.peer.pid, now.peer.comm),
        count=grew.count,
        latency_mean_us=grew.total_ns / grew.count / _NS_PER_US,
        recv_wait_mean_us=mean_us(grew.recv_wait_ns, grew.count),
    )


def _in_progress(reading: ServerReading, now_ns: int) -> Waiting:
    # Who never replied may speak a protocol without replies.
    if not reading.count:
        return Waiting(0, None)
    return _waiting(reading.in_progress, now_ns)


def _waiting(waiting: WaitingNow, now_ns: int) -> Waiting:
    if waiting.oldest_ns is None:
        return Waiting(waiting.count, None)
    # The listing is a moment after the sample's own.
    return Waiting(waiting.count, max(0, now_ns - waiting.oldest_ns) / _NS_PER_US)


def _waiting_if_measured(waiting: Optional[WaitingNow], now_ns: int) -> Optional[Waiting]:
    return None if waiting is None else _waiting(waiting, now_ns)


def _is_of_interest(row: ServedBy) -> bool:
    waiting = row.unanswered.count + row.unread.count + row.asking.count
    if row.asked_before is not None:
        waiting += row.asked_before.count
    return bool(row.count or row.upstream or waiting or ended(row.given_up, row.dropped))
