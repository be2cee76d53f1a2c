"""Two sides measured in turns, and what their pairs tell, by the rules of `udsprobe compare`.

The statistic is the ratio of the two runs of a pair: what slows the machine down for a while
slows both. Its mean on the logarithmic scale has a 99 % interval (Student's t), and the sentences
are those of `compare`. Pure but for the order in which the caller measures.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Iterable, Iterator, List, Optional, Sequence, TypeVar

from examples.frame.times import typical
from udsprobe.compare.comparison import Figure
from udsprobe.compare.judging import power
from udsprobe.compare.longer import RUNS_MAX, would_tell
from udsprobe.compare.noise import INTERVALS_MIN, Error, longer, of_runs, student_t
from udsprobe.compare.quantities import FLOOR
from udsprobe.compare.summary import faster, hides_much, not_excluded

FEW_PAIRS = f"it takes {INTERVALS_MIN} pairs of runs"
_Side = TypeVar("_Side")


def in_turns(sides: Iterable[_Side], rounds: int) -> Iterator[List[_Side]]:
    """The order of each round, A B, B A, A B …: drift, and what a run leaves behind for the next,
    meet every side alike."""
    order = list(sides)
    for each in range(rounds):
        yield order[::-1] if each % 2 else order


def paired(a: Sequence[float], b: Sequence[float]) -> Figure:
    """The figure of two sides; its ratio is b ÷ a, and of their times less is faster.

    Args:
        a, b: times in one unit, all above 0; those at the same place are a pair.

    Raises:
        ValueError: no pair, or not as many of each side.
    """
    if not a or len(a) != len(b):
        raise ValueError(f"pairs of {len(a)} and {len(b)} runs")
    first, second = typical(a), typical(b)
    delta, floor = second - first, FLOOR * max(first, second)
    figure = Figure(
        name="paired_runs",
        unit="",
        a=first,
        b=second,
        delta=delta,
        delta_pct=100 * delta / first,
        noise=None,
        noise_pct=None,
        floor=floor,
        exceeds_noise=None,
        reason=FEW_PAIRS,
        ratio=second / first,
    )
    logs = [math.log(after / before) for before, after in zip(a, b)]
    return _judged(figure, logs) if len(logs) >= INTERVALS_MIN else figure


def _judged(figure: Figure, logs: List[float]) -> Figure:
    error = of_runs(logs)
    apart, width = abs(math.fsum(logs) / len(logs)), _width(error)
    assert figure.ratio is not None and figure.delta is not None and figure.floor is not None
    is_large = abs(figure.delta) > figure.floor
    return replace(
        figure,
        reason=None,
        ratio_low=figure.ratio * power(-width),
        ratio_high=figure.ratio * power(width),
        exceeds_noise=is_large and apart > width,
        tells_after_runs=_more(error, apart, len(logs)) if is_large and apart <= width else None,
    )


def _width(error: Error) -> float:
    return student_t(error.freedom) * error.value


def _more(error: Error, apart: float, pairs: int) -> Optional[int]:
    steps = range(1, RUNS_MAX + 1)
    return next((n for n in steps if _width(longer(error, 1 + n / pairs)) < apart), None)


def said(figure: Figure, who: str) -> str:
    """What the pairs tell of the second side, in the words of `udsprobe compare`.

    Args:
        figure: from `paired`.
        who: the second side.
    """
    if figure.exceeds_noise is None:
        return f"not judged: {figure.reason}"
    if figure.exceeds_noise:
        return faster(figure, who)
    may_be = not_excluded(figure)
    if hides_much(figure) and abs(figure.delta or 0.0) > (figure.floor or 0.0):
        more = would_tell(figure) or f"not even {RUNS_MAX} more runs of each"
        return f"no difference can be shown yet: {may_be}; {more} would tell"
    return f"no difference beyond the noise: {may_be}"
