"""What can happen to a target, its sockets and its host while it is watched.

Beside these: exec, exit during attach, a PID used again (test_lifecycle.py); a listener closed
or bound again (test_accept_queue.py, test_accept_queue_names.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import pytest

from tests.kernel.actor import Caller, sent
from tests.kernel.live import Live
from tests.workloads.queue_process import OWN_NETWORK, Actor, inside, tcp, unix

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

FORKS = int(os.environ.get("UDSPROBE_TEST_FORKS", "1000"))
CONNECTIONS = 2000


@pytest.fixture
def caller() -> Iterator[Caller]:
    with Caller() as started:
        yield started


def attach(*pids: int) -> List[str]:
    return ["attach", "--json", "--pid", ",".join(map(str, pids))]


def calls_of(report: Dict[str, Any], name: str, transport: str) -> int:
    rows = report["syscalls"]
    return sum(r["calls"] for r in rows if (r["name"], r["transport"]) == (name, transport))


def listener(report: Dict[str, Any], address: Path) -> Dict[str, Any]:
    (row,) = [row for row in report["listeners"] if row["address"] == str(address)]
    assert isinstance(row, dict)
    return row


def test_a_target_is_killed(caller: Caller, tmp_path: Path) -> None:
    with Caller() as victim:
        with Live(attach(caller.pid, victim.pid), tmp_path) as live:
            calls = caller.does("call", 30) + victim.does("call", 70)
            os.kill(victim.pid, signal.SIGKILL)
            victim.leave()
            calls += caller.does("call", 5)
            report = live.end().report
        assert sent(report) == calls
        states = {target["pid"]: target["state"] for target in report["targets"]}
        assert states == {caller.pid: "running", victim.pid: "exited"}


def test_a_target_that_forks_again_and_again(caller: Caller, tmp_path: Path) -> None:
    """Each child makes one call and is gone, most of them between two samples."""
    with Live(attach(caller.pid), tmp_path) as live:
        calls = caller.does("call", 3) + caller.does("forks", FORKS)
        report = live.end().report
    assert (sent(report), report["targets_exited"]) == (calls, FORKS)
    assert report["probe"]["turned_away"] == 0


def test_a_descriptor_used_again_inside_a_call(caller: Caller, tmp_path: Path) -> None:
    """read() on a Unix socket whose descriptor is a pipe's when it returns: what it began as."""
    with Live(attach(caller.pid), tmp_path) as live:
        caller.does("swap")
        report = live.end().report
    assert calls_of(report, "read", "unix") == 1
    assert sent(report) == 1


SERVE = """
import os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(16)
print(os.getpid(), flush=True)
sys.stdin.readline()
memory = set()
for number in range(int(sys.argv[2])):
    client = socket.socket(socket.AF_UNIX)
    client.connect(sys.argv[1])
    served, _ = server.accept()
    if number % 20 == 0:
        name = os.readlink(f"/proc/self/fd/{served.fileno()}")[8:-1]
        lines = open("/proc/net/unix").read().splitlines()
        memory.add(next(line.split()[0] for line in lines if line.split()[6:7] == [name]))
    client.send(b"q" * (number % 7 + 1))
    served.recv(64)
    served.send(b"a")
    client.recv(64)
    client.close()
    served.close()
print(len(memory), flush=True)
"""


