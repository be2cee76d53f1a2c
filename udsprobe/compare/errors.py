"""The standard error of one figure's difference, from the intervals of each run or from runs."""

from __future__ import annotations

import math
from statistics import stdev
from typing import List, Optional, Sequence, Tuple

from udsprobe.compare import noise
from udsprobe.compare.noise import Error
from udsprobe.compare.quantities import Quantity
from udsprobe.compare.run import Run

Runs = Sequence[Run]
Sides = Tuple[Runs, Runs]


def value(quantity: Quantity, runs: Runs) -> Optional[float]:
    """The mean of the runs; None where one has none."""
    return noise.mean_or_none([quantity.value(run.whole) for run in runs])


def values(quantity: Quantity, runs: Runs) -> List[float]:
    """Of those runs that have one."""
    return [v for v in (quantity.value(run.whole) for run in runs) if v is not None]


def uses_logs(quantity: Quantity, sides: Sides) -> bool:
    """Whether the sides are compared by their ratio: all values are above 0."""
    return all(each > 0 for runs in sides for each in values(quantity, runs))


def difference(quantity: Quantity, sides: Sides) -> Optional[Error]:
    """Of the logarithm of the ratio, or of the delta where there is no ratio.

    None when nothing tells it: a single window of each side.
    """
    errors = of_sides(quantity, sides)
    return None if errors is None else noise.of_difference(*errors)


def of_sides(quantity: Quantity, sides: Sides) -> Optional[Tuple[Error, Error]]:
    """Of both sides; a side with one run has the scatter of the other's runs."""
    a, b = sides
    is_log = uses_logs(quantity, sides)
    first, second = _error(quantity, a, is_log), _error(quantity, b, is_log)
    if len(a) == 1 and len(b) > 1:
        first = _larger(first, _scatter(quantity, b, is_log))
    if len(b) == 1 and len(a) > 1:
        second = _larger(second, _scatter(quantity, a, is_log))
    return None if first is None or second is None else (first, second)


def _error(quantity: Quantity, runs: Runs, is_log: bool) -> Optional[Error]:
    within = None
    if all(run.has_noise for run in runs):
        within = noise.of_mean([_within(quantity, run, is_log) for run in runs])
    if len(runs) == 1:
        return within
    return _larger(within, noise.of_runs(_on_scale(quantity, runs, is_log)))


def _within(quantity: Quantity, run: Run, is_log: bool) -> Error:
    whole = quantity.value(run.whole)
    if is_log and whole:
        return quantity.relative_error(run.blocks, whole)
    return quantity.error(run.blocks)


def _scatter(quantity: Quantity, runs: Runs, is_log: bool) -> Error:
    return Error(stdev(_on_scale(quantity, runs, is_log)), len(runs) - 1.0)


def _on_scale(quantity: Quantity, runs: Runs, is_log: bool) -> List[float]:
    known = values(quantity, runs)
    return [math.log(each) for each in known] if is_log else known


def _larger(one: Optional[Error], other: Error) -> Error:
    # Runs that agree by chance do not make their intervals scatter less.
    return other if one is None else max(one, other)
