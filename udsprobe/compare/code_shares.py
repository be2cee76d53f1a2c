"""Which functions take another part of the CPU time than before, by samples of stacks."""

from __future__ import annotations

import math
from collections import Counter
from typing import List, NamedTuple

from udsprobe.compare.comparison import CodeShare
from udsprobe.compare.errors import Runs

SHOWN_MAX = 30
SAMPLES_MIN = 20
"""Of each side: with fewer no part is told."""

# 99 % of a normal distribution lies within.
_DEVIATIONS = 2.576


class _Seen(NamedTuple):
    samples: int
    whole: int

    @property
    def share(self) -> float:
        return self.samples / self.whole

    def corrected(self) -> _Seen:
        """One more that was in the function and one that was not (Agresti and Caffo, 2000)."""
        return _Seen(self.samples + 1, self.whole + 2)

    def variance(self) -> float:
        return self.share * (1 - self.share) / self.whole


def code_shares(a: Runs, b: Runs) -> List[CodeShare]:
    """Functions of both sides, what changed most first; empty where one side has no samples."""
    before, after = _by_function(a), _by_function(b)
    whole_a, whole_b = _whole(a), _whole(b)
    if min(whole_a, whole_b) < SAMPLES_MIN:
        return []
    found = [
        _compared(name, _Seen(before[name], whole_a), _Seen(after[name], whole_b))
        for name in sorted({*before, *after})
    ]
    return sorted(found, key=lambda each: -abs(each.delta_pct))[:SHOWN_MAX]


def _compared(name: str, a: _Seen, b: _Seen) -> CodeShare:
    fair_a, fair_b = a.corrected(), b.corrected()
    middle = fair_b.share - fair_a.share
    around = _DEVIATIONS * math.sqrt(fair_a.variance() + fair_b.variance())
    return CodeShare(
        function=name,
        a_pct=100 * a.share,
        b_pct=100 * b.share,
        delta_pct=100 * (b.share - a.share),
        low_pct=100 * max(-1.0, middle - around),
        high_pct=100 * min(1.0, middle + around),
        exceeds_noise=abs(middle) > around,
    )


def _by_function(runs: Runs) -> Counter[str]:
    found: Counter[str] = Counter()
    for run in runs:
        found.update(run.whole.by_function)
    return found


def _whole(runs: Runs) -> int:
    return sum(run.whole.samples for run in runs)
