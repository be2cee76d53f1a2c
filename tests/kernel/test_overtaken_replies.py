"""Clients that ask again before the send call of their reply returns."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import pytest

from tests.kernel.piped import PipedProgram
from tests.kernel.tool import Attached
from tests.workloads.overtaken_server import LAST, REPLY_BYTES

pytestmark = [pytest.mark.root]

WORKLOAD = Path(__file__).parents[1] / "workloads" / "overtaken_server.py"
REQUESTS = 12
NS_PER_US = 1000


def received(client: socket.socket, left: int) -> None:
    while left:
        left -= len(client.recv(left))


def ask(client: socket.socket, server: PipedProgram, text: bytes) -> float:
    """When it was asked, in ns; the server has received it."""
    asked_ns = time.monotonic_ns()
    client.sendall(text)
    assert server.says() == "received"
    return asked_ns


def test_each_is_a_request_of_its_own(folder: Path) -> None:
    """Another thread receives it while the reply is being sent."""
    path, took_ns = folder / "app", 0.0
    with PipedProgram(sys.executable, str(WORKLOAD), str(path)) as server:
        assert server.says() == "listens"
        attached = Attached(["--pid", str(server.pid)], folder)
        with attached as watched, socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            asked_ns = ask(client, server, b"first")
            for at in range(1, REQUESTS):
                received(client, 1)
                again_ns = ask(client, server, LAST if at == REQUESTS - 1 else b"more")
                received(client, REPLY_BYTES - 1)
                took_ns = max(took_ns, time.monotonic_ns() - asked_ns)
                asked_ns = again_ns
            received(client, 1)
            took_ns = max(took_ns, time.monotonic_ns() - asked_ns)
    served = watched.report["requests"]["served"]
    assert served["count"] == REQUESTS
    assert 0 < served["latency_us"]["max"] <= 1.1 * took_ns / NS_PER_US
    (row,) = watched.report["requests"]["served_by"]
    assert row["count"] == REQUESTS
