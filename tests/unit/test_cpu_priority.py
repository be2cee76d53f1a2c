"""What decides how two processes share a CPU, from files that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

from udsprobe.kernel.proc.cgroups import CgroupMount
from udsprobe.kernel.proc.cpu_priority import CpuPriorities
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.sample import CpuPriority, LoweredPriority

TARGET, OTHER = 10, 20
USUAL_WEIGHT = {1: 1024, 2: 100}
STAT = "{pid} (a) b) S 1 {pid} {pid} 0 -1 0 0 0 0 0 1 2 0 0 {priority} {nice} 1 0 500 0 0\n"


class Host:
    """A /proc and a cgroup hierarchy."""

    def __init__(self, root: Path, version: int = 2) -> None:
        self.proc, self.cgroups, self.version = root / "proc", root / "cgroup", version
        self.cgroups.mkdir()
        (self.cgroups / "cgroup.controllers").write_text("cpu memory\n")
        if version == 1:
            # Of version 1 the root has one, too.
            (self.cgroups / "cpu.shares").write_text("1024\n")
        self.sessions(1)

    def sessions(self, enabled: Optional[int]) -> None:
        file = self.proc / "sys/kernel/sched_autogroup_enabled"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{enabled}\n")

    def cgroup(self, path: str, weight: Optional[int] = None) -> Path:
        """One with a CPU controller where it has a weight."""
        folder = self.cgroups / path
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / ("cpu.weight" if self.version == 2 else "cpu.shares")
        if weight is not None:
            file.write_text(f"{weight}\n")
        return file

    def process(self, pid: int, cgroup: str = "/", session: str = "", nice: int = 0) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        names = "" if self.version == 2 else "cpu,cpuacct"
        (folder / "cgroup").write_text(f"0:{names}:{cgroup}\n")
        (folder / "stat").write_text(STAT.format(pid=pid, priority=20 + nice, nice=nice))
        (folder / "autogroup").write_text(session)

    def beside(self, *targets: int) -> Optional[CpuPriority]:
        controllers = frozenset() if self.version == 2 else frozenset(("cpu", "cpuacct"))
        mount = CgroupMount(self.cgroups, True, self.version, controllers)
        procfs, root = Procfs(str(self.proc)), str(self.proc)
        return CpuPriorities(procfs, [mount], root).beside([OTHER], targets or (TARGET,)).get(OTHER)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_in_one_session_nice_values_count(host: Host) -> None:
    host.process(TARGET, session="/autogroup-5 nice 0\n")
    host.process(OTHER, session="/autogroup-5 nice 0\n", nice=7)
    assert host.beside() == CpuPriority("nice", None, 7)


def test_among_sessions_theirs_does(host: Host) -> None:
    host.process(TARGET, session="/autogroup-5 nice 0\n")
    host.process(OTHER, session="/autogroup-6 nice -3\n", nice=7)
    assert host.beside() == CpuPriority("session", f"{host.proc}/{OTHER}/autogroup", -3)


def test_not_where_the_kernel_does_not_share_among_sessions(host: Host) -> None:
    host.process(TARGET, session="/autogroup-5 nice 0\n")
    host.process(OTHER, session="/autogroup-6 nice 0\n")
    host.sessions(0)
    assert host.beside() == CpuPriority("nice", None, 0)


def test_not_of_a_thread_of_no_session(host: Host) -> None:
    host.process(TARGET, session="/autogroup-5 nice 0\n")
    host.process(OTHER, nice=-20)
    assert host.beside() == CpuPriority("nice", None, -20)


@pytest.mark.parametrize("version", [1, 2])
def test_among_cgroups_the_first_that_no_target_is_in(tmp_path: Path, version: int) -> None:
    host, usual = Host(tmp_path, version), USUAL_WEIGHT[version]
    for path in ("system", "system/web", "user", "user/jobs", "user/jobs/7"):
        host.cgroup(path, usual)
    host.process(TARGET, "/system/web", "/autogroup-5 nice 0\n")
    host.process(OTHER, "/user/jobs/7", "/autogroup-6 nice 0\n")
    assert host.beside() == CpuPriority("cgroup", str(host.cgroup("user")), usual)
    # Another target has the outer one in common.
    host.process(11, "/user", "/autogroup-7 nice 0\n")
    assert host.beside(TARGET, 11) == CpuPriority("cgroup", str(host.cgroup("user/jobs")), usual)


@pytest.mark.parametrize("version", [1, 2])
def test_a_target_in_a_cgroup_of_small_weight(tmp_path: Path, version: int) -> None:
    host, usual = Host(tmp_path, version), USUAL_WEIGHT[version]
    for path, weight in (("system", usual), ("batch", 7), ("batch/web", 3), ("user", usual)):
        host.cgroup(path, weight)
    host.process(TARGET, "/batch/web", "/autogroup-5 nice 0\n", nice=19)
    host.process(11, "/batch", "/autogroup-5 nice 0\n")
    host.process(12, "/system", "/autogroup-5 nice 0\n")
    host.process(OTHER, "/user", "/autogroup-6 nice 0\n")
    found = host.beside(TARGET, 11, 12)
    # The outermost counts beside one outside of it, once for all that are in it.
    low = LoweredPriority(TARGET, str(host.cgroup("batch")), 7)
    assert found == CpuPriority("cgroup", str(host.cgroup("user")), usual, (low,))


def test_targets_with_a_nice_value(host: Host) -> None:
    host.process(TARGET, session="/autogroup-5 nice 4\n", nice=19)
    host.process(11, session="/autogroup-5 nice 4\n", nice=-1)
    host.process(OTHER, session="/autogroup-5 nice 4\n")
    low = LoweredPriority(TARGET, None, 19)
    assert host.beside(TARGET, 11) == CpuPriority("nice", None, 0, (low,))


def test_targets_in_a_session_with_a_nice_value(host: Host) -> None:
    host.process(TARGET, session="/autogroup-5 nice 4\n", nice=19)
    host.process(11, session="/autogroup-5 nice 4\n")
    host.process(12, session="/autogroup-7 nice 0\n")
    host.process(OTHER, session="/autogroup-6 nice 0\n")
    low = LoweredPriority(TARGET, f"{host.proc}/{TARGET}/autogroup", 4)
    file = f"{host.proc}/{OTHER}/autogroup"
    assert host.beside(TARGET, 11, 12) == CpuPriority("session", file, 0, (low,))


def test_a_cgroup_without_a_weight_is_that_above(host: Host) -> None:
    """The CPU controller is not enabled for it (cgroup.subtree_control)."""
    host.cgroup("system", 100)
    host.cgroup("system/web")
    host.cgroup("system/jobs")
    host.process(TARGET, "/system/web", "/autogroup-5 nice 0\n")
    host.process(OTHER, "/system/jobs", "/autogroup-6 nice 0\n", nice=3)
    # Only processes of the root are shared out by session.
    assert host.beside() == CpuPriority("nice", None, 3)


def test_a_target_of_a_cgroup_beside_a_session_of_the_root(host: Host) -> None:
    host.cgroup("system", 100)
    host.process(TARGET, "/system", "/autogroup-5 nice 0\n")
    host.process(OTHER, "/", "/autogroup-6 nice 0\n")
    found = host.beside()
    assert found is not None and found.kind == "session"


def test_who_ended_or_is_hidden_is_not_known(host: Host) -> None:
    host.process(TARGET)
    assert host.beside() is None
    host.process(OTHER)
    assert host.beside(99) is None
