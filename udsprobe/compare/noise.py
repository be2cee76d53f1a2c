"""How far a figure may be from itself: standard errors over intervals, or over runs.

Consecutive intervals resemble each other, so their scatter alone promises too
much. How much the next resembles the last is estimated (an AR(1) process, its
correlation corrected for few intervals), and so many intervals count as so many
fewer. Sums have an error in closed form; a percentile has none, and is drawn
anew from the intervals (bootstrap) with a fixed seed: the same files give the
same answer. Few intervals or runs know their own scatter badly, for which
Student's t makes up.
"""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev
from typing import Callable, List, NamedTuple, Optional, Sequence

from udsprobe.compare.tally import Tally, added, middle_of

CONFIDENCE_PCT = 99.0
"""About twenty figures are judged at once: at 95 % one of them would differ by chance."""

INTERVALS_MIN = 4
"""Of fewer the scatter says next to nothing: t is above 9 and grows quickly."""

_BLOCKS_MAX = 24
"""In short intervals the chance of single requests hides how alike they are; so many blocks are
enough to know their scatter."""

_CORRELATION_MAX = 0.9
_FREEDOM_MIN = 2.0
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


def blocks(intervals: Sequence[Tally]) -> List[Tally]:
    """The intervals, added up by twos, threes … where there are very many."""
    length = -(-len(intervals) // _BLOCKS_MAX)
    count = max(1, len(intervals) // length)
    # What is left over belongs to the last block: a short one would scatter more.
    ends = [*(length * n for n in range(1, count)), len(intervals)]
    starts = [0, *ends[:-1]]
    return [added(intervals[start:end]) for start, end in zip(starts, ends)]


def of_ratio(parts: Sequence[Tally], over: Statistic, under: Statistic) -> Error:
    """The error of one sum ÷ another, in the unit of that ratio."""
    sums = [(over(part), under(part)) for part in parts]
    pairs = [(n, d) for n, d in sums if n is not None and d]
    if len(pairs) < INTERVALS_MIN:
        return UNKNOWN
    whole = sum(d for _, d in pairs)
    ratio = sum(n for n, _ in pairs) / whole
    each = whole / len(pairs)
    return _of_mean([(n - ratio * d) / each for n, d in pairs])


def _of_mean(apart: Sequence[float]) -> Error:
    """The error of the mean of values this far from it, in the order of time."""
    count, squares = len(apart), sum(x * x for x in apart)
    worth = _worth(apart)
    value = math.sqrt(squares / max(count - worth, 1.0) / count * worth)
    return Error(value, max(count / worth - 1, _FREEDOM_MIN))


def _worth(apart: Sequence[float]) -> float:
    """How many intervals tell as much as one that does not resemble the one before."""
    count, squares = len(apart), sum(x * x for x in apart)
    if not squares:
        return 1.0
    seen = sum(x * y for x, y in zip(apart, apart[1:])) / squares
    # Of n values the correlation reads (1 + 4 r) / n too small on average (Marriott and Pope).
    correlation = min(max(seen + (1 + 4 * seen) / count, 0.0), _CORRELATION_MAX)
    return (1 + correlation) / (1 - correlation)


def of_percentile(parts: Sequence[Tally], percentile: str) -> Error:
    """The error of the percentile of the interval in the middle, relative to it."""
    pairs = [(part.percentiles[percentile], part.requests) for part in parts]
    known = [(math.log(value), weight) for value, weight in pairs if value and weight]
    count = len(known)
    if count < INTERVALS_MIN:
        return UNKNOWN
    chance = random.Random(_SEED)
    drawn = [middle_of(chance.choices(known, k=count)) for _ in range(_DRAWS)]
    centre = fmean(value for value, _ in known)
    worth = _worth([value - centre for value, _ in known])
    # Drawn from themselves, n values scatter less by this factor.
    value = stdev(drawn) * math.sqrt(worth * count / (count - 1))
    return Error(value, max(count / worth - 1, _FREEDOM_MIN))


def of_runs(values: Sequence[float]) -> Error:
    """The error of the mean of so many runs, two or more."""
    return Error(stdev(values) / math.sqrt(len(values)), len(values) - 1.0)


def relative(error: Error, value: float) -> Error:
    """The error as a part of the figure: that of its logarithm."""
    return Error(error.value / value, error.freedom)


def of_mean(errors: Sequence[Error]) -> Error:
    """The error of the mean of figures whose errors these are."""
    squares = [error.value**2 for error in errors]
    freedom = _freedom(squares, errors)
    return Error(math.sqrt(sum(squares)) / len(errors), freedom)


def half_width(a: Error, b: Error) -> float:
    """Half the confidence interval of the difference of two figures (Welch)."""
    error = of_difference(a, b)
    return student_t(error.freedom) * error.value


def of_difference(a: Error, b: Error) -> Error:
    """The error of the difference of two figures (Welch)."""
    squares = [a.value**2, b.value**2]
    return Error(math.sqrt(sum(squares)), _freedom(squares, (a, b)))


def longer(error: Error, times: float) -> Error:
    """The error of the same figure measured so many times as long, or as often."""
    return Error(error.value / math.sqrt(times), (error.freedom + 1) * times - 1)


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
