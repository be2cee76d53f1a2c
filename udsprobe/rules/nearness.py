"""How far the numbers are from the limits where a cause begins.

A figure that wanders around a limit is one state, not two: a verdict that was
given holds until its figures are clearly below, and how sure it is depends on
how far above they are.
"""

from __future__ import annotations

from typing import Dict, Iterable, Mapping, Optional

from udsprobe.model.report import Report
from udsprobe.rules.accounts.moving import Moving, moving
from udsprobe.rules.accounts.request_time import WAITS, RequestTime
from udsprobe.rules.accounts.saturation import saturation
from udsprobe.rules.accounts.service import Service
from udsprobe.rules.causes import CAUSE_OF_BUSY, PARTS, WAITING
from udsprobe.rules.suspects import processing as inside
from udsprobe.rules.thresholds import (
    CONTENTION_SHARE_MIN,
    CONTENTION_US_MIN,
    NEAR_LIMIT,
    THREAD_BUSY_MIN,
    WAIT_MEAN_US_MIN,
    WAIT_SHARE_MIN,
)


def of_service(
    report: Report, service: Service, time: RequestTime, slo_us: Optional[float] = None
) -> Dict[str, float]:
    """cause → its figure by its limit: 1 is at the limit, where several count the lowest."""
    moved = moving(report, service, time)
    found = {cause: _wait(time, moved, cause) for cause in WAITING if time.sum_us(*PARTS[cause])}
    contends = min(
        time.share("runq") / CONTENTION_SHARE_MIN, time.mean_us("runq") / CONTENTION_US_MIN
    )
    _raise(found, "cpu-contention", contends)
    moves = min(moved.share / WAIT_SHARE_MIN, moved.mean_us / WAIT_MEAN_US_MIN)
    _raise(found, "transport", moves)
    busiest = saturation(service, time, THREAD_BUSY_MIN * (1 - NEAR_LIMIT))
    if busiest is not None:
        _raise(found, CAUSE_OF_BUSY[busiest.kind], busiest.busy / THREAD_BUSY_MIN)
    p99 = service.latency.p99 if service.latency is not None else None
    if slo_us and p99 is not None:
        _raise(found, inside.largest_part(time), p99 / slo_us)
    return found


def highest(each: Iterable[Mapping[str, float]]) -> Dict[str, float]:
    """Of several services, for each cause."""
    found: Dict[str, float] = {}
    for one in each:
        for cause, value in one.items():
            _raise(found, cause, value)
    return found


def clearness(value: float) -> float:
    """0 at a limit, 1 from so far above (or below) it that it is not near any more."""
    return min(1.0, abs(value - 1.0) / NEAR_LIMIT)


def _wait(time: RequestTime, moved: Moving, cause: str) -> float:
    whole = time.sum_us(*WAITS)
    largest = max(time.sum_us(*PARTS[name]) for name in WAITING)
    part = time.sum_us(*PARTS[cause]) / largest if largest else 0.0
    if not whole:
        return 0.0
    mean_us = time.mean_us(*WAITS)
    return part * min(moved.share_of(mean_us) / WAIT_SHARE_MIN, mean_us / WAIT_MEAN_US_MIN)


def _raise(found: Dict[str, float], cause: str, value: float) -> None:
    found[cause] = max(found.get(cause, 0.0), value)
