"""CPUs that targets may use, against sched_getaffinity(2); what lifts the limit, by doing it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

import pytest

from tests.kernel.cpuset import Cpuset
from tests.kernel.tool import Attached
from udsprobe.kernel.proc.cpu_files import cpu_times
from udsprobe.model.action import Action
from udsprobe.model.report import CpuAffinity
from udsprobe.rules.remedy import cpus

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"),
]
ALL = os.sched_getaffinity(0)
FIRST = min(ALL)


@pytest.fixture
def target() -> Iterator[int]:
    """A process that waits, of two threads."""
    program = "import threading; threading.Thread(target=input).start()"
    with subprocess.Popen(["python3", "-c", program], stdin=subprocess.PIPE) as process:
        while len(os.listdir(f"/proc/{process.pid}/task")) < 2:
            assert process.poll() is None
        yield process.pid
        process.communicate(b"\n")


def ticks() -> int:
    """Of the other CPUs: with less the window has no share of them."""
    times = cpu_times(Path("/proc/stat").read_text())
    return sum(each.total for cpu, each in times.items() if cpu != FIRST)


def affinity(pid: int, tmp_path: Path) -> Dict[str, Any]:
    """The only row of a report."""
    with Attached(["--pid", str(pid)], tmp_path) as watched:
        began = ticks()
        while ticks() < began + 2:
            time.sleep(0.01)
    (row,) = watched.report["cpu"]["affinities"]
    found: Dict[str, Any] = row
    return found


def action(row: Dict[str, Any]) -> Action:
    (found,) = cpus.confined(CpuAffinity(**row), "python3")
    return found


def run(line: Optional[str], tmp_path: Path) -> None:
    """As root, on machines that may have no sudo."""
    assert line is not None
    script = f'sudo() {{ "$@"; }}\n{line}'
    subprocess.run(["bash", "-c", script], check=True, capture_output=True, cwd=tmp_path)


def masks(pid: int) -> list[set[int]]:
    return [os.sched_getaffinity(int(tid)) for tid in os.listdir(f"/proc/{pid}/task")]


def test_by_taskset_and_back(target: int, tmp_path: Path) -> None:
    subprocess.run(["taskset", "-apc", str(FIRST), str(target)], check=True, capture_output=True)
    row = affinity(target, tmp_path)
    assert (row["cpus"], row["pids"], row["cpusets"]) == ([FIRST], [target], [])
    assert set(row["others"]) >= ALL - {FIRST}
    assert 0 <= row["others_idle_pct"] <= 100
    run(action(row).run, tmp_path)
    assert masks(target) == [ALL, ALL]
    run(action(row).undo, tmp_path)
    assert masks(target) == [{FIRST}, {FIRST}]


def test_by_a_cpuset_and_back(target: int, tmp_path: Path) -> None:
    with Cpuset() as cpuset:
        cpuset.add(target)
        row = affinity(target, tmp_path)
        assert (row["cpus"], row["cpusets"]) == ([cpuset.cpu], [f"{cpuset.path}/cpuset.cpus"])
        run(action(row).run, tmp_path)
        assert masks(target) == [ALL, ALL]
        run(action(row).undo, tmp_path)
        assert masks(target) == [{cpuset.cpu}, {cpuset.cpu}]
        _leave(target, cpuset)


def _leave(pid: int, cpuset: Cpuset) -> None:
    (cpuset.path.parent / "cgroup.procs").write_text(str(pid))


def test_one_that_may_run_everywhere_has_no_row(target: int, tmp_path: Path) -> None:
    with Attached(["--pid", str(target)], tmp_path) as watched:
        pass
    assert watched.report["cpu"]["affinities"] == []
