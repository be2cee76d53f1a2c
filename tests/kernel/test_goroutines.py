"""Goroutines that wait for one another: so many in each function as the program says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.conftest import Require
from tests.kernel.test_code import attach, built, observed, spinning

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

WAITING = {
    "main.plantedMutex": 50,
    "main.plantedShared": 3,
    "main.plantedGroup": 7,
    "main.plantedCond": 5,
    "main.plantedSend": 30,
    "main.plantedReceive": 20,
    "main.plantedSelect": 10,
    "main.plantedDeep": 2,
    "main.plantedHolder": 1,
}
BUILDS: Dict[str, List[str]] = {
    "plain": ["build"],
    "stripped": ["build", "-ldflags=-s -w"],
    "pie": ["build", "-buildmode=pie"],
    "stripped-pie": ["build", "-buildmode=pie", "-ldflags=-s -w"],
}


def parked(stacks: Dict[str, Any]) -> Counter[str]:
    """How often goroutines were met in each of the planted functions."""
    found: Counter[str] = Counter()
    for row in stacks["stacks"]:
        names = [frame.partition(" (")[0] for frame in row["frames"]]
        if row["on"] == "off-cpu" and "runtime.gopark" in names:
            assert not row["truncated"]
            planted = {name for name in names if name.startswith("main.planted")}
            found[planted.pop() if len(planted) == 1 else str(names)] += row["samples"]
    return found


@pytest.mark.parametrize("build", BUILDS)
def test_all_that_wait_are_met_where_they_wait(
    build: str, tmp_path: Path, require: Require
) -> None:
    """And nobody else: nine more wait for a connection, which the kernel sees."""
    argv = built("parked.go", tmp_path, require, *BUILDS[build])
    found = parked(observed(argv, tmp_path, "--stacks")["stacks"])
    looks = found["main.plantedHolder"]
    assert looks >= 2
    assert found == {name: looks * count for name, count in WAITING.items()}


def test_each_is_told_with_the_time_it_was_watched(tmp_path: Path, require: Require) -> None:
    with spinning(built("parked.go", tmp_path, require, "build")) as process:
        stacks = attach(process.pid, tmp_path, "--stacks")["stacks"]
    (calls,) = (each["calls"] for each in stacks["sleeps"]["processes"])
    (goroutines,) = (each for each in calls if each["call"] == "goroutine")
    each_us = goroutines["total_us"] / sum(WAITING.values())
    # All but what was watched after the last look.
    assert 0.5 * stacks["sleeps"]["watched_s"] <= each_us / 1e6 <= stacks["sleeps"]["watched_s"]
    most = goroutines["code"][0]
    assert "main.plantedMutex" in most["own"]
    assert most["share_pct"] == pytest.approx(100 * 50 / sum(WAITING.values()), abs=0.001)
