"""The slowest requests, whole: against a server that knows its calls, strace, and a clock."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence

import pytest

from tests.conftest import Require
from tests.kernel.live import Live
from tests.kernel.tool import REPOSITORY, run
from tests.patience import PATIENCE_S
from tests.workloads.slow_requests import CALLS, MANY, REPLY, SLEEPS, request

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

SERVER = [sys.executable, "-m", "tests.workloads.slow_requests"]
QUICK = 25
SLOW_MS = 60
KEPT = 64
KINDS = ("cpu", "sleep", "pipe", "upstream", "lock", "many")
PART = {"cpu": "cpu", "sleep": "other", "pipe": "other", "upstream": "upstream", "lock": "lock"}


class Server(NamedTuple):
    """A server of `tests.workloads.slow_requests`, ready."""

    process: subprocess.Popen[bytes]
    address: str

    def connect(self) -> socket.socket:
        host, _, port = self.address.partition(":")
        if not port:
            client = socket.socket(socket.AF_UNIX)
            client.connect(self.address)
            return client
        return socket.create_connection((host, int(port)))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def serving(
    style: str, transport: str, folder: Path, prefix: Sequence[str] = ()
) -> Iterator[Server]:
    address = str(folder / "socket") if transport == "unix" else f"127.0.0.1:{free_port()}"
    ready = folder / "serving"
    process = subprocess.Popen(
        [*prefix, *SERVER, style, address, str(ready)], cwd=REPOSITORY, stdin=subprocess.PIPE
    )
    try:
        wait_for(ready, process)
        yield Server(process, address)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(PATIENCE_S)


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert process.poll() is None
        assert time.monotonic() < give_up_at, f"no {path.name}"
        time.sleep(0.005)


def ask(client: socket.socket, kind: str, milliseconds: int = 0) -> float:
    """How long it took, by our clock, in µs."""
    began = time.monotonic()
    client.sendall(request(kind, milliseconds))
    assert client.recv(len(REPLY), socket.MSG_WAITALL) == REPLY
    return (time.monotonic() - began) * 1e6


def names(calls: Sequence[Dict[str, Any]]) -> List[str]:
    return ["sleep" if call["name"] in SLEEPS else call["name"] for call in calls]


def is_off(report: Dict[str, Any]) -> bool:
    """This kernel tells no arrivals: then there is a reason, and no list."""
    state = next(m for m in report["probe"]["measurements"] if m["name"] == "slowest_requests")
    if state["state"] != "off":
        return False
    assert state["reason"] and report["requests"]["slowest"] is None
    assert report["requests"]["sampled"] is None
    return True


def served_at(report: Dict[str, Any], address: str) -> List[Dict[str, Any]]:
    return [each for each in report["requests"]["slowest"] if each["address"] == address]


def check_sums(rows: Sequence[Dict[str, Any]]) -> None:
    for row in rows:
        parts = sum(row["parts_us"].values())
        assert parts == pytest.approx(row["latency_us"], rel=0.001, abs=0.05), row


@pytest.mark.parametrize("style", ["threads", "loop"])
@pytest.mark.parametrize("transport", ["unix", "tcp"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_slow_request_is_told_whole(
    kind: str, transport: str, style: str, tmp_path: Path
) -> None:
    with serving(style, transport, tmp_path) as server:
        client, other = server.connect(), server.connect()
        # Accepted before the observation: the loop has made its calls for that.
        ask(client, "quick"), ask(other, "quick")
        arguments = ["attach", "--pid", str(server.process.pid), "--json"]
        with Live(arguments, tmp_path) as live:
            for _ in range(QUICK):
                ask(other, "quick"), ask(client, "quick")
            took_us = ask(client, kind, SLOW_MS)
            for _ in range(QUICK):
                ask(other, "quick"), ask(client, "quick")
            report = live.end(signal.SIGINT).report
    if is_off(report):
        return
    rows = served_at(report, server.address)
    check_sums(report["requests"]["slowest"])
    slow = rows[0]
    assert SLOW_MS * 1000 <= slow["latency_us"] <= took_us
    assert slow["pid"] == server.process.pid
    assert slow["connection_turn"] == QUICK + 1
    assert slow["turn_based"] and not slow["handed_over"]
    check_calls(slow, kind, style)
    if kind in PART:
        largest = max(slow["parts_us"], key=lambda name: slow["parts_us"][name])
        assert largest in (PART[kind], "runq")
    if kind == "upstream":
        check_upstream(slow, report["requests"]["slowest"], server.address)
    assert len(rows) <= 20 and len(report["requests"]["sampled"]) <= 4
    ordered = [row["latency_us"] for row in report["requests"]["slowest"]]
    assert ordered == sorted(ordered, reverse=True)


def check_upstream(slow: Dict[str, Any], rows: Sequence[Dict[str, Any]], address: str) -> None:
    """The request that it waited for, which the upstream's row tells of."""
    (hop,) = slow["upstream"]
    inner = next(row for row in rows if row["address"] != address and row["tid"] == hop["tid"])
    assert inner["latency_us"] == hop["latency_us"] <= slow["latency_us"]
    assert inner["peer"]["pid"] == slow["pid"] and inner["parts_us"]["other"] >= SLOW_MS * 900
    assert slow["parts_us"]["upstream"] >= SLOW_MS * 900


