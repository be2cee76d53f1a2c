"""How far a figure may be from itself: standard errors over blocks of intervals, or over runs.

Consecutive intervals resemble each other, so their scatter alone promises too
much. It is taken over blocks of 1, 2, 4 … intervals, and the largest counts
(batch means). Sums have an error in closed form; a percentile has none, and is
drawn anew from the blocks (block bootstrap) with a fixed seed: the same files
give the same answer. Few blocks or runs know their own scatter badly, for which
Student's t makes up.
"""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.compare.tally import Tally, added, middle_of

CONFIDENCE_PCT = 99.0
"""About twenty figures are judged at once: at 95 % one of them would differ by chance."""

INTERVALS_MIN = 4
"""Of fewer the scatter says next to nothing: t is above 9 and grows quickly."""

_BLOCKS_MAX = 64
_BLOCKS_MIN = 5
_DRAWS = 400
_SEED = 20_000
# Quantiles of Student's t at 0.995, by degrees of freedom from 1 on (any table of t).
_T = (
    *(63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169),
    *(3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845),
    *(2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750),
)
_T_BEYOND = ((40, 2.750), (60, 2.704), (120, 2.660))
_T_NORMAL = 2.617

Statistic = Callable[[Tally], Optional[float]]


class Error(NamedTuple):
    """A standard error, and the degrees of freedom it is known with."""

    value: float
    freedom: float


UNKNOWN = Error(math.inf, 1.0)
"""Too few intervals have the figure."""


def blocks(intervals: Sequence[Tally]) -> List[List[Tally]]:
    """The intervals added up in blocks, for each length of block that leaves enough of them."""
    length = -(-len(intervals) // _BLOCKS_MAX)
    sizes: List[List[Tally]] = []
    while not sizes or len(intervals) // length >= _BLOCKS_MIN:
        sizes.append(_cut(intervals, length))
        length *= 2
    return sizes


def _cut(intervals: Sequence[Tally], length: int) -> List[Tally]:
    count = max(1, len(intervals) // length)
    # What is left over belongs to the last block: a short one would scatter more.
    ends = [*(length * n for n in range(1, count)), len(intervals)]
    starts = [0, *ends[:-1]]
    return [added(intervals[start:end]) for start, end in zip(starts, ends)]


def of_ratio(sizes: Sequence[Sequence[Tally]], over: Statistic, under: Statistic) -> Error:
    """The error of one sum ÷ another, the largest over all lengths of block.

    Args:
        sizes: of `blocks`; at least INTERVALS_MIN in the first.
    """
    return _largest([_of_ratio([(over(b), under(b)) for b in each]) for each in sizes])


def _largest(errors: Sequence[Optional[Error]]) -> Error:
    return max((error for error in errors if error is not None), default=UNKNOWN)


def _of_ratio(sums: Sequence[Tuple[Optional[float], Optional[float]]]) -> Optional[Error]:
    pairs = [(over, under) for over, under in sums if over is not None and under]
    count, whole = len(pairs), sum(under for _, under in pairs)
    if count < INTERVALS_MIN:
        return None
    ratio = sum(over for over, _ in pairs) / whole
    squares = sum((n - ratio * d) ** 2 for n, d in pairs)
    return Error(math.sqrt(squares * count / (count - 1)) / whole, count - 1.0)


def of_percentile(sizes: Sequence[Sequence[Tally]], percentile: str) -> Error:
    """The error of the percentile of the interval in the middle."""
    return _largest([_of_percentile(each, percentile) for each in sizes])


def _of_percentile(parts: Sequence[Tally], percentile: str) -> Optional[Error]:
    pairs = [(part.percentiles[percentile], part.requests) for part in parts]
    known = [(value, weight) for value, weight in pairs if value is not None and weight]
    count = len(known)
    if count < INTERVALS_MIN:
        return None
    chance = random.Random(_SEED)
    drawn = [middle_of(chance.choices(known, k=count)) for _ in range(_DRAWS)]
    # Drawn from themselves, n values scatter less by this factor.
    return Error(stdev(drawn) * math.sqrt(count / (count - 1)), count - 1.0)


def of_runs(values: Sequence[float]) -> Error:
    """The error of the mean of so many runs, two or more."""
    return Error(stdev(values) / math.sqrt(len(values)), len(values) - 1.0)


def of_mean(errors: Sequence[Error]) -> Error:
    """The error of the mean of figures whose errors these are."""
    squares = [error.value**2 for error in errors]
    freedom = _freedom(squares, errors)
    return Error(math.sqrt(sum(squares)) / len(errors), freedom)


def half_width(a: Error, b: Error) -> float:
    """Half the confidence interval of the difference of two figures (Welch)."""
    squares = [a.value**2, b.value**2]
    return student_t(_freedom(squares, (a, b))) * math.sqrt(sum(squares))


def _freedom(squares: Sequence[float], errors: Sequence[Error]) -> float:
    whole = sum(squares)
    if not whole or math.isinf(whole):
        return min(error.freedom for error in errors)
    return whole**2 / sum(square**2 / error.freedom for square, error in zip(squares, errors))


def student_t(freedom: float) -> float:
    """The quantile of Student's t for CONFIDENCE_PCT; rounded up between the table's rows."""
    whole = int(freedom)
    if whole < 1:
        return _T[0]
    if whole <= len(_T):
        return _T[whole - 1]
    return next((t for up_to, t in _T_BEYOND if whole < up_to), _T_NORMAL)


def mean_or_none(values: Sequence[Optional[float]]) -> Optional[float]:
    """The mean; None when one of them is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None
