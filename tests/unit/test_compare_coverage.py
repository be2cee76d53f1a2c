"""Intervals hold the truth as often as they say: simulated runs whose true ratio is known."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Callable, Dict, List, Tuple

import pytest

from tests.unit.compared import made
from udsprobe.compare.errors import difference
from udsprobe.compare.judging import judged
from udsprobe.compare.noise import blocks
from udsprobe.compare.quantities import MEAN
from udsprobe.compare.run import Run
from udsprobe.compare.tally import added, tally

PAIRS = 500
TRUTH = 3.0
ONE = tally(made())
# Student's t at 0.975 by degrees of freedom (any table of t); beyond 30 by its expansion.
T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)

Interval = Tuple[float, int]
"""The time that all its requests took together, and how many there were."""

Load = Callable[[random.Random, Dict[str, float]], Interval]


def even(chance: random.Random, _: Dict[str, float]) -> Interval:
    return chance.gammavariate(60, 1.0), 60


def long_tailed(chance: random.Random, _: Dict[str, float]) -> Interval:
    """One request in a hundred takes fifty times as long."""
    slow = (50 * chance.expovariate(1) if chance.random() < 0.01 else 1.0 for _ in range(60))
    return sum(slow), 60


def bursts(chance: random.Random, state: Dict[str, float]) -> Interval:
    """Spells of more requests that take five times as long."""
    state["is_burst"] = chance.random() < (0.7 if state.get("is_burst") else 0.1)
    requests = 90 if state["is_burst"] else 60
    return chance.gammavariate(requests, 5.0 if state["is_burst"] else 1.0), requests


def drift(chance: random.Random, state: Dict[str, float]) -> Interval:
    """Each interval resembles the one before, and a closed loop asks less when it is slow."""
    state["x"] = 0.7 * state.get("x", 0.0) + chance.gauss(0, 0.1)
    slowed = math.exp(state["x"])
    requests = round(60 / slowed)
    return chance.gammavariate(requests, slowed), requests


def intervals(load: Load, seed: int, count: int, scale: float) -> List[Interval]:
    chance, state = random.Random(seed), {}  # type: Tuple[random.Random, Dict[str, float]]
    for _ in range(20):  # the process forgets how it began
        load(chance, state)
    return [
        (scale * time, requests) for time, requests in (load(chance, state) for _ in range(count))
    ]


def of(parts: List[Interval]) -> Run:
    tallies = [replace(ONE, sums={**ONE.sums, "latency_us": t, "requests": n}) for t, n in parts]
    return Run("run", added(tallies), tallies, True, (), blocks(tallies))


def t95(freedom: float) -> float:
    whole = max(1, int(freedom))
    return T95[whole - 1] if whole <= len(T95) else 1.96 + 2.5 / whole


@pytest.mark.parametrize(
    ("load", "count"),
    [(even, 5), (even, 30), (long_tailed, 10), (bursts, 20), (bursts, 60), (drift, 60)],
)
def test_intervals_cover_the_truth(load: Load, count: int) -> None:
    covered, printed = 0, 0
    for seed in range(PAIRS):
        a = of(intervals(load, 2 * seed, count, 1.0))
        b = of(intervals(load, 2 * seed + 1, count, TRUTH))
        error = difference(MEAN, ([a], [b]))
        figure = judged(MEAN, [a], [b])
        assert error is not None
        assert figure.ratio and figure.ratio_low and figure.ratio_high
        apart = abs(math.log(figure.ratio / TRUTH))
        covered += apart <= t95(error.freedom) * error.value
        printed += figure.ratio_low <= TRUTH <= figure.ratio_high
    assert 0.9 <= covered / PAIRS <= 0.99
    assert printed / PAIRS >= 0.96
