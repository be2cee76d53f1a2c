"""The demo's server and load agree with each other, and leave nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, Tuple

import pytest

from udsprobe.demo import REPLY_BYTES, REQUEST_BYTES

Served = Tuple["subprocess.Popen[str]", Path]


def demo(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "udsprobe.demo", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(process: subprocess.Popen[str]) -> Dict[str, int]:
    assert process.stdout is not None
    said: Dict[str, int] = json.loads(process.stdout.readline())
    return said


@pytest.fixture
def served() -> Iterator[Served]:
    with demo("serve") as server:
        yield server, Path(str(line(server)["socket"]))
        server.terminate()


def load(socket: Path, *options: str) -> Dict[str, int]:
    with demo("load", "--socket", str(socket), "--rate", "20000", *options) as process:
        return line(process)


def test_exactly_so_many_requests(served: Served) -> None:
    server, socket = served
    sent = load(socket, "--count", "250", "--connections", "4", "--requests-per-connection", "10")
    assert sent["requests"] == 250
    assert sent["bytes_out"] == 250 * REQUEST_BYTES
    assert sent["bytes_in"] == 250 * REPLY_BYTES
    assert server.stdin is not None
    server.stdin.close()
    did = line(server)
    assert did == {
        "accepted": sent["connects"],
        "requests": 250,
        "bytes_in": sent["bytes_out"],
        "bytes_out": sent["bytes_in"],
    }


def test_the_server_ends_with_its_starter_and_removes_its_directory(served: Served) -> None:
    server, socket = served
    assert socket.is_socket()
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait() == 0
    assert not socket.parent.exists()


def test_the_server_ends_at_sigterm(served: Served) -> None:
    server, socket = served
    server.terminate()
    assert server.wait() == 0
    assert not socket.parent.exists()


def test_the_load_ends_when_the_server_is_gone(served: Served) -> None:
    server, socket = served
    with demo("load", "--socket", str(socket), "--seconds", "60") as process:
        server.terminate()
        assert line(process).keys() >= {"requests", "connects"}
        assert process.wait() == 0
