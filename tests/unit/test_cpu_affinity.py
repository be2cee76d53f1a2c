"""Targets that may not run on every CPU: masks of real processes, cpusets from files made up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Dict, Iterator, Tuple

import pytest

from udsprobe.kernel.proc.cgroups import CgroupMount
from udsprobe.kernel.proc.cpu_affinity import AffinityTable, CpuTime
from udsprobe.kernel.proc.cpu_files import cpu_times
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.sample import AffinityReading

# CPUs that this machine may not have are online in these tests.
ABSENT = (1000, 1001)
STAT = """cpu  8 0 0 85 7 0 0 0 0 0
cpu0 4 1 2 80 5 3 2 1 9 9
cpu3 4 0 0 5 2 0 0 0 0 0
intr 1
procs_running 1
"""


def online(*more: int) -> Dict[int, CpuTime]:
    return {cpu: CpuTime(cpu + 7, 2 * cpu + 9) for cpu in (*os.sched_getaffinity(0), *more)}


class Child:
    """A process that has begun to run a program of its own."""

    def __enter__(self) -> Child:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None and self._process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(b"\n")


@pytest.fixture
def child() -> Iterator[Child]:
    with Child() as process:
        yield process


def table(*hierarchies: CgroupMount) -> AffinityTable:
    return AffinityTable(Procfs(), hierarchies)


def test_one_that_may_run_everywhere_has_no_row(child: Child) -> None:
    assert table().read({child.pid}, online()) == ()


def test_those_alike_are_one_row(child: Child) -> None:
    own = tuple(sorted(os.sched_getaffinity(0)))
    with Child() as other:
        (row,) = table().read({child.pid, other.pid}, online(*ABSENT))
    pids = tuple(sorted((child.pid, other.pid)))
    assert row == AffinityReading(own, ABSENT, pids, (), 1007 + 1008, 2009 + 2011)


def test_a_process_that_has_ended_has_no_row() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert table().read({ended.pid}, online(*ABSENT)) == ()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_threads_that_were_spread_by_the_program_are_no_limit() -> None:
    first = min(os.sched_getaffinity(0))
    gone, there = threading.Event(), threading.Event()

    def pinned() -> None:
        os.sched_setaffinity(0, {first})
        there.set()
        gone.wait()

    thread = threading.Thread(target=pinned)
    thread.start()
    there.wait()
    try:
        assert table().read({os.getpid()}, online(*ABSENT)) == ()
    finally:
        gone.set()
        thread.join()


@pytest.mark.parametrize("version", [1, 2])
def test_a_cpuset_is_named_with_those_above_that_limit_too(
    tmp_path: Path, version: int, child: Child
) -> None:
    own = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    cpusets = tmp_path / "cpuset"
    proc = tmp_path / "proc"
    write(proc / str(child.pid) / "cgroup", f"4:{'cpuset' if version == 1 else ''}:/a/b/c\n")
    write(proc / str(child.pid) / "task" / str(child.pid) / "stat", "")
    effective = "cpuset.effective_cpus" if version == 1 else "cpuset.cpus.effective"
    for path, cpus, allowed in (
        ("", f"{own},1000-1001", f"{own},1000-1001"),
        ("a", f"{own},1000", f"{own},1000"),
        ("a/b", own, own),
        ("a/b/c", "", own),
    ):
        write(cpusets / path / "cpuset.cpus", f"{cpus}\n")
        write(cpusets / path / effective, f"{allowed}\n")
    write(cpusets / "cgroup.controllers", "cpuset cpu\n")
    controllers = frozenset(("cpuset",)) if version == 1 else frozenset()
    found = AffinityTable(Procfs(str(proc)), [CgroupMount(cpusets, True, version, controllers)])
    (row,) = found.read({child.pid}, online(*ABSENT))
    assert row.cpusets == (f"{cpusets}/a/cpuset.cpus", f"{cpusets}/a/b/cpuset.cpus")
    # The group would allow more: the process was told so by sched_setaffinity(2).
    write(cpusets / "a/b/c" / effective, f"{own},1000\n")
    again = AffinityTable(Procfs(str(proc)), [CgroupMount(cpusets, True, version, controllers)])
    assert again.read({child.pid}, online(*ABSENT))[0].cpusets == ()


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("text", "times"),
    [
        (STAT, {0: (85, 98), 3: (7, 11)}),
        ("", {}),
        ("cpu  1 2\n", {}),
        ("cpu0 1 2 3\n", {}),
        ("cpux 1 2 3 4 5 6 7 8\n", {}),
    ],
)
def test_each_cpus_time(text: str, times: Dict[int, Tuple[int, int]]) -> None:
    assert cpu_times(text) == {cpu: CpuTime(*time) for cpu, time in times.items()}
