"""Fixed bucket bounds, and the kernel half's histograms counted into them exactly.

A bucket's bound is inclusive (`le` of Prometheus, explicit bounds of OpenTelemetry), a slot's
is not, and durations are whole nanoseconds. So a bucket ends 1 ns below a slot's upper bound,
and no duration is ever in the wrong one.
"""

from __future__ import annotations

from typing import Tuple

from udsprobe.model.histogram import LATENCY_SLOTS, slot_of
from udsprobe.sample import LatencyCounts

NS_PER_S = 1_000_000_000


def _powers(first: int, last: int, step: int) -> Tuple[int, ...]:
    return tuple((1 << exponent) - 1 for exponent in range(first, last + 1, step))


FINE_NS = _powers(10, 35, 1)
"""Inclusive upper bounds, ns: 1 µs to 34 s, each twice the last; a 27th bucket has the rest."""

COARSE_NS = _powers(10, 34, 2)
"""Inclusive upper bounds, ns: 1 µs to 17 s, each four times the last; a 14th has the rest."""


def bounds_s(bounds_ns: Tuple[int, ...]) -> Tuple[float, ...]:
    """The bounds in seconds."""
    return tuple(bound / NS_PER_S for bound in bounds_ns)


def bucketed(counts: LatencyCounts, bounds_ns: Tuple[int, ...]) -> Tuple[int, ...]:
    """Durations in each bucket, the one above the last bound included, then their sum in ns."""
    cuts = (0, *(slot_of(bound + 1) for bound in bounds_ns), LATENCY_SLOTS)
    slots = counts.slots
    return (*(sum(slots[a:b]) for a, b in zip(cuts, cuts[1:])), counts.total_ns)
