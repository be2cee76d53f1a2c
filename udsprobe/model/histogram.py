"""Log-linear latency histograms: slot bounds, differences, percentiles.

Knows the slot layout that `bpf/latency.bpf.h` writes, and nothing about what
was timed. Below 64 ns a slot is 4 ns wide; above, every power of two is cut
into 16 equal slots, so that a slot's midpoint is within 1/32 of any duration
in it.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from itertools import accumulate
from typing import Optional, Sequence, Tuple

from udsprobe.model.counters import UnsoundError
from udsprobe.model.report import Latency
from udsprobe.sample import LatencyCounts

LATENCY_SUB_BITS = 4
"""Each power of two has 2 ** LATENCY_SUB_BITS slots."""

LATENCY_LINEAR_BITS = 6
"""Durations below 2 ** LATENCY_LINEAR_BITS ns are in slots of equal width."""

LATENCY_TOP_BITS = 38
"""Durations of 2 ** LATENCY_TOP_BITS ns (275 s) and more share the last slot."""

_SUBS = 1 << LATENCY_SUB_BITS
_LINEAR_SHIFT = LATENCY_LINEAR_BITS - LATENCY_SUB_BITS

LATENCY_SLOTS = (LATENCY_TOP_BITS - LATENCY_LINEAR_BITS + 1) * _SUBS

RELATIVE_ERROR = 1 / (2 * _SUBS)
"""How far a percentile can be from the duration it stands for, 64 ns to 275 s."""

NOTHING = LatencyCounts(count=0, total_ns=0, max_ns=0, slots=(0,) * LATENCY_SLOTS)

_NS_PER_US = 1000


def slot_of(value_ns: int) -> int:
    """The slot that counts a duration of `value_ns` (0 or more)."""
    if value_ns < 1 << LATENCY_LINEAR_BITS:
        return value_ns >> _LINEAR_SHIFT
    exponent = value_ns.bit_length() - 1
    if exponent >= LATENCY_TOP_BITS:
        return LATENCY_SLOTS - 1
    sub = (value_ns >> (exponent - LATENCY_SUB_BITS)) & (_SUBS - 1)
    return (exponent - LATENCY_LINEAR_BITS + 1) * _SUBS + sub


def slot_bounds_ns(slot: int) -> Tuple[int, int]:
    """The slot's (lower, upper) in ns: lower <= duration < upper.

    The last slot has no upper bound: it holds longer durations too, see
    `LATENCY_TOP_BITS`.
    """
    octave, sub = divmod(slot, _SUBS)
    if octave == 0:
        return sub << _LINEAR_SHIFT, (sub + 1) << _LINEAR_SHIFT
    shift = octave - 1 + _LINEAR_SHIFT
    return (_SUBS + sub) << shift, (_SUBS + sub + 1) << shift


def subtract(name: str, current: LatencyCounts, previous: LatencyCounts) -> LatencyCounts:
    """What was recorded between two readings of one histogram.

    `max_ns` of the result is exact when the maximum grew in between, which
    includes every interval that began at zero; otherwise it is an upper bound,
    at most 1/16 too high.

    Raises:
        UnsoundError: a count went backwards; the message has `name`.
    """
    if current is previous or current == previous:
        return NOTHING
    slots = tuple(map(operator.sub, current.slots, previous.slots))
    count = current.count - previous.count
    total_ns = current.total_ns - previous.total_ns
    if count < 0 or total_ns < 0 or min(slots, default=-1) < 0:
        raise UnsoundError(f"counter {name} went backwards: {previous.count} to {current.count}")
    return LatencyCounts(count, total_ns, _interval_max_ns(current, previous, slots), slots)


def _interval_max_ns(current: LatencyCounts, previous: LatencyCounts, slots: Sequence[int]) -> int:
    highest = _highest_slot(slots)
    if highest is None:
        return current.max_ns
    lower, upper = slot_bounds_ns(highest)
    if current.max_ns > previous.max_ns or highest == LATENCY_SLOTS - 1:
        # A reading may catch the kernel between the slot and the maximum.
        return max(lower, current.max_ns)
    return max(lower, min(upper - 1, current.max_ns))


def _highest_slot(slots: Sequence[int]) -> Optional[int]:
    return next((slot for slot in range(len(slots) - 1, -1, -1) if slots[slot]), None)


def added(parts: Sequence[LatencyCounts]) -> LatencyCounts:
    """Several histograms as one."""
    if not parts:
        return NOTHING
    return LatencyCounts(
        sum(part.count for part in parts),
        sum(part.total_ns for part in parts),
        max(part.max_ns for part in parts),
        tuple(map(sum, zip(*(part.slots for part in parts)))),
    )


def percentiles_ns(counts: LatencyCounts, per_mille: Sequence[int]) -> Tuple[Optional[float], ...]:
    """Nearest-rank percentiles, each the midpoint of the slot it falls in.

    No percentile is above `counts.max_ns`. None for each when nothing was recorded.

    Args:
        per_mille: the ranks, 1 to 1000: 500 is the median, 999 is p99.9.
    """
    cumulative = list(accumulate(counts.slots))
    # Not `count`: a reading may catch the kernel between `count` and the slot.
    recorded = cumulative[-1]
    if recorded == 0:
        return (None,) * len(per_mille)
    ranks = (-(-recorded * rank // 1000) for rank in per_mille)
    return tuple(_midpoint_ns(bisect_left(cumulative, rank), counts.max_ns) for rank in ranks)


def _midpoint_ns(slot: int, max_ns: int) -> float:
    lower, upper = slot_bounds_ns(slot)
    return min((lower + upper) / 2, max_ns)


def latency_us(counts: LatencyCounts) -> Latency:
    """The histogram's summary in µs; `mean` is exact."""
    if counts.count == 0:
        return Latency(count=0)
    p50, p90, p99, p999 = map(_as_us, percentiles_ns(counts, (500, 900, 990, 999)))
    mean = counts.total_ns / counts.count / _NS_PER_US
    return Latency(counts.count, mean, p50, p90, p99, p999, _as_us(counts.max_ns))


def _as_us(value_ns: Optional[float]) -> Optional[float]:
    return None if value_ns is None else value_ns / _NS_PER_US
