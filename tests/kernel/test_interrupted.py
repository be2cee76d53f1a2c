"""Calls that a signal interrupts, whatever its handler does: each is counted once, or told.

The workloads send themselves signals while they sleep in a call, and only then. That 64-bit ones
are counted exactly, under `run` and under `attach`, is in test_calls.py with all other workloads.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Dict, Tuple

import pytest

from tests.kernel import strace, tool
from tests.kernel.cases import FAMILIES_OF_CASE, HANDLED, Case, Truth, command, read_truth
from tests.kernel.conftest import Workload

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

CASES = [
    Case(name, family)
    for name in (*HANDLED, "restarted", "restarted_twice", "interrupted", "retried", "jumped_out")
    for family in FAMILIES_OF_CASE[name]
]
each_case = pytest.mark.parametrize("case", CASES, ids=str)


@each_case
def test_32_bit_programs_are_counted_alike(case: Case, workload: Workload, tmp_path: Path) -> None:
    told = tmp_path / "truth.json"
    report = tool.run(command(workload(32), case, told), tmp_path / "report.json")
    truth = read_truth(told)
    assert tool.rows(report) == truth.rows
    assert tool.impossible_times(report) == []
    assert report["probe"]["calls_left"] == truth.left
    assert report["probe"]["turned_away_by_map"] == {}


def by_name(rows: Dict[strace.Key, strace.Row]) -> Dict[str, Tuple[int, Dict[str, int]]]:
    calls: Counter[str] = Counter()
    errors: Dict[str, Counter[str]] = {}
    for key, row in rows.items():
        calls[key.name] += row.calls
        errors.setdefault(key.name, Counter()).update(row.errors)
    return {name: (calls[name], dict(errors[name])) for name in calls}


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.name.startswith("jumped")], ids=str
)
def test_strace_counts_the_same(
    case: Case, workload: Workload, tmp_path: Path, strace_installed: str
) -> None:
    told = tmp_path / "truth.json"
    traced = strace.rows(command(workload(64), case, told), tmp_path / "trace")
    looks = {"pread64", "nanosleep"}
    truth = read_truth(told)
    expected: Dict[str, Tuple[int, Dict[str, int]]] = {}
    for key, counts in truth.rows.items():
        calls, errors = expected.get(key.name, (0, {}))
        together = Counter(errors) + Counter(counts.errors)
        expected[key.name] = (calls + counts.calls, dict(together))
    seen = by_name(traced)
    for name in set(expected) - looks:
        assert seen[name] == expected[name], name


def assert_lost(report: tool.Report, truth: Truth, lost: int) -> None:
    probe = report["probe"]
    made = sum(truth.calls_by_name().values())
    assert (probe["events_seen"], probe["events_counted"]) == (made, made - lost)
    assert probe["events_lost"]["map_full"] == lost
    assert probe["turned_away_by_map"] == {"interrupted_calls": lost}


def test_what_is_interrupted_beyond_the_room_for_it_is_told(
    workload: Workload, tmp_path: Path
) -> None:
    # Each of four threads that is in a handler takes an entry.
    told = tmp_path / "truth.json"
    environment = {**os.environ, "UDSPROBE_TEST_MAP_BOUNDS": "interrupted_calls=1"}
    case = Case("handlers_in_threads", "unix-stream")
    report = tool.run(command(workload(64), case, told), tmp_path / "report.json", environment)
    assert_lost(report, read_truth(told), 3)


def test_what_is_interrupted_deeper_than_is_followed_is_told(
    workload: Workload, tmp_path: Path
) -> None:
    # Twelve calls are interrupted, each in the handler of the one before; eight are followed.
    told = tmp_path / "truth.json"
    case = Case("handlers_too_deep", "unix-stream")
    report = tool.run(command(workload(64), case, told), tmp_path / "report.json")
    assert_lost(report, read_truth(told), 4)
