"""What ranks tell where a scatter says little: few intervals, or none.

Of five intervals of each side and more, the ratio of any two that are one of each side bounds
the ratio of the sides with 99 % confidence (the widest interval of Hodges and Lehmann: five and
five that are alike fall apart by chance in 2 of 252 orders). Of single windows there are only
percentiles. Were both sides alike, the middle of one would lie beyond nine tenths of the
other once in a hundred times for 14 requests that do not resemble each other, and hardly ever for
more.
"""

from __future__ import annotations

from typing import List, Optional, Tuple

from udsprobe.compare.comparison import Figure
from udsprobe.compare.errors import Runs, Sides, value
from udsprobe.compare.quantities import BEYOND_MIN, MEAN, MEDIAN, NINE_TENTHS, Percentile, Quantity
from udsprobe.compare.run import Run

INTERVALS_MIN = 5
JUDGED = (MEAN.name, MEDIAN.name, NINE_TENTHS.name)
SAYS = (
    "more than half of one side's requests took longer than 90 % of the other's; "
    "a single window does not show by how much"
)


def bounds(quantity: Quantity, sides: Sides) -> Optional[Tuple[float, float]]:
    """Between which ratios all pairs of intervals are; None where there are too few."""
    if any(len(runs) > 1 for runs in sides):
        return None
    a, b = (_values(quantity, runs[0]) for runs in sides)
    if min(len(a), len(b)) < INTERVALS_MIN or min(*a, *b) <= 0:
        return None
    return min(b) / max(a), max(b) / min(a)


def _values(quantity: Quantity, run: Run) -> List[float]:
    return [v for v in map(quantity.value, run.blocks) if v is not None]


def are_apart(sides: Sides, figure: Figure) -> bool:
    """Whether half of the slower side's requests took longer than 90 % of the faster one's."""
    slower, faster = sides if (figure.delta or 0.0) < 0 else sides[::-1]
    half, most = value(MEDIAN, slower), value(NINE_TENTHS, faster)
    mean = value(MEAN, faster)
    if half is None or most is None or mean is None:
        return False
    return half > most and half > mean and _has(MEDIAN, slower) and _has(NINE_TENTHS, faster)


def _has(quantity: Percentile, runs: Runs) -> bool:
    """Whether enough requests of each run lie beyond its percentile."""
    return min(run.whole.requests for run in runs) * quantity.beyond >= BEYOND_MIN