def check_calls(slow: Dict[str, Any], kind: str, style: str) -> None:
    """Those that the workload lists, between the receive call and the reply."""
    calls, wanted = slow["calls"], ["recvfrom", *CALLS[kind], "sendto"]
    if kind == "many":
        missing = len(wanted) - slow["calls_not_kept"]
        received = [call for call in calls if call["whose"] == "this"]
        assert calls[-1]["name"] == "sendto" and received
        # The long call is kept though many came after it.
        assert names(calls).count("sleep") == 1
        assert len([name for name in names(calls) if name != "epoll_wait"]) == missing
        assert slow["not_kept_below_us"] == 1000.0
        assert names(calls).count("getppid") < MANY
        return
    first = next(at for at, call in enumerate(calls) if call["whose"] == "this")
    assert names(calls[first:]) == wanted
    assert slow["calls_not_kept"] == 0
    # Of the event loop, the poller from which the request woke it.
    before = set(names(calls[:first]))
    assert before <= ({"epoll_wait"} if style == "loop" else set()), before
    assert [call["whose"] for call in calls if call["transport"] != "other"].count("this") == 2


def attached(server: Server, folder: Path, **environment: str) -> Live:
    arguments = ["attach", "--pid", str(server.process.pid), "--json"]
    return Live(arguments, folder, environment=environment)


def test_a_queued_request_shows_whom_the_loop_served_meanwhile(tmp_path: Path) -> None:
    with serving("loop", "unix", tmp_path) as server:
        client, other = server.connect(), server.connect()
        ask(client, "quick"), ask(other, "quick")
        with attached(server, tmp_path) as live:
            client.sendall(request("pipe", SLOW_MS))
            other.sendall(request("quick", 0))
            assert client.recv(len(REPLY)) == REPLY and other.recv(len(REPLY)) == REPLY
            report = live.end(signal.SIGINT).report
    if is_off(report):
        return
    check_sums(report["requests"]["slowest"])
    rows = served_at(report, server.address)
    served, queued = sorted(rows, key=lambda row: row["parts_us"].get("recv_wait", 0.0))
    assert max(queued["parts_us"], key=lambda name: queued["parts_us"][name]) == "recv_wait"
    of_others = [call for call in queued["calls"] if call["whose"] == "other"]
    # It came while the first was served: its receive call was over, or not yet.
    assert [call["name"] for call in of_others][-1] == "sendto"
    assert "read" in names(queued["calls"])
    own = [call["name"] for call in queued["calls"] if call["whose"] == "this"]
    assert own == ["recvfrom", "sendto"]
    assert queued["calls_not_kept"] == 0 and served["connection_turn"] == 1


def test_of_a_request_that_is_handed_over_no_more_is_said_than_is_known(tmp_path: Path) -> None:
    with serving("handed", "unix", tmp_path) as server:
        client = server.connect()
        ask(client, "quick")
        with attached(server, tmp_path) as live:
            ask(client, "pipe", SLOW_MS)
            report = live.end(signal.SIGINT).report
    if is_off(report):
        return
    slow = served_at(report, server.address)[0]
    check_sums([slow])
    assert slow["handed_over"] and slow["waits"] == []
    assert slow["parts_us"]["not_known"] >= SLOW_MS * 1000 * 0.9
    calls = names(slow["calls"])
    assert calls[-3:] == [*CALLS["pipe"], "sendto"] and "recvfrom" not in calls


