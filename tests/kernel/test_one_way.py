"""A log that nobody answers is no upstream that a server waits for; one that takes nothing is."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.kernel.tool import Attached
from tests.patience import PATIENCE_S
from tests.workloads import logging_server

pytestmark = [pytest.mark.root]

REQUESTS = 60
Row = Dict[str, Any]


class Log:
    """A listener of one connection. Args: kind: `unix` or `tcp`."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
        self._listener.bind(str(folder / "log") if kind == "unix" else ("127.0.0.1", 0))
        self._listener.listen()
        where = self._listener.getsockname()
        self.place: List[str] = [kind, where if kind == "unix" else str(where[1])]
        self.bytes = 0

    def accept(self) -> None:
        self._connection, _ = self._listener.accept()

    def take(self) -> None:
        """All that comes, from a thread of its own."""
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while True:
            data = self._connection.recv(4096)
            if not data:
                return
            self.bytes += len(data)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(params=["unix", "tcp"])
def log(request: pytest.FixtureRequest, folder: Path) -> Iterator[Log]:
    made = Log(str(request.param), folder)
    yield made
    made.close()


def served(log: Log, folder: Path, *, taken: bool) -> Row:
    """The report's row of a server whose log is read, or is not."""
    argv = [sys.executable, logging_server.__file__, str(folder / "app"), *log.place]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    log.accept()
    if taken:
        log.take()
    watched = Attached(["--pid", str(process.pid)], folder)
    with socket.socket(socket.AF_UNIX) as client, watched as w:
        client.settimeout(PATIENCE_S)
        client.connect(str(folder / "app"))
        for _ in range(REQUESTS):
            client.sendall(b"request")
            assert client.recv(64) == b"reply"
    process.communicate(timeout=PATIENCE_S)
    (row,) = w.report["requests"]["served_by"]
    assert row["count"] == REQUESTS
    return {**row, "request": w.report["requests"]["served"], "verdict": w.report["verdict"]}


def test_a_log_that_is_read(log: Log, folder: Path) -> None:
    row = served(log, folder, taken=True)
    assert log.bytes == REQUESTS * len(b"a request\n")
    assert row["asking"]["count"] == 0
    assert row["verdict"]["cause"] == "app-blocked", row["verdict"]


def test_one_that_takes_nothing_may_hang(folder: Path) -> None:
    """Of TCP the kernel does not tell who has taken what."""
    log = Log("unix", folder)
    row = served(log, folder, taken=False)
    log.close()
    assert row["asking"]["count"] == 1
    assert row["verdict"]["cause"] == "upstream-wait"
