"""One figure of two sides: its values, how sure they are, and whether they differ."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import stdev
from typing import NamedTuple, Optional, Sequence, Tuple

from udsprobe.compare import noise
from udsprobe.compare.comparison import Figure
from udsprobe.compare.noise import INTERVALS_MIN, Error
from udsprobe.compare.quantities import BEYOND_MIN, CONTENDED_MIN, Percentile, Quantity, Ratio
from udsprobe.compare.run import Run

Runs = Sequence[Run]

NOT_MEASURED = "not measured in {}"
NOTHING = {
    "requests": "no request was served in {}",
    "first_requests": "no connection made its first request in {}",
    "duration_s": "the window of {} has no length",
}
ONE_WINDOW = "one window is no measure of the noise: give intervals (--jsonl) or repeated runs"
CONTENDED = (
    "one run of each side cannot tell it from other load: threads waited for a CPU for "
    "{:.0f} % of their busy time in {}; repeat the runs"
)
FEW_BEYOND = f"fewer than {BEYOND_MIN} requests lie beyond it"
FEW_INTERVALS = f"it takes {INTERVALS_MIN} intervals in which it was measured"


class Estimate(NamedTuple):
    """The value of one side; `error` is None when its noise is not known."""

    value: float
    error: Optional[Error]


def judged(quantity: Quantity, a: Runs, b: Runs, floor_min: float = 0.0) -> Figure:
    """The figure of both sides.

    Args:
        floor_min: the floor is at least this, in the figure's unit.
    """
    first, second = _value(quantity, a), _value(quantity, b)
    nothing = (None,) * 5
    if first is None or second is None:
        why = _why_absent(quantity, *(("A", a) if first is None else ("B", b)))
        return Figure(quantity.name, quantity.unit, first, second, *nothing, None, why)
    delta = second - first
    pct = _percent_of(first, delta)
    figure = Figure(quantity.name, quantity.unit, first, second, delta, pct, *nothing)
    floor = max(quantity.floor(_repeated(a, b)) * max(first, second), floor_min)
    return _with_noise(figure, delta, max(floor, 0.0), quantity, (a, b))


def _percent_of(a: Optional[float], part: float) -> Optional[float]:
    return 100 * part / abs(a) if a else None


def _repeated(*sides: Runs) -> bool:
    return all(len(runs) > 1 for runs in sides)


def _value(quantity: Quantity, runs: Runs) -> Optional[float]:
    return noise.mean_or_none([quantity.value(run.whole) for run in runs])


def _why_absent(quantity: Quantity, side: str, runs: Runs) -> str:
    under = quantity.under if isinstance(quantity, Ratio) else "requests"
    is_nothing = any(run.whole.of(under) == 0 for run in runs)
    return (NOTHING[under] if is_nothing else NOT_MEASURED).format(side)


def _with_noise(
    figure: Figure, delta: float, floor: float, quantity: Quantity, sides: Tuple[Runs, Runs]
) -> Figure:
    figure = replace(figure, floor=floor)
    if any(_has_few_beyond(quantity, run) for runs in sides for run in runs):
        return replace(figure, reason=FEW_BEYOND)
    errors = _errors(quantity, *sides)
    if errors is None:
        within = False if abs(delta) <= floor else None
        return replace(figure, exceeds_noise=within, reason=_why(sides))
    width = noise.half_width(*errors)
    if math.isinf(width):
        return replace(figure, reason=FEW_INTERVALS)
    figure = replace(figure, noise=width, noise_pct=_percent_of(figure.a, width))
    if abs(delta) <= max(width, floor):
        return replace(figure, exceeds_noise=False)
    other_load = None if quantity.is_steady else _contended(sides)
    return replace(figure, exceeds_noise=None if other_load else True, reason=other_load)


def _contended(sides: Tuple[Runs, Runs]) -> Optional[str]:
    """Why one run each is not enough; None when it is, or there are more."""
    if any(len(runs) > 1 for runs in sides):
        return None
    part, side = max(zip((contention(runs) for runs in sides), "AB"))
    return CONTENDED.format(100 * part, side) if part >= CONTENDED_MIN else None


def contention(runs: Runs) -> float:
    """The part of their busy time that threads waited for a CPU; 0 where that is not measured."""
    waited = sum(run.whole.of("runq_us") or 0.0 for run in runs)
    busy = waited + sum(run.whole.of("cpu_us") or 0.0 for run in runs)
    return waited / busy if busy else 0.0


def _why(sides: Sequence[Runs]) -> str:
    has_some = any(run.intervals for runs in sides for run in runs)
    return FEW_INTERVALS if has_some else ONE_WINDOW


def _has_few_beyond(quantity: Quantity, run: Run) -> bool:
    if not isinstance(quantity, Percentile):
        return False
    windows = [part.requests for part in run.intervals if part.requests]
    # Added up, it is the percentile of one interval and rests on that one's requests.
    requests = sorted(windows)[len(windows) // 2] if run.is_added_up and windows else None
    return (run.whole.requests if requests is None else requests) * quantity.beyond < BEYOND_MIN


def _errors(quantity: Quantity, a: Runs, b: Runs) -> Optional[Tuple[Error, Error]]:
    """Of both sides; a side with one run has the scatter of the other's runs."""
    first, second = _error(quantity, a), _error(quantity, b)
    if len(a) == 1 and len(b) > 1:
        first = _larger(first, _scatter(quantity, b))
    if len(b) == 1 and len(a) > 1:
        second = _larger(second, _scatter(quantity, a))
    return None if first is None or second is None else (first, second)


def _error(quantity: Quantity, runs: Runs) -> Optional[Error]:
    within = None
    if all(run.has_noise for run in runs):
        within = noise.of_mean([quantity.error(run.blocks) for run in runs])
    if len(runs) == 1:
        return within
    return _larger(within, noise.of_runs(_values(quantity, runs)))


def _scatter(quantity: Quantity, runs: Runs) -> Error:
    return Error(stdev(_values(quantity, runs)), len(runs) - 1.0)


def _values(quantity: Quantity, runs: Runs) -> Sequence[float]:
    return [v for v in (quantity.value(run.whole) for run in runs) if v is not None]


def _larger(one: Optional[Error], other: Error) -> Error:
    # Runs that agree by chance do not make their intervals scatter less.
    return other if one is None else max(one, other)
