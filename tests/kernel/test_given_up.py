"""Clients that close before they have a reply, against servers that know what they left."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

from tests.kernel.exporting import Exporting
from tests.kernel.leaving import Server
from tests.kernel.tool import Attached
from tests.workloads import leaving_server

pytestmark = [pytest.mark.root]

Row = Dict[str, Any]
LEFT, ANSWERED, CLIENT_WAITS_S = 23, 40, 0.05


@pytest.fixture(params=["unix close", "tcp close", "unix shutdown", "tcp shutdown"])
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    kind, how = str(request.param).split()
    started = Server(kind, folder, how)
    yield started
    if not started.account:
        started.end()


@contextmanager
def observed(server: Server, folder: Path) -> Iterator[Row]:
    """The report's row of the server, filled in at the end."""
    row: Row = {}
    with Attached(["--pid", str(server.pid)], folder) as watched:
        yield row
        asks(server, b"answer")  # the server has seen all that went before it
    row.update(watched.report["requests"]["served_by"][0], verdict=watched.report["verdict"])


def asks(server: Server, word: bytes) -> None:
    with server.client() as sock:
        sock.sendall(word)
        assert sock.recv(64) == (b"reply" if word == b"answer" else b"")


def gives_up(server: Server, word: bytes = b"leave", *, with_reset: bool = False) -> None:
    with server.client() as sock:
        if with_reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.sendall(word)
        sock.settimeout(CLIENT_WAITS_S)
        with pytest.raises(socket.timeout):
            sock.recv(64)


@pytest.mark.parametrize("with_reset", [False, True], ids=["", "reset"])
def test_clients_that_give_up_are_counted(server: Server, folder: Path, with_reset: bool) -> None:
    with observed(server, folder) as row:
        for _ in range(ANSWERED):
            asks(server, b"answer")
        for _ in range(LEFT):
            gives_up(server, with_reset=with_reset)
    server.end()
    assert server.account["ended_without_a_reply"] == row["given_up"]["count"] == LEFT
    assert server.account["answered"] == row["count"] == ANSWERED + 1
    assert row["given_up"]["waited_mean_us"] >= 1e6 * CLIENT_WAITS_S * 0.9
    assert row["given_up"]["upstream_mean_us"] == 0
    assert row["in_progress"]["count"] == row["unanswered"]["count"] == 0
    told = row["verdict"]
    assert (told["cause"], told["harm"]["kind"]) == ("app-blocked", "failed")
    assert told["harm"]["count"] == LEFT
    share_pct = 100 * LEFT / (LEFT + ANSWERED + 1)
    assert told["harm"]["share_pct"] == pytest.approx(share_pct, abs=0.001)


def test_those_whose_connections_the_server_keeps(server: Server, folder: Path) -> None:
    with observed(server, folder) as row:
        for _ in range(LEFT):
            gives_up(server, b"keep")
    assert row["abandoned"]["count"] == row["unanswered"]["count"] == LEFT
    assert row["abandoned"]["oldest_us"] == row["unanswered"]["oldest_us"]
    assert (row["given_up"]["count"], row["given_up"]["kept_open"]) == (0, LEFT)
    if server.transport == "tcp":
        assert close_wait(server) == LEFT
    told = row["verdict"]
    assert (told["cause"], told["harm"]["kind"]) == ("app-blocked", "failed")
    assert told["harm"]["count"] == LEFT


def close_wait(server: Server) -> int:
    """What ss says of its side."""
    argv = ["ss", "-Htn", "state", "close-wait", f"( sport = :{server.port} )"]
    return len(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines())


def says_goodbye(server: Server) -> None:
    with server.client() as sock:
        sock.sendall(b"answer")
        assert sock.recv(64) == b"reply"
        sock.sendall(b"bye")


def of_a_database(message: bytes) -> Any:
    """The end of its connection comes later than a reply might."""

    def says(server: Server) -> None:
        with server.client() as sock:
            sock.sendall(b"answer")
            assert sock.recv(64) == b"reply"
            sock.sendall(message)
            assert sock.recv(64) == b""

    return says


def leaves_at_once(server: Server) -> None:
    with server.client() as sock:
        sock.sendall(b"leave")


