"""A server that may not run: by what, and that the remedy lets it go on."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Callable, ContextManager, Dict, Iterator

import pytest

from tests.conftest import give_up
from tests.kernel import tool
from tests.kernel.busy import until
from tests.patience import PATIENCE_S
from tests.workloads.queue_process import Actor, unix
from udsprobe.kernel.proc.cgroups import mounts
from udsprobe.rules.thresholds import HUNG_US_MIN

pytestmark = [pytest.mark.root]

QUEUED = 5
PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def by_signal(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: state_of(pid) == "T", "stopped")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def by_tracer(pid: int) -> Iterator[None]:
    assert LIBC.ptrace(PTRACE_ATTACH, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(pid, WALL)
    try:
        yield
    finally:
        assert LIBC.ptrace(PTRACE_DETACH, pid, None, None) == 0


@contextmanager
def by_freezer(pid: int) -> Iterator[None]:
    """Of cgroup v2 where it is mounted, also beside v1."""
    roots = [Path(mount.path) for mount in mounts() if mount.version == 2]
    if not roots:
        give_up("cgroup v2 is not mounted")
    before = next(
        line.rpartition(":")[2]
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        if line.startswith("0::")
    )
    group = roots[0] / f"udsprobe-frozen-{pid}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "cgroup.freeze").write_text("1")
        until(lambda: "frozen 1" in (group / "cgroup.events").read_text(), "frozen")
        yield
        (group / "cgroup.freeze").write_text("0")
        (roots[0] / before.lstrip("/") / "cgroup.procs").write_text(str(pid))
    finally:
        group.rmdir()


HOLDS: Dict[str, Callable[[int], ContextManager[None]]] = {
    "signal": by_signal,
    "tracer": by_tracer,
    "freezer": by_freezer,
}
SAYS = {
    "signal": "is stopped by a signal",
    "tracer": "is stopped by a debugger",
    "freezer": "is frozen by its cgroup",
}


@pytest.mark.parametrize("held_by", list(HOLDS))
def test_a_server_that_may_not_run(held_by: str, reachable: Path, tmp_path: Path) -> None:
    """The queue fills, at its limit or not, and the verdict names what holds the server."""
    with Actor() as server, Actor() as client:
        place = unix(reachable / "sock")
        heard = server.listen(place, QUEUED + 3)
        watched = tool.Attached(["--pid", str(server.pid)], tmp_path)
        with HOLDS[held_by](server.pid), watched:
            client.connect(place, QUEUED)
        report = watched.report
        (target,) = report["targets"]
        assert target["stopped"] == held_by
        verdict = report["verdict"]
        assert verdict["cause"] == "accept-starved"
        assert f"{target['comm']} {server.pid} {SAYS[held_by]}" in verdict["summary"]
        assert verdict["harm"]["count"] == QUEUED
        # It goes on, and the queue empties.
        server.do("accept", listener=heard["listener"], count=QUEUED)


def test_the_remedy_lets_it_go_on(reachable: Path, tmp_path: Path) -> None:
    with Actor() as server, Actor() as client:
        place = unix(reachable / "sock")
        heard = server.listen(place, QUEUED - 1)
        with by_signal(server.pid):
            with tool.Attached(["--pid", str(server.pid)], tmp_path) as watched:
                client.connect(place, QUEUED)
            remedy = watched.report["verdict"]["actions"][0]
            assert remedy["effect"] == "changes"
            subprocess.run(["bash", "-c", remedy["run"].replace("sudo ", "")], check=True)
            until(lambda: state_of(server.pid) != "T", "going on")
            server.do("accept", listener=heard["listener"], count=QUEUED)
            with tool.Attached(["--pid", str(server.pid)], tmp_path) as after:
                pass
        assert after.report["targets"][0]["stopped"] is None


LOOP = """
import selectors, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
selector = selectors.DefaultSelector()
print("ready", flush=True)
connection, _ = listener.accept()
selector.register(connection, selectors.EVENT_READ)
while selector.select() and connection.recv(64):
    connection.sendall(b"reply")
"""


@pytest.mark.parametrize("held_by", list(HOLDS))
def test_requests_of_a_server_that_may_not_run(
    held_by: str, reachable: Path, tmp_path: Path
) -> None:
    """On a connection that it has, asleep in its poller as if it had nothing to do."""
    argv = [sys.executable, "-c", LOOP, str(reachable / "sock")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_S)
            client.connect(str(reachable / "sock"))
            report = held_with_a_request(server.pid, client, held_by, tmp_path)
    verdict = report["verdict"]
    assert verdict["cause"] == "app-blocked", verdict["summary"]
    assert f"{server.pid} {SAYS[held_by]}" in verdict["summary"]
    assert (verdict["harm"]["kind"], verdict["harm"]["count"]) == ("stuck", 1)


def held_with_a_request(pid: int, client: socket.socket, held_by: str, folder: Path) -> tool.Report:
    with ExitStack() as held, tool.Attached(["--pid", str(pid)], folder) as watched:
        for _ in range(3):
            client.sendall(b"request")
            assert client.recv(64) == b"reply"
        held.enter_context(HOLDS[held_by](pid))
        client.sendall(b"request")
        stuck_until = time.monotonic() + 1.5 * HUNG_US_MIN / 1e6
        until(lambda: time.monotonic() > stuck_until, "stuck for so long")
    assert client.recv(64) == b"reply"
    return watched.report
