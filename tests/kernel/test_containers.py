"""Targets in PID, mount and network namespaces, from outside and from inside; control groups."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.conftest import Require, give_up
from tests.kernel import tool
from tests.kernel.live import answer
from tests.patience import PATIENCE_S
from tests.scenarios.bench import family_of
from tests.workloads.queue_process import Actor, Answer, unix
from udsprobe.kernel.proc.cgroups import CgroupMount, mounts

pytestmark = [pytest.mark.root, pytest.mark.alone]

CONNECTS, ACCEPTS = 7, 5
NAMESPACES = ["--pid", "--net", "--mount", "--fork", "--kill-child", "--mount-proc"]
# What the container has at /mnt is a folder of the host, as with a volume; its /opt is its own.
SCRIPT = 'mount --bind "$1" /mnt && mount -t tmpfs own /opt && shift && exec "$@"'


class Container:
    """An actor in PID, mount and network namespaces of its own.

    Attributes:
        pid: of the actor, outside; inside it is 1.
    """

    def __init__(self, folder: Path) -> None:
        self.volume = folder
        self.actor = Actor("unshare", *NAMESPACES, "sh", "-c", SCRIPT, "sh", str(folder))

    def __enter__(self) -> Container:
        self.actor.__enter__()
        above = self.actor.pid
        children = Path(f"/proc/{above}/task/{above}/children").read_text()
        self.pid = int(children)
        return self

    def __exit__(self, *raised: Any) -> None:
        self.actor.__exit__(raised[0] if raised else None)


@pytest.fixture
def volume() -> Iterator[Path]:
    """A short path: 108 bytes have to do."""
    made = Path(tempfile.mkdtemp(prefix="udsprobe-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def container(require: Require, volume: Path) -> Iterator[Container]:
    require("unshare", "nsenter", "mount")
    with Container(volume) as inside:
        yield inside


def serve(container: Container, client: Actor, heard: Answer) -> None:
    """Connections through the host's path to it, most of them accepted."""
    connected = client.connect(unix(container.volume / "s"), CONNECTS, keep=True)
    assert connected["results"] == {"OK": CONNECTS}
    container.actor.do("accept", listener=heard["listener"], count=ACCEPTS)


def assert_counted(report: tool.Report, container: Container, heard: Answer) -> None:
    assert {target["pid"] for target in report["targets"]} == {container.pid}
    (row,) = [row for row in report["listeners"] if row["inode"] == heard["inode"]]
    assert (row["established"], row["accepted"]) == (CONNECTS, ACCEPTS)
    assert row["accepted_by"] == {str(container.pid): ACCEPTS}
    assert row["address"] == "/mnt/s"
    assert row["host_path"] == str(container.volume / "s")
    assert row["netns"] == os.stat(f"/proc/{container.pid}/ns/net").st_ino
    calls = {row["name"]: row["calls"] for row in report["syscalls"]}
    assert calls["accept4"] == ACCEPTS
    assert report["probe"]["events_lost"] == {"map_full": 0, "ring_full": 0, "missed": 0}


SELECTORS = {
    "pid outside": ["--pid", "{pid}"],
    "pid inside": ["--in", "{pid}", "--pid", "1"],
    "path outside": ["--listener", "{volume}/s"],
    "path inside": ["--listener", "/mnt/s"],
}


@pytest.mark.parametrize("selectors", SELECTORS.values(), ids=SELECTORS.keys())
def test_a_container_is_observed_from_outside(
    container: Container, tmp_path: Path, selectors: List[str]
) -> None:
    heard = container.actor.listen(unix("/mnt/s"), CONNECTS)
    given = [word.format(pid=container.pid, volume=container.volume) for word in selectors]
    with Actor() as client, tool.Attached(given, tmp_path) as watched:
        serve(container, client, heard)
    assert_counted(watched.report, container, heard)


def test_a_path_that_only_the_container_has(container: Container, tmp_path: Path) -> None:
    heard = container.actor.listen(unix("/opt/s"), 1)
    with tool.Attached(["--listener", "/opt/s"], tmp_path) as watched:
        container.actor.connect(unix("/opt/s"), 1)
    (row,) = [row for row in watched.report["listeners"] if row["inode"] == heard["inode"]]
    assert (row["address"], row["established"]) == ("/opt/s", 1)
    assert row["host_path"] == f"/proc/{container.pid}/root/opt/s"
    assert Path(row["host_path"]).is_socket()


def test_a_process_that_is_not_inside_is_named(container: Container) -> None:
    ended = answer(["attach", "--in", str(container.pid), "--pid", "77"])
    assert (ended.code, ended.out) == (5, "")
    assert ended.line.startswith("udsprobe: error[no-such-pid]")
    assert f"there is no process 77 in the PID namespace of process {container.pid}" in ended.line


def test_in_without_pid_is_a_usage_error(container: Container) -> None:
    ended = answer(["attach", "--in", str(container.pid), "--comm", "sh"])
    assert ended.code == 2 and ended.line.startswith("udsprobe: error[usage]")


# ------------------------------------------------------------ control groups


def hierarchies() -> Dict[str, CgroupMount]:
    """Those of this host in which a cgroup can be made and joined at once."""
    found = {}
    for mount in mounts():
        if mount.version == 2:
            found["v2"] = mount
        elif "freezer" in mount.controllers:
            found["v1"] = mount
        elif mount.systemd:
            found["v1 of systemd"] = mount
    return found


