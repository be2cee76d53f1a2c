"""Descriptors that run out, against a program that counts its refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.kernel.tool import Attached

pytestmark = [pytest.mark.root]
PROGRAM = Path(__file__).resolve().parents[1] / "workloads" / "exhausted_fds.py"
LIMIT, REFUSALS = 150, 23


class Exhausted:
    """The program: idle, then out of descriptors, then idle again."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(LIMIT), str(REFUSALS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def run_out(self) -> Dict[str, Any]:
        """Its own truth."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        truth: Dict[str, Any] = json.loads(self._process.stdout.readline())
        return truth

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait() == 0


def test_descriptors_that_run_out(tmp_path: Path) -> None:
    program = Exhausted()
    held = len(list(Path(f"/proc/{program.pid}/fd").iterdir()))
    with Attached(["--pid", str(program.pid)], tmp_path) as watched:
        truth = program.run_out()
    (target,) = watched.report["targets"]
    fds, window = target["fds"], watched.report["window"]
    assert (fds["open"], fds["limit"]) == (truth["open"], LIMIT)
    assert (fds["exhausted"], fds["exhausted_by_errno"]) == (REFUSALS, {"EMFILE": REFUSALS})
    assert truth["refused"] == REFUSALS
    # The length is shown to 1 ms.
    grown = fds["growth_per_s"] * window["duration_s"]
    assert grown == pytest.approx(truth["open"] - held, abs=0.001 * fds["growth_per_s"])
    assert fds["full_in_s"] == pytest.approx(3 / fds["growth_per_s"], abs=0.001)
    program.end()


def test_refusals_of_a_process_that_ended(tmp_path: Path) -> None:
    program = Exhausted()
    watched = Attached(["--pid", str(program.pid)], tmp_path, ending=None)
    watched.__enter__()
    program.run_out()
    program.end()
    watched.__exit__()
    (target,) = watched.report["targets"]
    assert (target["state"], target["fds"]["exhausted"]) == ("exited", REFUSALS)
    assert target["fds"]["growth_per_s"] is None


def test_files_of_the_host(tmp_path: Path) -> None:
    program = Exhausted()
    with Attached(["--pid", str(program.pid)], tmp_path) as watched:
        pass
    program.end()
    _, _, limit = Path("/proc/sys/fs/file-nr").read_text().split()
    host = watched.report["host"]
    assert host["file_max"] == int(limit)
    assert 0 < host["files_open"] <= host["file_max"]
    assert watched.report["targets"][0]["fds"]["exhausted"] == 0
