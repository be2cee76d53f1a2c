"""Times that a load measured itself, in the figures that the documents use. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Sequence


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


def spread(values: Sequence[float]) -> str:
    """`median (lowest–highest)` of repeated runs."""
    if len(values) == 1:
        return f"{values[0]:,.0f}"
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})"


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
