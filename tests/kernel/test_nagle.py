"""Sends that Nagle's algorithm keeps back, against what the sender's own socket says of them."""

from __future__ import annotations

import array
import fcntl
import json
import os
import socket
import struct
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from tests.kernel.tool import Attached

pytestmark = [pytest.mark.root]

ROUNDS, ATTEMPTS = 30, 3
SIOCOUTQNSD = 0x894B  # include/uapi/linux/sockios.h: bytes in the send queue that never left
LAST_DATA_SENT = (
    44  # offset of tcpi_last_data_sent, ms, in struct tcp_info (include/uapi/linux/tcp.h)
)
PARTS = (b"head ", b"body")
REPLY_BYTES = sum(map(len, PARTS))
DELAYED_ACK_US = 40_000
THINKS_S = 0.1
CLOCK_MONOTONIC_COARSE = 6
TICK_US = time.clock_getres(CLOCK_MONOTONIC_COARSE) * 1e6
# The socket tells in ms what it knows in ticks: both ends of a hold are as exact as that.
STEP_US = TICK_US + 1000


def not_sent(connection: socket.socket) -> int:
    answer = array.array("i", [0])
    fcntl.ioctl(connection, SIOCOUTQNSD, answer)
    return answer[0]


def left_us(connection: socket.socket) -> float:
    """When the last bytes left, by the clock of `now_us`."""
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_DATA_SENT + 4)
    (ago_ms,) = struct.unpack_from("I", told, LAST_DATA_SENT)
    return now_us() - 1000 * ago_ms


def now_us() -> float:
    return time.monotonic() * 1e6


def serve(connection: socket.socket) -> Dict[str, float]:
    """Replies in two sends each. After how many of these something was not sent, and for how long
    that stayed so."""
    held, held_us, since_us = 0, 0.0, None
    while connection.recv(64):
        if since_us is not None:
            held_us += max(0.0, left_us(connection) - since_us)
            since_us = None
        for part in PARTS:
            connection.sendall(part)
            if not_sent(connection) > 0:
                held, since_us = held + 1, now_us()
    return {"held": held, "held_us": held_us}


def ask(client: socket.socket, quick: bool) -> None:
    """One request, by a client that acknowledges each packet at once or puts that off."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, quick)
    client.sendall(b"request")
    have = 0
    while have < REPLY_BYTES:
        part = len(client.recv(REPLY_BYTES - have))
        assert part
        have += part
        # It lasts until the kernel finds that both ends talk in turns.
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, quick)


def asks_at_once(client: socket.socket) -> None:
    ask(client, quick=False)


def thinks(client: socket.socket) -> None:
    ask(client, quick=False)
    time.sleep(THINKS_S)


def thinks_and_acknowledges(client: socket.socket) -> None:
    ask(client, quick=True)
    time.sleep(THINKS_S)


Turn = Callable[[socket.socket], None]


def observed(turn: Turn, folder: Path, nodelay: bool = False) -> Dict[str, Any]:
    """The report on a server; `truth`: its own count; `turn_us`: how long a turn takes."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    accepted, _ = listener.accept()
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
    truth, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            client.close()
            os.write(theirs, json.dumps(serve(accepted)).encode())
        finally:
            os._exit(0)
    accepted.close()
    os.close(theirs)
    with listener, client, Attached(["--pid", str(child)], folder) as watch:
        began_us = now_us()
        for _ in range(ROUNDS):
            turn(client)
        took_us = now_us() - began_us
    told = json.loads(os.read(truth, 1024))
    os.close(truth)
    os.waitpid(child, 0)
    return {**watch.report, "truth": told, "turn_us": took_us / ROUNDS}


def connection_of(report: Dict[str, Any]) -> Dict[str, Any]:
    (row,) = report["connections"]
    return dict(row)


def agreeing(turn: Turn, folder: Path, nodelay: bool = False) -> Dict[str, Any]:
    """One of which the server knows what was held, if one of three is: where it loses its CPU
    between a send and its question, an acknowledgement comes before that."""
    for _ in range(ATTEMPTS):
        report = observed(turn, folder, nodelay)
        told = connection_of(report)["sends_held"]
        assert report["truth"]["held"] <= told <= ROUNDS * len(PARTS)
        if report["truth"]["held"] == told:
            return report
    raise AssertionError(f"{told} sends held, the server knows of {report['truth']['held']}")


def findings(report: Dict[str, Any]) -> List[str]:
    return [each["id"] for each in report["findings"]]


def is_as_long_as_the_server_says(report: Dict[str, Any]) -> bool:
    row, truth = connection_of(report), report["truth"]
    return bool(
        abs(row["held_us"] - truth["held_us"]) <= STEP_US * max(truth["held"], row["sends_held"])
    )


def test_sends_that_wait_for_an_acknowledgement_are_the_verdict(tmp_path: Path) -> None:
    report = agreeing(asks_at_once, tmp_path)
    row, held = connection_of(report), report["truth"]["held"]
    assert held >= ROUNDS // 2
    assert is_as_long_as_the_server_says(report)
    assert row["held_us"] >= (held - 1) * (DELAYED_ACK_US - STEP_US)
    assert row["held_us"] <= ROUNDS * report["turn_us"] + STEP_US
    assert report["verdict"]["cause"] == "transport"
    assert "Nagle" in report["verdict"]["summary"]


def test_what_the_client_thinks_is_not_held(tmp_path: Path) -> None:
    report = agreeing(thinks, tmp_path)
    row, held = connection_of(report), report["truth"]["held"]
    assert held >= ROUNDS // 2
    assert is_as_long_as_the_server_says(report)
    assert row["held_us"] <= ROUNDS * (report["turn_us"] - THINKS_S * 1e6) + held * STEP_US


def test_a_client_that_acknowledges_at_once_loses_nothing(tmp_path: Path) -> None:
    report = observed(thinks_and_acknowledges, tmp_path)
    assert report["turn_us"] - THINKS_S * 1e6 < DELAYED_ACK_US / 2
    assert is_as_long_as_the_server_says(report)
    assert connection_of(report)["held_us"] < ROUNDS * 1000
    assert report["verdict"]["cause"] == "healthy"
    assert findings(report) == []


def test_with_tcp_nodelay_nothing_waits(tmp_path: Path) -> None:
    report = agreeing(asks_at_once, tmp_path, nodelay=True)
    row = connection_of(report)
    assert (report["truth"]["held"], row["held_us"]) == (0, 0)
    assert report["turn_us"] < DELAYED_ACK_US / 2
    assert "nagle" not in findings(report)
