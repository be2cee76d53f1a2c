"""Programs that do what each line tells them, and a client in this process with one of them."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, Tuple

from tests.kernel.tool import Report

WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"


class Program:
    """A workload that says where it is, a line each time."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def wait_for(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == word

    def do(self, word: str) -> int:
        """Returns its clock when it has done it, ns."""
        self.tell(word)
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def started(*words: str) -> Iterator[Program]:
    program = Program(*words)
    try:
        yield program
    finally:
        program.stop()


class Conversation:
    """A client in this process with a server that does as it is told.

    Attributes:
        true_ns: of each request, from before its first byte is sent until its reply was sent.
    """

    def __init__(self, server: Program, address: str) -> None:
        self._server = server
        family = socket.AF_UNIX if address.startswith("unix:") else socket.AF_INET
        self._socket = socket.socket(family)
        at = address.rpartition(":")
        self._socket.connect(at[2] if family == socket.AF_UNIX else (at[0], int(at[2])))
        server.do("accept")
        self._sent_ns: List[int] = []
        self.true_ns: List[int] = []

    def send(self, message: bytes) -> None:
        self._sent_ns.append(time.monotonic_ns())
        self._socket.sendall(message)

    def tell(self, message: bytes) -> None:
        """What has no reply."""
        self._socket.sendall(message)

    def server_pushes(self, message: bytes) -> None:
        """Without a request for it."""
        self._server.do("send " + message.hex())
        assert self._socket.recv(len(message), socket.MSG_WAITALL) == message

    def server_reads(self, message: bytes) -> None:
        self._server.do(f"read {len(message)}")

    def server_replies(self) -> None:
        self.true_ns.append(self._server.do("reply") - self._sent_ns.pop(0))
        assert self._socket.recv(64) == b"reply"

    def take(self, size: int) -> None:
        """What the server has said."""
        assert len(self._socket.recv(size, socket.MSG_WAITALL)) == size

    def close(self) -> None:
        self._socket.close()


@contextmanager
def conversation(address: str) -> Iterator[Tuple[Program, Conversation]]:
    place = ("unix", address[5:]) if address.startswith("unix:") else ("tcp", address)
    with started(str(WORKLOADS / "serving_actor.py"), *place) as server:
        server.wait_for("ready")
        client = Conversation(server, address)
        try:
            yield server, client
        finally:
            client.close()


def owed(report: Report) -> Tuple[int, int]:
    """Requests in progress of the one server, and those without an answer."""
    (row,) = report["requests"]["served_by"]
    return row["in_progress"]["count"], row["unanswered"]["count"]