def test_socket_memory_used_again(folder: Path, tmp_path: Path) -> None:
    """Thousands of connections in the memory of a few: each is one, with its own request."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(folder / "s"), str(CONNECTIONS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as serving:
        assert serving.stdout is not None
        pid = int(serving.stdout.readline())
        with Live(attach(pid), tmp_path) as live:
            said, _ = serving.communicate("\n")
            report = live.end(None).report
    # By the kernel's own (hashed) pointers, of every twentieth.
    assert int(said) < CONNECTIONS / 20
    row = listener(report, folder / "s")
    assert (row["established"], row["accepted"]) == (CONNECTIONS, CONNECTIONS)
    assert row["wait_us"]["count"] == CONNECTIONS
    assert report["requests"]["served"]["count"] == CONNECTIONS
    (upstream,) = report["requests"]["upstream"]
    assert upstream["count"] == CONNECTIONS
    asked_bytes = sum(number % 7 + 1 for number in range(CONNECTIONS))
    sent_bytes = sum(row["bytes"] for row in report["syscalls"] if row["name"] == "sendto")
    assert sent_bytes == asked_bytes + CONNECTIONS
    assert report["probe"]["turned_away"] == 0


def test_a_listener_is_gone_and_its_memory_another_s(folder: Path, tmp_path: Path) -> None:
    with Actor() as server, Actor() as client, Live(attach(server.pid), tmp_path) as live:
        accepted: Dict[Path, int] = {}
        for number in range(20):
            place = folder / f"s{number}"
            heard = server.listen(unix(place), 8)["listener"]
            accepted[place] = number % 5 + 1
            client.connect(unix(place), accepted[place], keep=False)
            server.do("accept", listener=heard, count=accepted[place])
            server.do("close", listener=heard)
        report = live.end().report
    told = {Path(row["address"]): row["accepted"] for row in report["listeners"]}
    assert told == accepted


SPIN = "import os\nprint(flush=True)\nwhile os.getppid() == {parent}: pass"


def test_every_cpu_is_busy(caller: Caller, tmp_path: Path) -> None:
    """Twice as many spinning programs as CPUs: slower, and as exact."""
    spinning = [
        subprocess.Popen(
            [sys.executable, "-c", SPIN.format(parent=os.getpid())], stdout=subprocess.PIPE
        )
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        for each in spinning:
            assert each.stdout is not None and each.stdout.readline()
        with Live(attach(caller.pid), tmp_path) as live:
            calls = caller.does("call", 3000) + caller.does("thread", 50)
            report = live.end().report
    finally:
        for each in spinning:
            each.kill()
            each.communicate()
    assert sent(report) == calls


def test_a_network_namespace_is_gone(caller: Caller, tmp_path: Path) -> None:
    """With its last process, while others are watched on."""
    with Actor(*OWN_NETWORK) as inner:
        inner.do("loopback_up")
        port = inner.listen(tcp("127.0.0.1"), 8)["port"]
        command = [*attach(caller.pid, inner.pid), "--interval", "0.1"]
        with Live(command, tmp_path) as live:
            with Actor(*inside(inner, "net")) as client:
                client.connect(tcp("127.0.0.1", port), 3, keep=False)
            inner.do("accept", listener=0, count=3)
            namespace = os.readlink(f"/proc/{inner.pid}/ns/net")
            inner.__exit__(None)
            wait_until_gone(live.pid, namespace)
            calls = caller.does("call", 9)
            ended = live.end()
    assert (ended.code, ended.err, sent(ended.report)) == (0, "", calls)
    (row,) = [row for row in ended.report["listeners"] if row["address"] == f"127.0.0.1:{port}"]
    assert row["accepted"] == 3


def wait_until_gone(pid: int, namespace: str) -> None:
    """Until a process holds no descriptor of a namespace."""
    while namespace in held(pid):
        time.sleep(0.01)


def held(pid: int) -> Set[str]:
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            continue
    return found


def test_a_sysctl_is_changed_meanwhile(folder: Path, tmp_path: Path) -> None:
    """somaxconn of its own namespace: the queue that is there keeps its limit, a new one not."""
    sysctl = "/proc/sys/net/core/somaxconn"
    with Actor(*OWN_NETWORK) as server, Live(attach(server.pid), tmp_path) as live:
        server.do("write", path=sysctl, text="40")
        server.listen(unix(folder / "before"), 100)
        server.do("write", path=sysctl, text="7")
        server.listen(unix(folder / "after"), 100)
        report = live.end().report
    limits = {
        name: listener(report, folder / name)["backlog"]["effective"]
        for name in ("before", "after")
    }
    assert limits == {"before": 40, "after": 7}
    assert listener(report, folder / "after")["backlog"]["clamped_by"] == "net.core.somaxconn"
