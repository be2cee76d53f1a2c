"""What casts doubt on a comparison: other machines, other load, losses, another protocol."""

from __future__ import annotations

from typing import Callable, Hashable, Iterator, List, Set

from udsprobe.compare.errors import Runs
from udsprobe.compare.judging import contention
from udsprobe.compare.quantities import CONTENDED_MIN
from udsprobe.compare.tally import About
from udsprobe.rules.wording import count

RATE_APART_MAX = 1.25
"""Queues, caches and batching depend on load: latencies at other rates are of another thing."""


def caveats(a: Runs, b: Runs) -> List[str]:
    """One sentence each; none for two sides that can be compared."""
    return [*_apart(a, b), *_load(a, b), *_of_side("A", a), *_of_side("B", b)]


def _apart(a: Runs, b: Runs) -> Iterator[str]:
    for what, of in _SAME:
        if _all(a, of) != _all(b, of):
            yield f"A and B were measured {what}"


_SAME = (
    ("on different machines", lambda about: about.hostname),
    ("under different kernels", lambda about: about.kernel),
    ("with different numbers of CPUs", lambda about: about.cpus),
    ("by different strategies, whose cost differs", lambda about: about.strategy),
    ("in different detail, whose cost differs", lambda about: about.detail),
)


def _all(runs: Runs, of: Callable[[About], Hashable]) -> Set[Hashable]:
    return {of(about) for run in runs for about in run.about}


def _load(a: Runs, b: Runs) -> Iterator[str]:
    rates = [_rate(a), _rate(b)]
    if min(rates) and max(rates) / min(rates) > RATE_APART_MAX:
        yield (
            f"they served {rates[0]:,.0f} and {rates[1]:,.0f} requests/s, "
            "so latency and CPU are at different loads"
        )


def _rate(runs: Runs) -> float:
    seconds = sum(run.whole.of("duration_s") or 0.0 for run in runs)
    return sum(run.whole.requests for run in runs) / seconds if seconds else 0.0


def _of_side(side: str, runs: Runs) -> Iterator[str]:
    every = [about for run in runs for about in run.about]
    lost = sum(about.lost for about in every)
    if lost:
        yield f"{side} lost {count(lost, 'event')}: its counts are too low"
    part = contention(runs)
    if part >= CONTENDED_MIN:
        yield (
            f"threads of {side} waited for a CPU for {100 * part:.0f} % of their busy time: "
            "its times include waiting for busy CPUs"
        )
    if any(about.turned_away for about in every):
        yield (
            f"{side} had no room in its maps for all connections or threads: its counts are too low"
        )
    if any(about.turn_based is False for about in every):
        yield f"clients of {side} did not wait for replies, so a turn there is not one request"
    idle = sum(not part.requests for run in runs for part in run.intervals)
    if idle and any(run.whole.requests for run in runs):
        whole = sum(len(run.intervals) for run in runs)
        yield f"{idle} of {count(whole, 'interval')} of {side} served no request"
