"""How much longer, or how much more often, one has to measure until a difference can be told."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Optional, Sequence, Tuple

from udsprobe.compare import noise
from udsprobe.compare.comparison import Figure
from udsprobe.compare.errors import Runs, Sides, of_sides
from udsprobe.compare.quantities import BEYOND_MIN, Percentile, Quantity
from udsprobe.rules.wording import count

STEPS_S = (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1800, 3600)
"""Nobody measures for 31.7 s; and what takes longer than an hour is another experiment."""

RUNS_MAX = 30


def longer_tells(quantity: Quantity, figure: Figure, sides: Sides) -> Figure:
    """The figure, within its noise, with `tells_after_s` or `tells_after_runs`."""
    if any(len(runs) > 1 for runs in sides):
        more_runs = _least(quantity, figure, sides, range(1, RUNS_MAX + 1))
        return replace(figure, tells_after_runs=more_runs)
    more_s = _least(quantity, figure, sides, STEPS_S)
    return replace(figure, tells_after_s=None if more_s is None else float(more_s))


def _least(quantity: Quantity, figure: Figure, sides: Sides, steps: Sequence[int]) -> Optional[int]:
    errors, lengths = of_sides(quantity, sides), _lengths(sides)
    if errors is None or not all(lengths):
        return None
    is_log = figure.ratio is not None and figure.ratio_low is not None
    apart = abs(math.log(figure.ratio or 1.0) if is_log else figure.delta or 0.0)
    for more in steps:
        grown = [noise.longer(e, 1 + more / length) for e, length in zip(errors, lengths)]
        if noise.half_width(grown[0], grown[1]) < apart:
            return more
    return None


def _lengths(sides: Sides) -> Tuple[float, float]:
    """Of both sides: runs, where one has several, or s."""
    if any(len(runs) > 1 for runs in sides):
        return float(len(sides[0])), float(len(sides[1]))
    a, b = (sum(run.whole.of("duration_s") or 0.0 for run in runs) for runs in sides)
    return a, b


def more_requests_tell(quantity: Percentile, sides: Sides) -> Optional[float]:
    """s of each side until enough requests lie beyond a percentile; None where longer intervals
    would, or it takes more than an hour."""
    if any(run.is_added_up for runs in sides for run in runs):
        return None
    needed = max(_until(BEYOND_MIN / quantity.beyond, runs) for runs in sides)
    return next((float(step) for step in STEPS_S if step >= needed), None)


def _until(requests: float, runs: Runs) -> float:
    """s until every run has so many."""
    waits = [
        (requests / run.whole.requests - 1) * (run.whole.of("duration_s") or 0.0)
        if run.whole.requests
        else math.inf
        for run in runs
    ]
    return max(waits)


def would_tell(figure: Figure) -> Optional[str]:
    """`30 s more of each`, `5 more runs of each`; None where no such time is known."""
    if figure.tells_after_runs is not None:
        return f"{count(figure.tells_after_runs, 'more run')} of each"
    if figure.tells_after_s is None:
        return None
    seconds = round(figure.tells_after_s)
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds // length} {unit} more of each"
    return f"{seconds} s more of each"
