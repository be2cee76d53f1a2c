"""docs/overhead.md from raw figures: every block is written, goals are judged by their interval."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict

import pytest

from scripts.bench.cost.document import BLOCK, BLOCKS, NOT_MEASURED, Figure, written

MACHINE: Dict[str, Any] = {
    "date": "2026-01-01",
    "cpus": 2,
    "memory_kb": 4 << 20,
    "kernel": "6.18",
    "arch": "x86_64",
    "load_average_before": 0.0,
    "took_s": 60.0,
    "versions": {"nginx": "nginx version: nginx/1.22.1", "perf": "not installed"},
}
NGINX = {
    "requests_lost_pct": {"median": 1.0, "low": -2.0, "high": 2.5, "rounds": 20},
    "p99_shift_pct": {"median": 4.0, "low": -3.0, "high": 9.0, "rounds": 20},
}
CASE = {
    "own_cpu_pct": 3.4,
    "rss_mb": 35.0,
    "attach_s": 0.5,
    "calls_made": 1000,
    "calls_counted": 1000,
    "turned_away": 0,
    "maps_bytes": 1_500_000,
}
RAW: Dict[str, Any] = {
    "machine": MACHINE,
    "nginx_node": {"loads": {"nginx-node": {"tools": {"udsprobe": NGINX}}}},
    "scale": {"busy-1000": CASE, "idle-1000": {"reason": "it failed"}},
}


def block(name: str, raw: Dict[str, Any]) -> str:
    return written(f"<!-- bench: {name} -->\nold\n<!-- /bench -->", raw)


def test_the_page_has_every_block_once(repository: Path) -> None:
    page = (repository / "docs/overhead.md").read_text()
    assert sorted(found[2] for found in BLOCK.finditer(page)) == sorted(BLOCKS)


def test_what_was_not_measured_is_said(repository: Path) -> None:
    page = written((repository / "docs/overhead.md").read_text(), {"machine": MACHINE})
    assert all(NOT_MEASURED in found[0] for found in BLOCK.finditer(page) if found[2] != "machine")
    assert written(page, {"machine": MACHINE}) == page


def test_goals_are_judged_by_the_interval() -> None:
    goals = block("goals", RAW)
    assert re.search(r"20 alternations.*\| ≤ 3 % \| 1.0 % \(-2.0 to 2.5\) \| met \|", goals)
    assert "| ≤ 5 % | 4.0 % (-3.0 to 9.0) | not settled (met in the median) |" in goals
    assert "1,000 connections followed | ≤ 1 % | busy 3.4 % | missed |" in goals


def test_the_floor_stands_beside_a_service() -> None:
    tools = {"udsprobe": NGINX, "empty": {"requests_lost_pct": {"median": 4.7}}}
    goals = block("goals", {"nginx_node": {"loads": {"nginx-node": {"tools": tools}}}})
    assert "| 1.0 % (-2.0 to 2.5), the empty pair alone 4.7 % |" in goals
    assert "| met, the empty pair alone missed |" in goals


@pytest.mark.parametrize(
    ("figure", "at_least", "verdict"),
    [
        (Figure(3.0), False, "met"),
        (Figure(3.1), False, "missed"),
        (Figure(70, 61, 90), True, "met"),
        (Figure(50, 40, 59), True, "missed"),
        (Figure(50, 40, 65), True, "not settled (missed in the median)"),
    ],
)
def test_a_goal(figure: Figure, at_least: bool, verdict: str) -> None:
    assert figure.meets(60 if at_least else 3.0, at_least) == verdict


def test_cases_of_scale_and_versions() -> None:
    assert "| busy-1000 | 3.4 | 35 | 0.50 | 1,000 | 1,000 | 0 | 1.5 |" in block("scale", RAW)
    assert "idle-1000" not in block("scale", RAW)
    assert "nginx 1.22.1; perf not installed" in block("machine", RAW)
