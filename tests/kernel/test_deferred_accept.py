"""Listeners that get a connection when its first bytes are there (TCP_DEFER_ACCEPT)."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from typing import List

import pytest

from tests.kernel.piped import PipedProgram
from tests.kernel.tool import Attached

pytestmark = [pytest.mark.root]

WORKLOAD = Path(__file__).parents[1] / "workloads" / "deferred_server.py"
REQUESTS = 5
NS_PER_US = 1000
QUEUED_S = 0.05


def ask(server: PipedProgram, port: int, least: List[int], most: List[int]) -> None:
    """Between sending it and telling the server to accept it, the request waits in the queue."""
    began_ns = time.monotonic_ns()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"request")
        sent_ns = time.monotonic_ns()
        time.sleep(QUEUED_S)
        least.append(time.monotonic_ns() - sent_ns)
        server.tell("accept\n")
        assert client.recv(100) == b"request"
        most.append(time.monotonic_ns() - began_ns)


@pytest.mark.parametrize("detail", ["full", "light"])
def test_a_request_waits_to_be_accepted_where_accept_is_deferred(folder: Path, detail: str) -> None:
    """Its bytes are in the queue before its connection is."""
    least: List[int] = []
    most: List[int] = []
    with PipedProgram(sys.executable, str(WORKLOAD)) as server:
        port = int(server.says())
        with Attached(["--pid", str(server.pid), "--detail", detail], folder) as watched:
            for _ in range(REQUESTS):
                ask(server, port, least, most)
    latency = watched.report["requests"]["served"]["latency_us"]
    assert latency["count"] == REQUESTS
    # When bytes come that the sender has sent is up to the kernel.
    assert latency["mean"] * REQUESTS >= 0.9 * sum(least) / NS_PER_US
    assert latency["max"] <= max(most) / NS_PER_US
