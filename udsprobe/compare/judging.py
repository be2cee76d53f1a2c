"""One figure of two sides: its values, how sure they are, and whether they differ."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Optional, Tuple

from udsprobe.compare import noise, ranks
from udsprobe.compare.comparison import Figure
from udsprobe.compare.errors import Runs, Sides, difference, uses_logs, value
from udsprobe.compare.longer import longer_tells, more_requests_tell
from udsprobe.compare.noise import INTERVALS_MIN, Error
from udsprobe.compare.quantities import BEYOND_MIN, CONTENDED_MIN, Percentile, Quantity, Ratio
from udsprobe.compare.run import Run

NOT_MEASURED = "not measured in {}"
NOTHING = {
    "requests": "no request was served in {}",
    "first_requests": "no connection made its first request in {}",
    "duration_s": "the window of {} has zero length",
}
ONE_WINDOW = (
    "one window does not show its noise; record 10 s of each, or use --jsonl, to get intervals"
)
CONTENDED = (
    "waiting for a CPU may explain it, {:.0f} % of the threads' busy time in {}: "
    "one run of each side cannot tell; repeat the runs"
)
FEW_BEYOND = f"fewer than {BEYOND_MIN} requests lie beyond it"
FEW_INTERVALS = f"needs {INTERVALS_MIN} intervals in which it was measured"


def judged(quantity: Quantity, a: Runs, b: Runs, floor_min: float = 0.0) -> Figure:
    """The figure of both sides.

    Args:
        floor_min: the floor is at least this, in the figure's unit.
    """
    first, second = value(quantity, a), value(quantity, b)
    nothing = (None,) * 5
    if first is None or second is None:
        why = _why_absent(quantity, *(("A", a) if first is None else ("B", b)))
        return Figure(quantity.name, quantity.unit, first, second, *nothing, None, why)
    delta = second - first
    floor = max(quantity.floor(_repeated(a, b)) * max(first, second), floor_min, 0.0)
    figure = Figure(
        quantity.name,
        quantity.unit,
        first,
        second,
        delta,
        _percent_of(first, delta),
        noise=None,
        noise_pct=None,
        floor=floor,
        exceeds_noise=None,
        reason=None,
        ratio=second / first if first > 0 and second >= 0 else None,
    )
    return _judged(figure, quantity, (a, b))


def _percent_of(a: Optional[float], part: float) -> Optional[float]:
    return 100 * part / abs(a) if a else None


def _repeated(*sides: Runs) -> bool:
    return all(len(runs) > 1 for runs in sides)


def _why_absent(quantity: Quantity, side: str, runs: Runs) -> str:
    under = quantity.under if isinstance(quantity, Ratio) else "requests"
    is_nothing = any(run.whole.of(under) == 0 for run in runs)
    return (NOTHING[under] if is_nothing else NOT_MEASURED).format(side)


def _judged(figure: Figure, quantity: Quantity, sides: Sides) -> Figure:
    floor, delta = figure.floor or 0.0, figure.delta or 0.0
    if any(_has_few_beyond(quantity, run) for runs in sides for run in runs):
        assert isinstance(quantity, Percentile)
        more_s = more_requests_tell(quantity, sides)
        return replace(figure, reason=FEW_BEYOND, tells_after_s=more_s)
    error = difference(quantity, sides)
    if error is None or math.isinf(error.value):
        return _without_noise(figure, sides, ONE_WINDOW if error is None else FEW_INTERVALS)
    bounds = ranks.bounds(quantity, sides)
    figure = _with_interval(figure, error, bounds, is_log=uses_logs(quantity, sides))
    if abs(delta) <= floor:
        return replace(figure, exceeds_noise=False)
    if abs(delta) <= (figure.noise or 0.0):
        return longer_tells(quantity, replace(figure, exceeds_noise=False), sides)
    other_load = None if quantity.is_steady else _contended(figure, sides)
    return replace(figure, exceeds_noise=None if other_load else True, reason=other_load)


def _without_noise(figure: Figure, sides: Sides, reason: str) -> Figure:
    if figure.name in ranks.JUDGED and ranks.are_apart(sides, figure):
        return replace(figure, exceeds_noise=True, reason=ranks.SAYS)
    if any(run.intervals for runs in sides for run in runs):
        reason = FEW_INTERVALS
    within = False if abs(figure.delta or 0.0) <= (figure.floor or 0.0) else None
    return replace(figure, exceeds_noise=within, reason=reason)


def _with_interval(
    figure: Figure, error: Error, bounds: Optional[Tuple[float, float]], is_log: bool
) -> Figure:
    """The figure with the interval that its difference lies in, within the bounds of the ranks."""
    width = noise.student_t(error.freedom) * error.value
    if not is_log:
        return replace(figure, noise=width, noise_pct=_percent_of(figure.a, width))
    assert figure.a is not None and figure.ratio is not None
    low, high = figure.ratio * power(-width), figure.ratio * power(width)
    if bounds is not None:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    nearest = low if figure.ratio >= 1 else high
    nearer = figure.a * abs(figure.ratio - nearest)
    return replace(
        figure,
        noise=nearer,
        noise_pct=_percent_of(figure.a, nearer),
        ratio_low=low,
        ratio_high=high,
    )


def power(exponent: float) -> float:
    """e to that power, within what a document can hold."""
    # Beyond, nothing is known; and infinity is no number of a document.
    return math.exp(max(-_EXPONENT_MAX, min(exponent, _EXPONENT_MAX)))


_EXPONENT_MAX = 25.0


def _contended(figure: Figure, sides: Sides) -> Optional[str]:
    """Why one run each is not enough; None when it is, or there are more.

    Threads that wait for a CPU for a part of their time take 1 / (1 − part) as
    long: that much other load can explain, and no more.
    """
    if any(len(runs) > 1 for runs in sides):
        return None
    part, side = max(zip((contention(runs) for runs in sides), "AB"))
    if part < CONTENDED_MIN:
        return None
    if part < 1 and figure.ratio and abs(math.log(figure.ratio)) > -math.log(1 - part):
        return None
    return CONTENDED.format(100 * part, side)


def contention(runs: Runs) -> float:
    """The part of their busy time that threads waited for a CPU; 0 where that is not measured."""
    waited = sum(run.whole.of("runq_us") or 0.0 for run in runs)
    busy = waited + sum(run.whole.of("cpu_us") or 0.0 for run in runs)
    return waited / busy if busy else 0.0


def _has_few_beyond(quantity: Quantity, run: Run) -> bool:
    if not isinstance(quantity, Percentile):
        return False
    return requests_of_percentile(run) * quantity.beyond < BEYOND_MIN


def requests_of_percentile(run: Run) -> float:
    """How many requests a run's percentile rests on."""
    windows = [part.requests for part in run.intervals if part.requests]
    # Added up, it is the percentile of one interval and rests on that one's requests.
    requests = sorted(windows)[len(windows) // 2] if run.is_added_up and windows else None
    return run.whole.requests if requests is None else requests
