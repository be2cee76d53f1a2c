"""Sends that Nagle's algorithm keeps back, against what the sender's socket says is not sent."""

from __future__ import annotations

import array
import fcntl
import os
import socket
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.kernel.tool import Attached

pytestmark = [pytest.mark.root]

ROUNDS, ATTEMPTS = 30, 3
SIOCOUTQNSD = 0x894B  # include/uapi/linux/sockios.h: bytes in the send queue that never left
PARTS = (b"head ", b"body")
REPLY_BYTES = sum(map(len, PARTS))


def not_sent(connection: socket.socket) -> int:
    answer = array.array("i", [0])
    fcntl.ioctl(connection, SIOCOUTQNSD, answer)
    return answer[0]


def serve(connection: socket.socket) -> int:
    """Replies in two sends each; after how many of these something was not sent."""
    held = 0
    while connection.recv(64):
        for part in PARTS:
            connection.sendall(part)
            held += not_sent(connection) > 0
    return held


def ask(client: socket.socket) -> None:
    """One request, by a client that puts its acknowledgements off."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    client.sendall(b"request")
    assert len(client.recv(REPLY_BYTES, socket.MSG_WAITALL)) == REPLY_BYTES


def observed(nodelay: bool, folder: Path) -> Dict[str, Any]:
    """The report on a server, and `held`: its own count."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    accepted, _ = listener.accept()
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
    truth, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            client.close()
            os.write(theirs, b"%d" % serve(accepted))
        finally:
            os._exit(0)
    accepted.close()
    os.close(theirs)
    with listener, client, Attached(["--pid", str(child)], folder) as watch:
        for _ in range(ROUNDS):
            ask(client)
    held = int(os.read(truth, 64))
    os.close(truth)
    os.waitpid(child, 0)
    return {**watch.report, "held": held}


def agreeing(nodelay: bool, folder: Path) -> Dict[str, Any]:
    """One of which the server knows what was held, if one of three is: where it loses its CPU
    between a send and its question, an acknowledgement comes before that."""
    for _ in range(ATTEMPTS):
        report = observed(nodelay, folder)
        (told,) = [row["sends_held"] for row in report["connections"]]
        assert report["held"] <= told <= ROUNDS * len(PARTS)
        if report["held"] == told:
            return report
    raise AssertionError(f"{told} sends held, the server knows of {report['held']}")


def findings(report: Dict[str, Any]) -> List[str]:
    return [each["id"] for each in report["findings"]]


def test_sends_that_wait_for_an_acknowledgement_are_counted(tmp_path: Path) -> None:
    report = agreeing(False, tmp_path)
    assert report["held"] >= ROUNDS // 2
    assert "nagle" in findings(report)


def test_with_tcp_nodelay_nothing_waits(tmp_path: Path) -> None:
    report = agreeing(True, tmp_path)
    assert report["held"] == 0
    assert "nagle" not in findings(report)
