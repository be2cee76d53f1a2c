"""Threads and processes that are started and refused, against a program and a cgroup that count."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import pytest

from tests.kernel.hierarchy import hierarchy
from tests.kernel.tool import Attached
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.root]
PROGRAM = Path(__file__).resolve().parents[1] / "workloads" / "starting.py"
NOBODY_ELSE = 61_337
"""A user without another process."""


class Starting:
    """The program, and what it tried since it was started."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process
        self.tried = self.refused = 0

    def do(self, line: str) -> Tuple[int, int]:
        """How many starts it tried for that, and how many were refused."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        tried, refused = map(int, self._process.stdout.readline().split())
        self.tried, self.refused = self.tried + tried, self.refused + refused
        return tried, refused


@contextmanager
def starting() -> Iterator[Starting]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, str(PROGRAM)], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield Starting(process)
        finally:
            process.stdin.close()
            process.wait(PATIENCE_S)


class Tasks:
    """A cgroup that allows so many threads, above one that allows more and has the program."""

    def __init__(self, most: int) -> None:
        _, root = hierarchy("pids")
        self.path = root / f"udsprobe-test-{os.getpid()}"
        self.below = self.path / "below"
        self._most = most

    def __enter__(self) -> Tasks:
        for path in (self.path, self.below):
            path.mkdir()
        (self.path / "pids.max").write_text(str(self._most))
        (self.below / "pids.max").write_text(str(self._most + 100))
        return self

    def add(self, pid: int) -> None:
        (self.below / "cgroup.procs").write_text(str(pid))

    def refusals(self) -> int:
        """As the kernel counts: where the fork failed, or, since 6.11 in v2, whose limit it is."""
        texts = [(path / "pids.events").read_text() for path in (self.path, self.below)]
        return max(int(text.split()[1]) for text in texts)

    def __exit__(self, *_: object) -> None:
        self.below.rmdir()
        self.path.rmdir()


def row_of(watched: Attached) -> Dict[str, Any]:
    (row,) = watched.report["starts"]
    found: Dict[str, Any] = row
    return found


def test_what_the_cgroup_above_refuses_is_counted(tmp_path: Path) -> None:
    with Tasks(8) as tasks, starting() as program:
        tasks.add(program.pid)
        with Attached(["--pid", str(program.pid)], tmp_path) as watched:
            assert program.do("threads 12") == (12, 5)
            if platform.machine() == "x86_64":
                assert program.do("raw 3") == (3, 3)
            program.do("end")
            assert program.do("forks 9") == (9, 2)
            assert program.do("spawns 4") == (4, 4)
            program.do("end")
            assert program.do("spawns 5") == (5, 0)
            program.do("threads 4")
        row, refused = row_of(watched), program.refused
        assert tasks.refusals() == refused >= 13
        assert row["limit"] == {
            "name": "pids.max",
            "limit": 8,
            "used": 8,
            "cgroup": f"/{tasks.path.name}",
            "file": f"{tasks.path}/pids.max",
        }
    assert (row["started"], row["refused"]) == (program.tried - refused, refused)
    assert (row["refused_by_errno"], row["pids"]) == ({"EAGAIN": refused}, [program.pid])


def test_the_limit_of_its_user(tmp_path: Path) -> None:
    with starting() as program:
        program.do(f"user {NOBODY_ELSE} 4")
        with Attached(["--pid", str(program.pid)], tmp_path) as watched:
            assert program.do("threads 7") == (7, 4)
        row = row_of(watched)
    assert (row["started"], row["refused_by_errno"]) == (3, {"EAGAIN": 4})
    limit = {"name": "RLIMIT_NPROC", "limit": 4, "used": 4, "cgroup": None, "file": None}
    assert row["limit"] == limit


def test_of_a_child_that_ended_its_parents_limit_is_told(tmp_path: Path) -> None:
    with Tasks(2) as tasks, starting() as program:
        tasks.add(program.pid)
        with Attached(["--pid", str(program.pid)], tmp_path) as watched:
            assert program.do("child 6") == (7, 6)
        row = row_of(watched)
        assert tasks.refusals() == 6
    assert (row["started"], row["refused"]) == (1, 6)
    assert row["limit"]["limit"] == 2


def test_who_starts_all_that_it_wants_is_refused_nothing(tmp_path: Path) -> None:
    with starting() as program, Attached(["--pid", str(program.pid)], tmp_path) as watched:
        program.do("threads 20")
        program.do("forks 3")
    row = row_of(watched)
    assert (row["started"], row["refused"], row["limit"]) == (23, 0, None)


def test_at_detail_light_it_is_not_measured(tmp_path: Path) -> None:
    selectors = ["--detail", "light", "--pid"]
    with (
        starting() as program,
        Attached([*selectors, str(program.pid)], tmp_path) as watched,
    ):
        program.do("threads 3")
    assert watched.report["starts"] is None
