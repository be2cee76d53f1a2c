"""Requests that are never answered: the verdict says so while they are not, and why."""

from __future__ import annotations

import select
import socket
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

from tests.kernel.piped import PipedProgram
from tests.kernel.tool import Attached
from tests.patience import PATIENCE_S
from tests.workloads import stuck_server
from udsprobe.rules.thresholds import HUNG_US_MIN

pytestmark = [pytest.mark.root, pytest.mark.alone]

Verdict = Dict[str, Any]
# That long a client waits before it asks somebody what is wrong; of the rules it is a second.
ENOUGH_S = 1.3
OBSERVATIONS_MAX = 3
HOLDER = (
    "import fcntl, sys\nwith open(sys.argv[1], 'r+b') as file:\n"
    "    fcntl.lockf(file, fcntl.LOCK_EX)\n    print('held', flush=True)\n    sys.stdin.read()\n"
)


class Server(PipedProgram):
    """The stuck server, and what its clients do."""

    def __init__(self, mode: str, folder: Path) -> None:
        self._path, self.file = folder / "s", folder / "locked"
        self.file.write_bytes(b"x")
        super().__init__(
            sys.executable, stuck_server.__file__, mode, str(self._path), str(self.file)
        )
        # It listens.
        self.says()

    def client(self) -> socket.socket:
        """Connected, and answered once."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE_S)
        sock.connect(str(self._path))
        sock.sendall(b"echo\n")
        assert sock.recv(64) == b"echo\n"
        return sock

    def ask(self, what: str, *clients: socket.socket) -> None:
        """Of each client one request, which the server has begun to wait in."""
        for sock in clients:
            sock.sendall(f"{what}\n".encode())
            assert self.says() == what

    def watched(self, folder: Path) -> Attached:
        return Attached(["--pid", str(self.pid), "--no-follow"], folder)


def in_vain(*clients: socket.socket) -> None:
    """Clients that wait for a reply, and have none."""
    readable, _, _ = select.select(clients, [], [], ENOUGH_S)
    assert readable == []


def told(server: Server, what: str, folder: Path, clients: int = 1) -> Verdict:
    """The verdict at the end of a window that began before the requests."""
    sockets = [server.client() for _ in range(clients)]
    with server.watched(folder) as observation:
        server.ask(what, *sockets)
        in_vain(*sockets)
    return verdict(observation.report, clients)


def verdict(report: Dict[str, Any], owed: int) -> Verdict:
    found = report["verdict"]
    assert isinstance(found, dict)
    assert found["harm"]["kind"] == "stuck"
    assert found["harm"]["count"] == owed
    assert found["harm"]["share_pct"] == 100
    # A child is forked after the server has said that it will wait for one.
    assert found["harm"]["since_s"] >= HUNG_US_MIN / 1e6
    return found


@pytest.mark.parametrize("mode", ["threads", "process"])
@pytest.mark.parametrize("what", ["lock", "pipe", "child"])
def test_a_wait_that_nobody_ends(mode: str, what: str, tmp_path: Path) -> None:
    with Server(mode, tmp_path) as server:
        found = told(server, what, tmp_path)
    assert found["cause"] == "app-blocked"
    # Who has the lock is not known: the thread that waits is what it is about.
    assert str(server.pid) in found["subject"]
    assert "who will end that is not known yet" in found["summary"]


def test_many_that_wait_make_it_sure(tmp_path: Path) -> None:
    with Server("threads", tmp_path) as server:
        one = told(server, "lock", tmp_path)
        many = told(server, "lock", tmp_path, clients=8)
    assert many["confidence"] > one["confidence"]


@pytest.mark.parametrize("mode", ["threads", "process"])
def test_a_file_lock_of_another_process(mode: str, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.touch()
    with (
        PipedProgram(sys.executable, "-c", HOLDER, str(locked)) as holder,
        Server(mode, tmp_path) as server,
    ):
        assert holder.says() == "held"
        found = told(server, "file", tmp_path)
    assert found["cause"] == "app-blocked"
    assert found["subject"].endswith(f" {holder.pid}")
    assert f"which {found['subject']} holds" in found["summary"]
    assert found["actions"][0]["run"] == f"sudo udsprobe attach --pid {holder.pid}"


@pytest.mark.parametrize("mode", ["threads", "process"])
def test_a_pipe_that_its_reader_does_not_read(mode: str, tmp_path: Path) -> None:
    with Server(mode, tmp_path) as server:
        found = told(server, "full", tmp_path)
    name, _, reader = found["subject"].rpartition(" ")
    assert (found["cause"], name) == ("app-blocked", "sh")
    assert f"{found['subject']} does not read it" in found["summary"]
    assert found["actions"][0]["run"].endswith(f"-p {reader}")


def test_a_thread_that_never_stops_computing(tmp_path: Path) -> None:
    found = computing(tmp_path)
    # A child is forked after the server has said that it will wait for one.
    assert found["harm"]["since_s"] >= HUNG_US_MIN / 1e6


def computing(folder: Path) -> Verdict:
    """Of three observations: on a busy host such a thread may wait for a CPU instead."""
    for _ in range(OBSERVATIONS_MAX):
        with Server("process", folder) as server, server.watched(folder) as observation:
            sock = server.client()
            server.ask("compute", sock)
            in_vain(sock)
        found: Verdict = observation.report["verdict"]
        if (found["cause"], found["harm"]["kind"]) == ("app-cpu", "stuck"):
            break
        (folder / "s").unlink()
    if found["cause"] == "cpu-contention":
        pytest.skip(f"others held the CPUs each time, and the verdict says: {found['summary']}")
    assert (found["cause"], found["harm"]["kind"]) == ("app-cpu", "stuck")
    assert str(server.pid) in found["subject"]
    return found


@pytest.mark.parametrize("mode", ["threads", "process"])
def test_a_client_that_does_not_read_its_reply(mode: str, tmp_path: Path) -> None:
    """Its reply has begun, so none is owed: the reader's cause, without stuck requests."""
    with Server(mode, tmp_path) as server:
        sock = server.client()
        with server.watched(tmp_path) as observation:
            server.ask("send", sock)
            select.select([], [], [sock], ENOUGH_S)
    assert observation.report["verdict"]["cause"] == "send-blocked"


