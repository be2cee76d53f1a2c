"""`udsprobe attach` to processes that are already inside a call, or not alone."""

from __future__ import annotations

import platform
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, NamedTuple, Sequence, Tuple

import pytest

from tests.kernel import leftovers, tool
from tests.kernel.cases import Counts, Key, read_truth
from tests.kernel.conftest import Workload
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

ROUNDS = 23
PAYLOAD = b"x" * 64
# Numbers of the calls the workloads sleep in, and which of the epoll calls `asleep` makes
# (tests/workloads/waits.c).
RECVFROM, SENDTO, EPOLL_WAIT, EPOLL_NAME = {
    "x86_64": (45, 44, 232, "epoll_wait"),
    "aarch64": (207, 206, 22, "epoll_pwait"),
}[platform.machine()]

KEYS = {"unix-stream": ("unix", "stream"), "tcp4": ("tcp", "stream")}


def threads_inside(pid: int, number: int) -> int:
    """Threads of `pid` that sleep in system call `number`, as /proc tells it."""
    tasks = Path(f"/proc/{pid}/task").glob("*/syscall")
    return sum(task.read_text().split()[0] == str(number) for task in tasks)


def wait_until_inside(process: subprocess.Popen[bytes], number: int) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not threads_inside(process.pid, number):
        assert process.poll() is None
        assert time.monotonic() < give_up_at, f"never in system call {number}"
        time.sleep(0.005)


def connected(family: str) -> Tuple[socket.socket, socket.socket]:
    """Our end and the workload's."""
    if family == "unix-stream":
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        return ours, listener.accept()[0]


class Echo(NamedTuple):
    """A workload asleep in recvfrom, and the socket that wakes it."""

    process: subprocess.Popen[bytes]
    ours: socket.socket
    truth: Path
    transport: str
    socket_type: str

    def key(self, name: str) -> Key:
        return Key(name, self.transport, self.socket_type, "native")

    def rounds(self) -> None:
        for _ in range(ROUNDS):
            self.ours.sendall(PAYLOAD)
            assert self.ours.recv(len(PAYLOAD), socket.MSG_WAITALL) == PAYLOAD

    def end(self) -> None:
        self.ours.close()
        assert self.process.wait(PATIENCE_S) == 0


@pytest.fixture(params=KEYS)
def echo(request: pytest.FixtureRequest, workload: Workload, tmp_path: Path) -> Iterator[Echo]:
    ours, theirs = connected(request.param)
    truth = tmp_path / "truth.json"
    argv = [str(workload(64)), "echo", request.param, str(truth)]
    process = subprocess.Popen(argv, stdin=theirs.fileno())
    theirs.close()
    try:
        wait_until_inside(process, RECVFROM)
        yield Echo(process, ours, truth, *KEYS[request.param])
    finally:
        ours.close()
        process.kill()
        process.wait()


def latencies(report: tool.Report, name: str) -> int:
    return sum(row["latency_us"]["count"] for row in report["syscalls"] if row["name"] == name)


def test_a_thread_asleep_all_the_time_is_one_in_flight(workload: Workload, tmp_path: Path) -> None:
    argv = [str(workload(64)), "asleep", "unix-stream", str(tmp_path / "truth.json")]
    with subprocess.Popen(argv) as process:
        try:
            wait_until_inside(process, EPOLL_WAIT)
            with tool.Attached(["--pid", str(process.pid)], tmp_path) as attached:
                assert threads_inside(process.pid, EPOLL_WAIT) == 1
        finally:
            process.terminate()
    waiting = Key(EPOLL_NAME, "other", None, "native")
    assert tool.in_flight(attached.report) == {waiting: 1}
    assert tool.rows(attached.report) == {}


def test_a_call_that_began_before_is_counted_and_has_no_latency(echo: Echo, tmp_path: Path) -> None:
    with tool.Attached(["--pid", str(echo.process.pid)], tmp_path) as attached:
        echo.rounds()
        wait_until_inside(echo.process, RECVFROM)
    moved = ROUNDS * len(PAYLOAD)
    assert tool.rows(attached.report) == {
        echo.key("recvfrom"): Counts(ROUNDS, {}, moved),
        echo.key("sendto"): Counts(ROUNDS, {}, moved),
    }
    assert tool.in_flight(attached.report) == {echo.key("recvfrom"): 1}
    assert latencies(attached.report, "recvfrom") == ROUNDS - 1
    assert latencies(attached.report, "sendto") == ROUNDS


def test_the_window_ends_with_the_target(echo: Echo, tmp_path: Path) -> None:
    with tool.Attached(["--pid", str(echo.process.pid)], tmp_path, ending=None) as attached:
        echo.rounds()
        echo.end()
    assert tool.rows(attached.report) == read_truth(echo.truth).rows
    assert [target["state"] for target in attached.report["targets"]] == ["exited"]


def test_what_happened_before_is_not_counted(echo: Echo, tmp_path: Path) -> None:
    echo.rounds()
    wait_until_inside(echo.process, RECVFROM)
    with tool.Attached(["--pid", str(echo.process.pid)], tmp_path) as attached:
        pass
    assert tool.rows(attached.report) == {}


