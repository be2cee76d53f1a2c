"""Quotas of both cgroup versions, read from files that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional, Sequence, Set

import pytest

from udsprobe.kernel.proc.cgroups import CgroupMount, mounts
from udsprobe.kernel.proc.cpu_files import host_cpus, pressure_some_us
from udsprobe.kernel.proc.cpu_quota import LOOK_AGAIN_EVERY_READS, QuotaTable, usage_of
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.sample import QuotaReading

V2_STAT = "usage_usec {usage}\nuser_usec 5\nnr_periods {periods}\nnr_throttled {throttled}\n"
V2_STAT += "throttled_usec {time}\nnr_bursts 0\nburst_usec 0\n"
V1_STAT = "nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time {time}\n"
STAT = """cpu  10 1 20 300 4 2 3 5 0 0
cpu0 5 1 10 150 2 1 2 3 0 0
cpu1 5 0 10 150 2 1 1 2 0 0
intr 1 2 3
procs_running 4
procs_blocked 0
"""


def v2(folder: Path, quota: str = "max 100000", **counts: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.max").write_text(quota + "\n")
    numbers = {"usage": 0, "periods": 0, "throttled": 0, "time": 0, **counts}
    (folder / "cpu.stat").write_text(V2_STAT.format(**numbers))
    return folder


def v1(folder: Path, quota_us: int = -1, **counts: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.cfs_quota_us").write_text(f"{quota_us}\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    numbers = {"periods": 0, "throttled": 0, "time": 0, **counts}
    (folder / "cpu.stat").write_text(V1_STAT.format(**numbers))
    return folder


class Proc:
    """A /proc in which processes are in these cgroups, and how often that was asked."""

    def __init__(self, root: Path, lines: Dict[int, str]) -> None:
        self.root = root
        for pid, line in lines.items():
            self.move(pid, line)

    def move(self, pid: int, line: str) -> None:
        folder = self.root / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup").write_text(line + "\n")

    def procfs(self) -> Procfs:
        return Procfs(str(self.root))


@pytest.fixture
def unified(tmp_path: Path) -> CgroupMount:
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu memory\n")
    return CgroupMount(root, systemd=True)


def apart(*pids: int) -> Dict[int, Set[int]]:
    """Processes that share no cgroup as far as anybody knows."""
    return {pid: {pid} for pid in pids}


def paths(readings: Optional[Sequence[QuotaReading]]) -> Any:
    return None if readings is None else [reading.path for reading in readings]


def test_quotas_of_a_process_and_above_it(tmp_path: Path, unified: CgroupMount) -> None:
    slice_ = v2(unified.path / "a.slice", "150000 100000")
    leaf = v2(slice_ / "between" / "b.service", "20000 100000")
    v2(slice_ / "between")
    proc = Proc(tmp_path / "proc", {7: "0::/a.slice/between/b.service", 8: "0::/a.slice"})
    table = QuotaTable(proc.procfs(), [unified])
    readings = table.read(apart(7, 8), 5)
    assert readings is not None
    assert [(r.path, r.quota_us, r.pids) for r in readings] == [
        (str(slice_), 150_000, (7, 8)),
        (str(leaf), 20_000, (7,)),
    ]


def test_counters_are_since_the_first_look(tmp_path: Path, unified: CgroupMount) -> None:
    leaf = unified.path / "a"
    v2(leaf, "20000 100000", usage=900, periods=10, throttled=5, time=70)
    table = QuotaTable(Proc(tmp_path / "proc", {7: "0::/a"}).procfs(), [unified])
    table.read(apart(7), 5)
    v2(leaf, "20000 100000", usage=1900, periods=13, throttled=7, time=170)
    (reading,) = table.read(apart(7), 99) or ()
    assert (reading.since_ns, reading.periods, reading.throttled_periods) == (5, 3, 2)
    assert (reading.throttled_ns, reading.usage_ns) == (100_000, 1_000_000)


def test_a_cgroup_made_again_counts_on(tmp_path: Path, unified: CgroupMount) -> None:
    leaf = unified.path / "a"
    v2(leaf, "20000 100000", periods=100)
    table = QuotaTable(Proc(tmp_path / "proc", {7: "0::/a"}).procfs(), [unified])
    table.read(apart(7), 5)
    v2(leaf, "20000 100000", periods=104)
    table.read(apart(7), 6)
    leaf.rename(unified.path / "old")
    v2(leaf, "20000 100000", periods=300)
    (reading,) = table.read(apart(7), 7) or ()
    assert reading.periods == 304


def test_what_was_removed_keeps_its_last_word(tmp_path: Path, unified: CgroupMount) -> None:
    leaf = v2(unified.path / "a", "20000 100000")
    table = QuotaTable(Proc(tmp_path / "proc", {7: "0::/a"}).procfs(), [unified])
    table.read(apart(7), 5)
    v2(leaf, "20000 100000", throttled=3)
    table.read(apart(7), 6)
    leaf.rename(tmp_path / "gone")
    (reading,) = table.read(apart(), 7) or ()
    assert (reading.throttled_periods, reading.pids) == (3, ())


def test_a_quota_that_is_set_later_is_found_and_one_lifted_is_said(
    tmp_path: Path, unified: CgroupMount
) -> None:
    leaf = v2(unified.path / "a")
    table = QuotaTable(Proc(tmp_path / "proc", {7: "0::/a"}).procfs(), [unified])
    assert table.read(apart(7), 0) == ()
    v2(leaf, "20000 100000")
    found = [table.read(apart(7), 1) for _ in range(LOOK_AGAIN_EVERY_READS)]
    assert found[0] == () and paths(found[-1]) == [str(leaf)]
    v2(leaf, "max 100000")
    (reading,) = table.read(apart(7), 2) or ()
    assert reading.quota_us is None


def test_a_process_that_moved_is_found_again(tmp_path: Path, unified: CgroupMount) -> None:
    v2(unified.path / "a", "20000 100000")
    proc = Proc(tmp_path / "proc", {7: "0::/"})
    table = QuotaTable(proc.procfs(), [unified])
    assert table.read(apart(7), 0) == ()
    proc.move(7, "0::/a")
    found = [table.read(apart(7), 1) for _ in range(LOOK_AGAIN_EVERY_READS)]
    assert paths(found[-1]) == [str(unified.path / "a")]


def test_version_1_beside_version_2(tmp_path: Path) -> None:
    """The CPU controller is in one of them only; v2 without it is passed over."""
    old, new = tmp_path / "cpu", tmp_path / "unified"
    leaf = v1(old / "box", 20_000, periods=4, throttled=2, time=77)
    new.mkdir()
    (new / "cgroup.controllers").write_text("hugetlb\n")
    hierarchies = [
        CgroupMount(new, systemd=True),
        CgroupMount(old, systemd=False, version=1, controllers=frozenset({"cpu", "cpuacct"})),
    ]
    proc = Proc(tmp_path / "proc", {7: "2:cpu,cpuacct:/box\n1:memory:/\n0::/x"})
    table = QuotaTable(proc.procfs(), hierarchies)
    (reading,) = table.read(apart(7), 0) or ()
    assert (reading.path, reading.version, reading.quota_us) == (str(leaf), 1, 20_000)
    assert reading.usage_ns is None
    v1(leaf, 20_000, periods=5, throttled=3, time=177)
    (leaf / "cpuacct.usage").write_text("123\n")
    (reading,) = table.read(apart(7), 1) or ()
    assert (reading.periods, reading.throttled_periods, reading.throttled_ns) == (1, 1, 100)


@pytest.mark.parametrize("line", ["0::/../other", "0::/elsewhere/x"])
def test_a_cgroup_out_of_our_sight_is_hidden(
    tmp_path: Path, unified: CgroupMount, line: str
) -> None:
    ours = CgroupMount(unified.path, systemd=True, root="/docker/1")
    table = QuotaTable(Proc(tmp_path / "proc", {7: line}).procfs(), [ours])
    assert table.read(apart(7), 0) is None


def test_no_hierarchy_with_cpus_is_hidden_and_a_gone_process_is_not(tmp_path: Path) -> None:
    proc = Proc(tmp_path / "proc", {7: "0::/"})
    assert QuotaTable(proc.procfs(), []).read(apart(7), 0) is None
    assert QuotaTable(proc.procfs(), []).read(apart(8), 0) == ()


@pytest.mark.parametrize(
    ("root", "path", "below"),
    [
        ("/", "/", "."),
        ("/", "/a/b", "a/b"),
        ("/docker/1", "/docker/1", "."),
        ("/docker/1", "/docker/1/a", "a"),
        ("/docker/1", "/docker/11", None),
        ("/docker/1", "/docker", None),
        ("/", "/../x", None),
    ],
)
def test_where_a_cgroup_is(root: str, path: str, below: Optional[str]) -> None:
    mount = CgroupMount(Path("/sys/fs/cgroup"), systemd=True, root=root)
    expected = None if below is None else Path("/sys/fs/cgroup") / below
    assert mount.directory(path) == expected


def test_mounts_say_version_controllers_and_root(tmp_path: Path) -> None:
    path = tmp_path / "mountinfo"
    path.write_text(
        "1 0 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "2 0 0:2 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    )
    new, old = mounts(str(path))
    assert (new.version, new.root, new.controllers) == (2, "/docker/1", frozenset())
    assert (old.version, old.root) == (1, "/") and {"cpu", "cpuacct"} <= old.controllers


def test_files_without_a_cpu_controller_are_none(tmp_path: Path) -> None:
    assert usage_of(tmp_path, 1) is None and usage_of(tmp_path, 2) is None


def test_stat_and_pressure() -> None:
    reading = host_cpus(STAT)
    assert reading is not None
    assert (reading.user, reading.system, reading.idle, reading.iowait) == (11, 25, 300, 4)
    assert (reading.steal, reading.cpus, reading.runnable) == (5, 2, 4)
    assert host_cpus("") is None
    psi = "some avg10=0.00 avg60=0.10 avg300=0.30 total=5950926\nfull avg10=0.00 total=7\n"
    assert (pressure_some_us(psi), pressure_some_us("")) == (5_950_926, None)