def test_who_receives_the_rest_of_a_request_is_told_by_its_own_calls(tmp_path: Path) -> None:
    with serving("halves", "unix", tmp_path) as server:
        client = server.connect()
        with attached(server, tmp_path) as live:
            for _ in range(3):
                ask(client, "sleep", SLOW_MS)
            report = live.end(signal.SIGINT).report
    if is_off(report):
        return
    rows = served_at(report, server.address)
    check_sums(rows)
    assert len(rows) == 3
    for slow in rows:
        # The thread that began with the request had made more calls than this one ever does.
        assert not slow["handed_over"] and slow["calls_not_kept"] == 0
        assert names(slow["calls"])[-2:] == [*CALLS["sleep"], "sendto"]


def test_threads_without_a_journal_are_said_to_have_none(tmp_path: Path) -> None:
    with serving("threads", "unix", tmp_path) as server:
        client = server.connect()
        ask(client, "quick")
        bounds = {"UDSPROBE_TEST_MAP_BOUNDS": "call_journals=1"}
        with attached(server, tmp_path, **bounds) as live:
            ask(client, "sleep", SLOW_MS)
            report = live.end(signal.SIGINT).report
    if is_off(report):
        return
    slow = served_at(report, server.address)[0]
    check_sums([slow])
    assert slow["calls"] is None and slow["calls_not_kept"] is None
    assert slow["parts_us"]["other"] >= SLOW_MS * 1000 * 0.9


def test_run_tells_the_disk_and_the_first_request_of_a_connection(tmp_path: Path) -> None:
    address = str(tmp_path / "socket")
    code = (
        "import socket, subprocess, sys, time, os\n"
        "from tests.workloads.slow_requests import REPLY, request\n"
        f"server = subprocess.Popen({[*SERVER, 'threads', address, str(tmp_path / 'r')]!r}, "
        "stdin=subprocess.PIPE)\n"
        f"while not os.path.exists({str(tmp_path / 'r')!r}): time.sleep(0.005)\n"
        f"client = socket.socket(socket.AF_UNIX); client.connect({address!r})\n"
        "for kind in ('disk', 'quick', 'quick'):\n"
        "    client.sendall(request(kind, 0)); assert client.recv(2) == REPLY\n"
        "client.close(); server.stdin.close(); server.wait()\n"
    )
    report = run([sys.executable, "-c", code], tmp_path / "report.json")
    if is_off(report):
        return
    check_sums(report["requests"]["slowest"])
    rows = served_at(report, address)
    assert len(rows) == 3
    first = next(row for row in rows if row["connection_turn"] == 1)
    assert first["stages_us"]["accept_wait"] is not None
    received = next(at for at, call in enumerate(first["calls"]) if call["whose"] == "this")
    # The interpreter's lock may be another thread's for a moment.
    made = [name for name in names(first["calls"][received:]) if name != "futex"]
    assert made == ["recvfrom", *CALLS["disk"], "sendto"]
    started = [each["pid"] for each in report["targets"] if each["via"] == "selector"]
    assert [first["peer"]["pid"]] == started


LINE = re.compile(r"^(\d+) +\d\d:\d\d:\d\d\.\d+ (?:<\.\.\. )?(\w+)(?:\(| resumed)(.*)$")


def traced_calls(lines: Sequence[str], marker: str) -> List[str]:
    """Calls of the thread that received `marker`, from then to its next sendto, by strace."""
    found: List[str] = []
    thread = ""
    for line in lines:
        match = LINE.match(line)
        if match is None:
            continue
        tid, name, rest = match.groups()
        if not thread and name == "recvfrom" and marker in rest:
            thread, found = tid, ["recvfrom"]
        elif thread == tid and " resumed" not in line:
            found.append(name)
            if name == "sendto" and f'"{REPLY.decode()}"' in rest:
                return ["sleep" if each in SLEEPS else each for each in found]
    raise AssertionError(f"no request in {lines[-20:]}")


@pytest.mark.parametrize("kind", ["pipe", "lock", "disk"])
def test_the_calls_are_those_that_strace_sees_of_the_same_request(
    kind: str, tmp_path: Path, require: Require
) -> None:
    require("strace")
    trace = tmp_path / "trace"
    strace = [str(shutil.which("strace")), "-f", "-tt", "-o", str(trace)]
    with serving("threads", "unix", tmp_path, strace) as server:
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        pid = children.read_text().split()[0]
        client = server.connect()
        ask(client, "quick")
        with Live(["attach", "--pid", pid, "--json"], tmp_path) as live:
            ask(client, kind, SLOW_MS)
            report = live.end(signal.SIGINT).report
    if is_off(report):
        return
    slow = served_at(report, server.address)[0]
    assert names(slow["calls"]) == traced_calls(trace.read_text().splitlines(), kind)