@pytest.fixture(params=["v2", "v1", "v1 of systemd"])
def hierarchy(request: pytest.FixtureRequest) -> CgroupMount:
    found = hierarchies()
    if request.param not in found:
        # No host has to have both versions, but each has one.
        assert found
        pytest.skip(f"no cgroup hierarchy of {request.param} is mounted")
    mount: CgroupMount = found[request.param]
    return mount


@pytest.mark.parametrize("how", ["path", "below the root", "unit"])
def test_a_cgroup_names_the_container(
    container: Container, tmp_path: Path, hierarchy: CgroupMount, how: str
) -> None:
    name = f"udsprobe-test-{os.getpid()}.service"
    if how == "unit" and not hierarchy.systemd:
        pytest.skip("systemd keeps no units in this hierarchy")
    made = hierarchy.path / name
    made.mkdir()
    try:
        (made / "cgroup.procs").write_text(str(container.pid))
        selectors = {
            "path": ["--cgroup", str(made)],
            "below the root": ["--cgroup", f"/{name}"],
            "unit": ["--unit", name],
        }[how]
        heard = container.actor.listen(unix("/mnt/s"), CONNECTS)
        with Actor() as client, tool.Attached(selectors, tmp_path) as watched:
            serve(container, client, heard)
        assert_counted(watched.report, container, heard)
    finally:
        (hierarchy.path / "cgroup.procs").write_text(str(container.pid))
        made.rmdir()


# ------------------------------------------------------------ from inside

CAPABILITIES = ["setpriv", "--inh-caps", "-all", "--bounding-set", "-all,+bpf,+perfmon"]


@pytest.mark.parametrize("prefix", [[], CAPABILITIES], ids=["root", "two capabilities"])
def test_from_inside_a_container(require: Require, prefix: List[str]) -> None:
    require("unshare", "setpriv")
    done = subprocess.run(
        ["unshare", *NAMESPACES, *prefix, sys.executable, "-m", "tests.kernel.container_inside"],
        cwd=tool.REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    report, ids = said["report"], said["ids"]
    if max(ids["server"], ids["client"]) > 100:
        give_up("the ids inside are not small ones")
    pids = {target["pid"]: target for target in report["targets"]}
    assert set(pids) == {ids["server"], *ids["children"]}
    assert pids[ids["server"]]["state"] == "running"
    assert all(pids[child]["via"] == "fork" for child in ids["children"])
    (row,) = [row for row in report["listeners"] if row["inode"] == said["listener"]["inode"]]
    assert (row["established"], row["accepted"]) == (11, 11)
    assert row["accepted_by"] == {str(ids["server"]): 11}
    assert row["pids"] == [ids["server"]]
    calls = {(r["name"], r["transport"]): r["calls"] for r in report["syscalls"]}
    assert calls["accept4", "unix"] == 11
    assert calls["connect", "unix"] == 2
    assert {thread["tid"] for thread in report["time"]["threads"]} == {ids["server"]}


def test_processes_outside_are_called_so(require: Require, volume: Path) -> None:
    """A peer that the container does not see has the host's number and no name of its own."""
    require("unshare", "nsenter")
    with Container(volume) as container, Actor() as client:
        heard = container.actor.listen(unix("/mnt/s"), CONNECTS)
        report_at, ready_at = container.volume / "report.json", container.volume / "ready"
        inside = ["nsenter", "-t", str(container.pid), "-p", "-m", "-n", "--"]
        argv = [*inside, *tool.UDSPROBE, "attach", "--pid", "1", "--json"]
        argv += ["--output", "/mnt/report.json", "--ready-file", "/mnt/ready"]
        process = subprocess.Popen(argv, cwd=tool.REPOSITORY)
        while not ready_at.exists():
            assert process.poll() is None
            time.sleep(0.005)
        client.connect(unix(container.volume / "s"), CONNECTS, keep=True)
        container.actor.do("accept", listener=heard["listener"], count=CONNECTS, keep=True)
        for connection in range(CONNECTS):
            client.do("send", connection=connection)
        # nsenter waits for who went in.
        _, observer = family_of(process.pid)
        os.kill(observer, signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        report = json.loads(report_at.read_text())
    assert [target["pid"] for target in report["targets"]] == [1]
    (row,) = [row for row in report["listeners"] if row["inode"] == heard["inode"]]
    assert (row["established"], row["accepted"], row["host_path"]) == (CONNECTS, CONNECTS, None)
    peers = [row["peer"] for row in report["connections"]]
    assert [(peer["pid"], peer["comm"]) for peer in peers] == [(client.pid, "outside")] * CONNECTS


def test_a_foreign_proc_is_told(require: Require) -> None:
    """/proc still shows the processes of the host: ids there are not those in here."""
    require("unshare")
    ended = answer(["run", "--", "true"], ["unshare", "--pid", "--fork"])
    assert (ended.code, ended.out) == (4, "")
    assert ended.line.startswith("udsprobe: error[pid-namespace]")
    assert "mount /proc again" in ended.line


def test_a_shifted_clock_is_told(require: Require) -> None:
    require("unshare")
    ended = answer(["run", "--", "true"], ["unshare", "--time", "--fork", "--boottime", "1000"])
    assert (ended.code, ended.out) == (4, "")
    assert ended.line.startswith("udsprobe: error[time-namespace]")
