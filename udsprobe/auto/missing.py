"""Signs that something which should come does not: replies, accepts, requests to an upstream.

Pure. What does not happen is in no latency and makes nobody busy, so these look at what waits, and
at what came before.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Deque, Dict, FrozenSet, Iterator, Mapping, Optional

from udsprobe.auto.beginnings import Sign
from udsprobe.model.report import Report, Requests, ServedBy
from udsprobe.rules.thresholds import HUNG_US_MIN, REQUESTS_MIN, STALL_TIMES_MEDIAN

UNANSWERED_US_MIN = HUNG_US_MIN / 2
"""Half of what a verdict takes: what begins now will be that old soon."""

WAITING_MIN = 2
"""Connections in a queue. One may have come at this moment."""

FALLEN_TO = 0.25
"""Of the usual requests to an upstream: by chance, 20 become 5 once in hours."""

PAST_INTERVALS = 60
"""The recent past: its median cannot be moved by an incident of half of them."""

PAST_MIN = 5
"""Of fewer intervals with requests there is no past to compare with."""


class Missing:
    """Follows the intervals of light."""

    def __init__(self) -> None:
        self._queued: FrozenSet[str] = frozenset()
        self._asked: Dict[str, Deque[float]] = {}

    def signs(self, interval: Report, usual_us: Optional[float]) -> Iterator[Sign]:
        """What of this interval is one.

        Args:
            usual_us: the usual p99 of served requests; None: it is not known.
        """
        yield from _replies(interval.requests, usual_us)
        yield from self._accepts(interval)
        yield from self._upstreams(interval.requests)

    def _accepts(self, interval: Report) -> Iterator[Sign]:
        """From one sample to the next somebody waited: whoever accepts takes a moment."""
        depths = {row.address: row.depth.now or 0 for row in interval.listeners or ()}
        queued = frozenset(each for each, depth in depths.items() if depth >= WAITING_MIN)
        for address in sorted(queued & self._queued):
            yield Sign(f"connections to {address} wait to be accepted", depths[address])
        self._queued = queued

    def _upstreams(self, requests: Requests) -> Iterator[Sign]:
        """Asked much less for each request than before: it may refuse."""
        served = 0 if requests.served is None else requests.served.count
        if served < REQUESTS_MIN:
            return
        now = _by_address(requests)
        for address in sorted({*now, *self._asked}):
            count, past = now.get(address, 0), self._asked.setdefault(address, _past())
            expected = median(past) * served if len(past) >= PAST_MIN else 0.0
            if expected >= REQUESTS_MIN and count <= FALLEN_TO * expected:
                yield Sign(f"{address} is asked less than before")
            past.append(count / served)
            if not any(past):
                del self._asked[address]


def _past() -> Deque[float]:
    return deque(maxlen=PAST_INTERVALS)


def _by_address(requests: Requests) -> Mapping[str, int]:
    found: Dict[str, int] = {}
    for row in requests.upstream or ():
        found[row.address] = found.get(row.address, 0) + row.count
    return found


def _replies(requests: Requests, usual_us: Optional[float]) -> Iterator[Sign]:
    """Requests that wait for much longer than they take; its strength: of all that wait there."""
    least_us = max(UNANSWERED_US_MIN, STALL_TIMES_MEDIAN * (usual_us or 0.0))
    rows = [row for row in requests.served_by or () if _oldest_us(row) >= least_us]
    if rows:
        waiting = sum(row.in_progress.count + row.unread.count for row in rows)
        yield Sign("requests wait for their replies", waiting)


def _oldest_us(row: ServedBy) -> float:
    """Its own requests are not looked at: some wait for ever, for what a queue may bring."""
    return max(each.oldest_us or 0.0 for each in (row.in_progress, row.unread))
