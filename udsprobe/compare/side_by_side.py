"""A and B → the comparison: figures, stages, system calls, and what is to be said about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Iterable, List, Optional, Sequence

from udsprobe import __version__
from udsprobe.compare.caveats import caveats
from udsprobe.compare.code_shares import code_shares
from udsprobe.compare.comparison import Comparison, Figure, Noise, Side
from udsprobe.compare.errors import Runs
from udsprobe.compare.judging import judged
from udsprobe.compare.noise import CONFIDENCE_PCT, INTERVALS_MIN
from udsprobe.compare.quantities import (
    APP_FIGURES,
    FIGURES,
    STAGE_FIGURES,
    STAGE_FLOOR,
    Calls,
    Ratio,
)
from udsprobe.compare.summary import is_different, summary
from udsprobe.compare.tally import About

_FIGURES_SAY = {
    "runs": "the spread of the repeated runs of each side",
    "intervals": "the spread of the intervals of each run; runs of the same setup can differ "
    "by more, which only repeated runs show",
    None: f"not known: needs repeated runs of each side, or {INTERVALS_MIN} intervals (--jsonl)",
}


def compare(a: Runs, b: Runs) -> Comparison:
    """Put two sides side by side.

    Args:
        a, b: the runs of each side, one or more.
    """
    if any(run.is_added_up for run in (*a, *b)):
        # Percentiles of like kind: of a window they are others than of its intervals.
        a, b = ([run.by_intervals for run in runs] for runs in (a, b))
    figures = [judged(quantity, a, b) for quantity in FIGURES]
    stages = _parts(STAGE_FIGURES, a, b, figures[0])
    app = _parts(APP_FIGURES, a, b, figures[0])
    calls = _calls(a, b)
    sides = _side(a), _side(b)
    taken_from = _noise_from(a, b)
    return Comparison(
        version=__version__,
        a=sides[0],
        b=sides[1],
        summary=summary(sides, figures, (stages, app), calls),
        different=is_different(figures),
        noise=Noise(taken_from, CONFIDENCE_PCT, _FIGURES_SAY[taken_from]),
        figures=figures,
        stages=stages,
        syscalls=calls,
        caveats=caveats(a, b),
        app=app,
        code=code_shares(a, b),
    )


def _parts(quantities: Sequence[Ratio], a: Runs, b: Runs, mean: Figure) -> List[Figure]:
    """Of the mean latency: the deltas of the stages add up to its delta."""
    smallest = STAGE_FLOOR * max(mean.a or 0.0, mean.b or 0.0)
    rows = [judged(quantity, a, b, smallest) for quantity in quantities]
    return [replace(row, share_of_delta_pct=_share_pct(row, mean)) for row in rows]


def _share_pct(stage: Figure, mean: Figure) -> Optional[float]:
    if stage.delta is None or not mean.delta:
        return None
    return 100 * stage.delta / mean.delta


def _calls(a: Runs, b: Runs) -> List[Figure]:
    """Each system call per request, what changed most first."""
    names = {name for run in (*a, *b) for name in run.whole.by_syscall}
    rows = [judged(Calls(name), a, b) for name in sorted(names)]
    return sorted(rows, key=lambda row: -abs(row.delta or 0.0))


def _noise_from(a: Runs, b: Runs) -> Optional[str]:
    if len(a) > 1 or len(b) > 1:
        return "runs"
    return "intervals" if a[0].has_noise and b[0].has_noise else None


def _side(runs: Runs) -> Side:
    every = [about for run in runs for about in run.about]
    first = every[0]
    is_added_up = any(run.is_added_up for run in runs)
    served = [run.whole.of("requests") for run in runs]
    return Side(
        sources=[run.name for run in runs],
        runs=len(runs),
        intervals=sum(len(run.intervals) for run in runs),
        start=first.start,
        duration_s=sum(run.whole.of("duration_s") or 0.0 for run in runs),
        requests=None if None in served else round(sum(n or 0.0 for n in served)),
        percentiles_from="intervals" if is_added_up else "window",
        hostname=first.hostname,
        kernel=first.kernel,
        cpus=first.cpus,
        versions=_each(every, lambda about: [about.version]),
        targets=_each(every, lambda about: about.targets),
        served_on=_each(every, lambda about: about.served_on),
    )


def _each(every: Iterable[About], names: Callable[[About], Sequence[str]]) -> List[str]:
    return list(dict.fromkeys(name for about in every for name in names(about)))
