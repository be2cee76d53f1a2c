"""The comparison with other tools: every arm runs, and the outputs are complete. No timing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

from scripts.bench.cost.tools import TOOLS
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.root, pytest.mark.alone]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Any]:
    output = tmp_path_factory.mktemp("peers")
    words = ["--only", "socketpair,idle", "--rounds", "1", "--seconds", "0.05"]
    command = [sys.executable, ROOT / "scripts/bench/peers", *words, "--output", output]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=4 * PATIENCE_S)
    assert (output / "peers.svg").read_text().rstrip().endswith("</svg>")
    table = (output / "peers.md").read_text()
    assert all(f"| {name} |" in table for name in ("nothing", "empty", "udsprobe"))
    loaded: Dict[str, Any] = json.loads((output / "peers.json").read_text())
    return loaded


def test_every_tool_ran_or_says_why(document: Dict[str, Any]) -> None:
    for load in document["loads"].values():
        assert set(load["tools"]) | set(load["reasons"]) == {tool.name for tool in TOOLS}
        assert not set(load["tools"]) & set(load["reasons"])


def test_every_call_of_the_load_was_counted(document: Dict[str, Any]) -> None:
    load = document["loads"]["socketpair"]
    assert load["tools"]["udsprobe"]["calls_made"] > 0
    assert load["tools"]["udsprobe"]["calls_not_counted"] == 0
    assert load["tools"]["udsprobe"]["events_told_lost"] == 0


def test_each_measurement_is_kept(document: Dict[str, Any]) -> None:
    for load in document["loads"].values():
        for name, rounds in load["rounds"].items():
            assert [one["round"] for one in rounds] == [0], name
