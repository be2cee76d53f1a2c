"""Requests that come in pieces, against both ends' own clocks."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

from tests.kernel.piped import PipedProgram
from tests.kernel.tool import Attached
from tests.workloads.upload_server import LENGTH

pytestmark = [pytest.mark.root]

WORKLOAD = Path(__file__).parents[1] / "workloads" / "upload_server.py"
HTTP, OTHER = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "+OK\r\n"
REQUESTS = 20
PAUSE_S = 0.005
NS_PER_US = 1000
# Shares have three decimals.
ROUNDED = 0.0001


class Client:
    """Asks in so many pieces, each sent a while after the server has the one before."""

    def __init__(self, server: PipedProgram, path: Path, pieces: int) -> None:
        self._server, self._pieces = server, pieces
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self.least_ns = self.most_ns = 0

    def ask(self) -> None:
        received: Tuple[int, int] = (0, 0)
        for at in range(self._pieces):
            if at:
                time.sleep(PAUSE_S)
            before_ns = time.monotonic_ns()
            self._socket.sendall(b"x" * (LENGTH // self._pieces))
            after_ns = time.monotonic_ns()
            if at:
                self.least_ns += before_ns - received[1]
                self.most_ns += after_ns - received[0]
            received = self._received()
        assert self._socket.recv(64)

    def _received(self) -> Tuple[int, int]:
        before, after = map(int, self._server.says().split())
        return before, after

    def ask_at_once(self, calls: int) -> None:
        """All of it is there when the server begins, and takes it so many calls."""
        self._socket.sendall(b"x" * LENGTH)
        for _ in range(calls):
            self._received()
        assert self._socket.recv(64)


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "app"


def served(report: Dict[str, Any]) -> Dict[str, Any]:
    """Of the only process, as of all."""
    (row,) = report["requests"]["served_by"]
    assert row["count"] == report["requests"]["served"]["count"] == REQUESTS
    assert row["app_time_pct"] == report["requests"]["served"]["app_time_pct"]
    found: Dict[str, Any] = row
    return found


def started(path: Path, read_bytes: int, reply: str) -> PipedProgram:
    return PipedProgram(sys.executable, str(WORKLOAD), str(path), str(read_bytes), reply)


@pytest.mark.parametrize("pieces", [2, 3, 10])
def test_the_client_s_part_is_what_both_clocks_say(path: Path, folder: Path, pieces: int) -> None:
    with started(path, LENGTH, HTTP) as server:
        assert server.says() == "listens"
        client = Client(server, path, pieces)
        with Attached(["--pid", str(server.pid)], folder) as watched:
            for _ in range(REQUESTS):
                client.ask()
    row = served(watched.report)
    app_ns = row["stages_mean_us"]["app"] * REQUESTS * NS_PER_US
    rest_ns = row["app_time_pct"]["client"] / 100 * app_ns
    assert client.least_ns - ROUNDED * app_ns <= rest_ns <= client.most_ns + ROUNDED * app_ns
    assert sum(row["app_time_pct"].values()) == pytest.approx(100, abs=0.01)
    assert "rest of their requests" in watched.report["verdict"]["summary"]


def test_what_is_there_and_not_read_is_no_wait_for_the_client(path: Path, folder: Path) -> None:
    with started(path, LENGTH // 9, HTTP) as server:
        assert server.says() == "listens"
        client = Client(server, path, 1)
        with Attached(["--pid", str(server.pid)], folder) as watched:
            for _ in range(REQUESTS):
                client.ask_at_once(calls=9)
    assert "client" not in served(watched.report)["app_time_pct"]


def test_other_protocols_may_ask_again_meanwhile(path: Path, folder: Path) -> None:
    """What comes before a reply can be the next request there."""
    with started(path, LENGTH, OTHER) as server:
        assert server.says() == "listens"
        client = Client(server, path, 3)
        with Attached(["--pid", str(server.pid)], folder) as watched:
            for _ in range(REQUESTS):
                client.ask()
    assert "client" not in served(watched.report)["app_time_pct"]