@pytest.mark.parametrize("what", ["lock", "pipe", "child"])
def test_who_was_stuck_before_we_came(what: str, tmp_path: Path) -> None:
    """One client, and the one thread is busy with something else than waiting for it."""
    with Server("process", tmp_path) as server:
        sock = server.client()
        server.ask(what, sock)
        with server.watched(tmp_path) as observation:
            in_vain(sock)
    found = verdict(observation.report, 1)
    assert found["cause"] == "app-blocked"
    assert found["confidence"] < 0.5


def test_who_waited_for_an_answer_before_we_came(tmp_path: Path) -> None:
    """In poll(), as a library with a time limit does."""
    with (
        socket.socket(socket.AF_UNIX) as upstream,
        Server("process", tmp_path) as server,
    ):
        upstream.bind(f"{tmp_path / 's'}.upstream")
        upstream.listen()
        sock = server.client()
        server.ask("ask", sock)
        assert select.select([upstream], [], [], PATIENCE_S)[0]
        with server.watched(tmp_path) as observation:
            in_vain(sock)
    found = verdict(observation.report, 1)
    assert found["cause"] == "upstream-wait"
    assert "waiting for bytes (poll)" in found["summary"]


def test_who_slept_before_we_came_and_keeps_others_waiting(tmp_path: Path) -> None:
    with Server("process", tmp_path) as server:
        sock = server.client()
        server.ask("sleep", sock)
        with socket.socket(socket.AF_UNIX) as other, server.watched(tmp_path) as observation:
            other.connect(str(tmp_path / "s"))
            in_vain(sock)
    found = observation.report["verdict"]
    assert (found["cause"], found["harm"]["kind"]) == ("app-blocked", "stuck")
    assert found["harm"]["says"] == "1 connection not accepted"
    assert "asleep by a timer" in found["summary"]


def test_a_long_poll_is_no_illness(tmp_path: Path) -> None:
    """A server that pushes owes replies until there is something to say."""
    with Server("loop", tmp_path) as server:
        sockets = [server.client() for _ in range(3)]
        with server.watched(tmp_path) as observation:
            server.ask("push", *sockets)
            in_vain(*sockets)
    found = observation.report["verdict"]
    assert (found["cause"], found["harm"]["kind"]) == ("unknown", "unknown")


@pytest.mark.parametrize("mode", ["threads", "process", "loop"])
@pytest.mark.parametrize("is_known", [True, False])
def test_an_idle_connection_owes_nothing(mode: str, is_known: bool, tmp_path: Path) -> None:
    with Server(mode, tmp_path) as server:
        sock = server.client()
        with server.watched(tmp_path) as observation:
            if is_known:
                sock.sendall(b"echo\n")
                assert sock.recv(64) == b"echo\n"
            in_vain(sock)
    found = observation.report["verdict"]
    assert (found["cause"], found["harm"]["kind"]) == ("unknown", "unknown")


def who(report: Dict[str, Any]) -> List[Tuple[str, Optional[bool]]]:
    return [(row["kind"], row["polls_clients"]) for row in report["waits_now"]]


def test_the_poller_of_a_process_that_has_time(tmp_path: Path) -> None:
    with Server("loop", tmp_path) as server:
        sock = server.client()
        with server.watched(tmp_path) as observation:
            in_vain(sock)
    assert who(observation.report) == [("poll", True)]
