"""Moments in which nobody reads: all requests that come then wait, and are answered together.

Clients that wait for their replies send nothing meanwhile. So a server that stands still for a
third of a second every few seconds has few slow requests among thousands, which no percentile
shows, though it is that slow for whoever comes then.
"""

from __future__ import annotations

from datetime import datetime
from typing import List, NamedTuple, Optional, Sequence

from udsprobe.model.harm import Harm
from udsprobe.model.report import Evidence, Report, WholeRequest
from udsprobe.rules.accounts.service import Service
from udsprobe.rules.harm import SLOW
from udsprobe.rules.thresholds import (
    SLOW_REQUEST_US,
    SLOW_REQUESTS_MIN,
    STANDSTILL_SHARE_MIN,
    TAIL_TIMES_MEDIAN,
    TOGETHER_SHARE_MAX,
    WAIT_SHARE_MIN,
)
from udsprobe.rules.wording import count, duration, evidence


class Standstill(NamedTuple):
    """The longest of them.

    Attributes:
        requests: of those kept, how many waited for such a moment. longest_us: until one was read.
        least_us: that it has to be to count.
    """

    requests: int
    longest_us: float
    least_us: float

    def fact(self) -> Evidence:
        """What was seen."""
        says = (
            f"{count(self.requests, 'request')} of the slowest lay unread for up to "
            f"{duration(self.longest_us)} and were then answered together"
        )
        return evidence("standstill_us", self.longest_us, "µs", says, self.least_us)

    def harm(self) -> Harm:
        """Who suffers."""
        says = f"at times requests lie unread for up to {duration(self.longest_us)}"
        return Harm(SLOW, None, self.requests, None, says)


def standstill(report: Report, service: Service) -> Optional[Standstill]:
    """None where requests are slow for reasons of their own, or none is."""
    least_us = _least_us(service)
    slow = [
        each
        for each in report.requests.slowest or ()
        if (service.pids is None or each.pid in service.pids) and each.turn_based
        if each.latency_us >= least_us
    ]
    found = [each for each in slow if _is_unread(each) and _is_one_of_many(each, slow)]
    longest_us = max((_unread_us(each) for each in found), default=0.0)
    if 2 * len(found) < len(slow) or longest_us < least_us:
        return None
    return Standstill(len(found), longest_us, least_us)


def _least_us(service: Service) -> float:
    latency = service.latency
    usual_us = 0.0 if latency is None else latency.p50 or latency.mean or 0.0
    window_us = STANDSTILL_SHARE_MIN * service.duration_s * 1e6
    return max(SLOW_REQUEST_US, TAIL_TIMES_MEDIAN * usual_us, window_us)


def _unread_us(request: WholeRequest) -> float:
    return request.stages_us.recv_wait or 0.0


def _is_unread(request: WholeRequest) -> bool:
    return _unread_us(request) >= WAIT_SHARE_MIN * request.latency_us


def _is_one_of_many(request: WholeRequest, slow: Sequence[WholeRequest]) -> bool:
    """A queue is worked off one after the other; what waited for one moment ends with it."""
    ended_us = _ended_us(request)
    near: List[WholeRequest] = [
        each
        for each in slow
        if abs(_ended_us(each) - ended_us) <= TOGETHER_SHARE_MAX * request.latency_us
    ]
    return len(near) >= SLOW_REQUESTS_MIN


def _ended_us(request: WholeRequest) -> float:
    return 1e6 * datetime.fromisoformat(request.at).timestamp()