def messages(size: int, first: int = 0x81) -> Any:
    """A client of a WebSocket, whose message nobody answers, and who leaves without a goodbye."""
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")

    def sends(server: Server) -> None:
        with server.client() as sock:
            sock.sendall(b"answer")
            assert sock.recv(64) == b"reply"
            sock.sendall(bytes([first]) + length + b"mask" + bytes(size))
            sock.settimeout(CLIENT_WAITS_S)
            with pytest.raises(socket.timeout):
                sock.recv(64)

    return sends


def is_dropped(server: Server) -> None:
    asks(server, b"drop")


def test_those_that_the_server_ends_are_counted(server: Server, folder: Path) -> None:
    with observed(server, folder) as row:
        for _ in range(ANSWERED):
            asks(server, b"answer")
        for _ in range(LEFT):
            asks(server, b"fail")
    server.end()
    assert server.account["failed"] == row["dropped"]["count"] == LEFT
    assert row["dropped"]["waited_mean_us"] >= 1e6 * leaving_server.FAILS_AFTER_S
    assert row["given_up"]["count"] == 0
    told = row["verdict"]
    assert (told["cause"], told["harm"]["kind"]) == ("app-blocked", "failed")
    assert told["harm"]["count"] == LEFT


def test_both_are_metrics(folder: Path) -> None:
    server = Server("unix", folder, "close")
    with Exporting(
        ["--pid", str(server.pid), "--interval", "0.2", "--detail", "full"]
    ) as exporting:
        for _ in range(LEFT):
            gives_up(server)
        for _ in range(ANSWERED):
            asks(server, b"fail")
        asks(server, b"answer")  # the server has seen all that went before it
        exporting.wait_for_samples(2)
        found = exporting.series()
        assert exporting.end().code == 0
    server.end()
    name = "udsprobe_served_requests_unanswered_total"
    by_client, by_program = (found[name, (("ended_by", who),)] for who in ("client", "program"))
    assert by_client == server.account["ended_without_a_reply"] == LEFT
    assert by_program == server.account["failed"] == ANSWERED


def test_those_that_it_has_when_it_is_killed_are_counted(folder: Path) -> None:
    """Of TCP: nothing tells of the end of a Unix socket."""
    server, kept = Server("tcp", folder, "close"), []
    with Attached(["--pid", str(server.pid)], folder) as watched:
        asks(server, b"answer")
        for _ in range(LEFT):
            kept.append(server.client())
            kept[-1].sendall(b"leave")
        gives_up(server)
        os.kill(server.pid, signal.SIGKILL)
        for sock in kept:
            assert sock.recv(64) == b""
            sock.close()
    (row,) = watched.report["requests"]["served_by"]
    assert (row["dropped"]["count"], row["given_up"]["count"]) == (LEFT, 1)
    server.account = {"killed": 1}
    server.wait()
    told = watched.report["verdict"]
    assert (told["cause"], told["harm"]["kind"]) == ("app-blocked", "failed")
    assert "ended with them in hand" in told["summary"]


def closes_half(server: Server) -> None:
    """It sends no more, and has its reply."""
    with server.client() as sock:
        sock.sendall(b"answer")
        assert sock.recv(64) == b"reply"
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(64) == b""


def speaks_on(server: Server) -> None:
    """Its messages need no reply: it does not wait for one before the next."""
    with server.client() as sock:
        sock.sendall(b"answer")
        assert sock.recv(64) == b"reply"
        sock.settimeout(CLIENT_WAITS_S)
        for _ in range(2):
            sock.sendall(b"leave")
            with pytest.raises(socket.timeout):
                sock.recv(64)


OTHERS = {
    "speaks on": speaks_on,
    "says goodbye": says_goodbye,
    "terminates": of_a_database(leaving_server.GOODBYES[0]),
    "quits": of_a_database(leaving_server.GOODBYES[1]),
    "leaves at once": leaves_at_once,
    "is dropped": is_dropped,
    "closes half": closes_half,
    "empty message": messages(0),
    "message": messages(50),
    "compressed": messages(50, 0xC1),
    "long": messages(300),
}


@pytest.mark.parametrize("what", OTHERS.values(), ids=OTHERS)
def test_others_that_end_are_none(server: Server, folder: Path, what: Any) -> None:
    with observed(server, folder) as row:
        for _ in range(LEFT):
            what(server)
    assert row["given_up"] == {
        "count": 0,
        "kept_open": 0,
        "waited_mean_us": None,
        "upstream_mean_us": None,
    }
    assert row["dropped"] == {"count": 0, "waited_mean_us": None}
    assert row["verdict"]["harm"]["kind"] != "failed"
