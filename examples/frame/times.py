"""Times that a load measured itself, in the figures that the documents use. Pure.

Of repeated runs every table gives one statistic: the geometric mean, with its interval. The
quotient of two geometric means is the typical ratio of the pairs (`examples/frame/pairs.py`).
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Sequence

from udsprobe.compare.judging import power
from udsprobe.compare.noise import INTERVALS_MIN, of_runs, student_t


@dataclass(frozen=True)
class Times:
    """Of `count` requests, in microseconds; nearest rank, as in reports."""

    count: int
    mean_us: float
    p50_us: float
    p99_us: float
    max_us: float


def times_of(values_us: Sequence[float]) -> Times:
    """Raises ValueError when nothing was measured."""
    if not values_us:
        raise ValueError("nothing was measured")
    ordered = sorted(values_us)
    return Times(
        len(ordered),
        statistics.fmean(ordered),
        _rank(ordered, 0.50),
        _rank(ordered, 0.99),
        ordered[-1],
    )


def typical(values: Sequence[float]) -> float:
    """The geometric mean of repeated runs, all above 0."""
    return statistics.geometric_mean(values)


def interval(values: Sequence[float]) -> str:
    """`typical (low–high)` of repeated runs, with the 99 % interval of `compare`; few have none."""
    middle = typical(values)
    if len(values) < INTERVALS_MIN:
        return _short(middle)
    error = of_runs([math.log(value) for value in values])
    width = power(student_t(error.freedom) * error.value)
    return f"{_short(middle)} ({_short(middle / width)}–{_short(middle * width)})"


def _short(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