def test_sigterm_ends_the_window_with_a_report(echo: Echo, tmp_path: Path) -> None:
    selectors = ["--pid", str(echo.process.pid)]
    with tool.Attached(selectors, tmp_path, ending=signal.SIGTERM) as attached:
        echo.rounds()
    assert tool.rows(attached.report)[echo.key("sendto")].calls == ROUNDS


def test_a_killed_udsprobe_leaves_nothing_and_hurts_nobody(echo: Echo, tmp_path: Path) -> None:
    selectors = ["--pid", str(echo.process.pid)]
    before = leftovers.loaded()
    with tool.Attached(selectors, tmp_path, ending=signal.SIGKILL):
        assert leftovers.loaded().without(before).programs, "nothing was attached"
        echo.rounds()
    assert not any(leftovers.left_over_since(before))
    echo.rounds()
    echo.end()


SENDS_ONCE = """
import socket, sys
listener = socket.socket(fileno=0)
sock, _ = listener.accept()
sock.recv(1)
assert sock.send(bytes(int(sys.argv[1]))) == int(sys.argv[1])
print("sent", flush=True)
sock.recv(1)
"""


def listening(family: str, folder: Path) -> socket.socket:
    if family == "tcp4":
        return socket.create_server(("127.0.0.1", 0))
    return socket.create_server(str(folder / "s"), family=socket.AF_UNIX)


@pytest.mark.parametrize("family", KEYS)
@pytest.mark.parametrize("drained", [True, False])
def test_a_send_that_is_blocked_when_we_come(family: str, drained: bool, tmp_path: Path) -> None:
    """Nobody reads: it sleeps for room, before the observation and in it."""
    sent = 16 << 20
    argv = [sys.executable, "-I", "-c", SENDS_ONCE, str(sent)]
    with listening(family, tmp_path) as listener, socket.socket(listener.family) as ours:
        process = subprocess.Popen(argv, stdin=listener.fileno(), stdout=subprocess.PIPE)
        ours.connect(listener.getsockname())
        ours.sendall(b"?")
        with process, killed_at_the_end(process):
            wait_until_inside(process, SENDTO)
            with tool.Attached(["--pid", str(process.pid)], tmp_path) as attached:
                if drained:
                    ours.recv(sent, socket.MSG_WAITALL)
                    assert process.stdout is not None
                    assert process.stdout.readline() == b"sent\n"
                    wait_until_inside(process, RECVFROM)
    sends = Key("sendto", *KEYS[family], "native")
    (row,) = attached.report["connections"]
    in_flight = tool.in_flight(attached.report)
    if drained:
        assert tool.rows(attached.report)[sends] == Counts(1, {}, sent)
        assert sends not in in_flight
        assert row["bytes_out"] == sent
        # It slept for room, was woken for some of it, and slept again: one call.
        assert row["send_blocked"]["count"] == 1
    else:
        assert tool.rows(attached.report) == {}
        assert in_flight == {sends: 1}
        assert row["send_blocked"]["count"] == 0
    assert row["pid"] == process.pid


@contextmanager
def killed_at_the_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()


def process_with_pid(pid: int, argv: Sequence[str]) -> bool:
    """Run `argv` to its end; whether it got `pid`."""
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
    with subprocess.Popen(argv) as process:
        assert process.wait(PATIENCE_S) == 0
        return process.pid == pid


def test_a_stranger_that_gets_a_targets_pid_is_no_target(
    echo: Echo, workload: Workload, tmp_path: Path
) -> None:
    truth = tmp_path / "stranger.json"
    stranger = [str(workload(64)), "sendmsg", "unix-dgram", str(truth)]
    asleep = [str(workload(64)), "asleep", "unix-stream", str(tmp_path / "asleep.json")]
    with subprocess.Popen(asleep) as other:
        try:
            wait_until_inside(other, EPOLL_WAIT)
            selectors = ["--pid", f"{echo.process.pid},{other.pid}"]
            with tool.Attached(selectors, tmp_path) as attached:
                echo.rounds()
                echo.end()
                reused = any(process_with_pid(echo.process.pid, stranger) for _ in range(50))
        finally:
            other.terminate()
    assert reused, "the PID was never given again"
    assert tool.rows(attached.report) == read_truth(echo.truth).rows


def python_echo(folder: Path) -> List[str]:
    script = tool.REPOSITORY / "tests" / "workloads" / "python_echo.py"
    return [sys.executable, "-I", str(script), str(folder / "truth.json")]


def test_an_interpreter_with_threads(tmp_path: Path) -> None:
    report = tool.run(python_echo(tmp_path), tmp_path / "report.json")
    truth = read_truth(tmp_path / "truth.json")
    rows = tool.rows(report)
    assert {key: rows.get(key) for key in truth.rows} == truth.rows
    assert {key for key in rows if key.transport == "unix"} == set(truth.rows)
    assert report["requests"]["served"]["count"] == truth.requests
