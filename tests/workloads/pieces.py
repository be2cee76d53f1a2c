"""Replies in pieces, by a server that knows when it sent each, and a client that knows what came.

    pieces.py serve unix PATH|tcp PORT_FILE
    pieces.py ask unix PATH|tcp PORT_FILE

Both print "ready", the client "done" after each line that it reads: the requests of one connection
as JSON. Each is the name of one of `REPLIES`; after "leave" the client closes first, before it
"close" makes the server do so. At the end of their input both print what they know as JSON.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time
from typing import Dict, List, Tuple

from tests.workloads.echoing_server import connected, listening

PAUSE_S = 0.004
HELD_S = 0.1
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
BODY = b"and this is a piece of the body"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
# As PostgreSQL 15 sends them.
READY = b"Z\0\0\0\x05I"
ROWS = b"D\0\0\0\x0f\0\x01\0\0\0\x05hello" * 11
# As MariaDB 10.11 sends them: the number of columns and the definition of one; a row of 31 bytes.
COLUMNS = b"\1\0\0\1\1\x17\0\0\2\3def\0\0\0\1a\0\x0c\x2d\0\x1f\0\0\0\xfd\0\0\x27\0\0"
ROW = b"\x20\0\0\4\x1f" + BODY
# More than any buffer here takes.
LARGE = b"x" * (32 << 20)
LAST = b"the last piece of all"


def whole(pieces: int) -> List[bytes]:
    return [HEAD % (len(BODY) * pieces + len(LAST)), *[BODY] * pieces, LAST]


REPLIES: Dict[str, List[bytes]] = {
    "one": [b"".join(whole(1))],
    "two": [HEAD % len(LAST), LAST],
    "five": whole(3),
    "large": [HEAD % (len(LARGE) + len(LAST)), LARGE + LAST],
    "events": [EVENTS, b"data: first\n\n", b"id: second\n\n", LAST],
    "chunked events": [EVENTS, b"b\r\ndata: one\n\n\r\n", LAST],
    "chunked": [CHUNKED, b"5\r\nhello\r\n", b"6\r\nworld!\r\n0\r\n\r\n"],
    "ready": [b"C\0\0\0\x0dSELECT 1\0" + READY],
    "rows": [ROWS, ROWS, b"C\0\0\0\x0eSELECT 22\0" + READY],
    "described rows": [b"T\0\0\0\x08\0\x01a\0" + ROWS, ROWS, b"C\0\0\0\x0eSELECT 22\0" + READY],
    "columns": [COLUMNS, ROW, ROW + b"\x07\0\0\x05\xfe\0\0\x22\0\0\0"],
    "columns, EOF": [COLUMNS, ROW, ROW + b"\x05\0\0\x06\xfe\0\0\x22\0"],
    "a change": [b"\x07\0\0\x01\0\x01\0\2\0\0\0"],
    "binlog": [b"\x2c\0\0\x01\0" + BODY, BODY, LAST],
    "replication": [ROWS, ROWS, LAST],
    "idle, then 408": [
        HEAD % 0,
        b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n" + LAST,
    ],
    "noted events": [EVENTS, b": a comment\n\n", b"data: second\n\n", LAST],
    "another protocol": [b"HTTP/1.1 101 Switching Protocols\r\n\r\n", BODY, LAST],
    "no HTTP": [BODY, BODY, LAST],
}


COUNTED = ("two", "five", "large", "chunked", "rows", "described rows", "columns", "columns, EOF")


class Pieces:
    """What one end knows of replies in pieces: bounds of what lies between its own clocks.

    A piece begins before its call does and has ended after it: `least` is from the end of one to
    the beginning of another, `most` from its beginning to the other's end.
    """

    def __init__(self) -> None:
        self.in_pieces = 0
        self.least = {"transfer": 0, "paused": 0}
        self.most = {"transfer": 0, "paused": 0}

    def add(self, calls: List[Tuple[int, int]]) -> None:
        """(began, ended) of each call, in ns."""
        if len(calls) < 2:
            return
        self.in_pieces += 1
        self.least["transfer"] += calls[-1][0] - calls[0][1]
        self.most["transfer"] += calls[-1][1] - calls[0][0]
        for before, after in zip(calls, calls[1:]):
            self.least["paused"] += max(0, after[0] - before[1])
            self.most["paused"] += after[1] - before[0]

    def tell(self) -> None:
        print(json.dumps(vars(self)), flush=True)


def serve(kind: str, place: str) -> None:
    at, known = listening(kind, place), Pieces()
    threading.Thread(target=answer, args=(at, known), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    known.tell()


def answer(at: socket.socket, known: Pieces) -> None:
    while True:
        with at.accept()[0] as connection:
            while True:
                name = connection.recv(64).decode()
                if name in ("", "close"):
                    break
                calls = send_large(connection) if name == "large" else send(connection, name)
                if name in COUNTED:
                    known.add(calls)


def send(connection: socket.socket, name: str) -> List[Tuple[int, int]]:
    calls = []
    for number, piece in enumerate(REPLIES[name]):
        if number:
            time.sleep(PAUSE_S)
        began = time.monotonic_ns()
        connection.send(piece)
        calls.append((began, time.monotonic_ns()))
    return calls


def send_large(connection: socket.socket) -> List[Tuple[int, int]]:
    """At once whenever there is room: of the reader's time none is a pause."""
    calls = []
    connection.setblocking(False)
    for piece in REPLIES["large"]:
        left = memoryview(piece)
        while left:
            select.select([], [connection], [])
            began = time.monotonic_ns()
            try:
                sent = connection.send(left)
            except BlockingIOError:
                continue
            calls.append((began, time.monotonic_ns()))
            left = left[sent:]
    connection.setblocking(True)
    return calls


def ask(kind: str, place: str) -> None:
    print("ready", flush=True)
    known = Pieces()
    for line in sys.stdin:
        with connected(kind, place) as connection:
            for name in json.loads(line):
                if name == "leave":
                    break
                connection.sendall(name.encode())
                if name == "close":
                    assert not connection.recv(1)
                    break
                calls = receive(connection, name)
                if name in COUNTED and name != "large":
                    known.add(calls)
        print("done", flush=True)
    known.tell()


def receive(connection: socket.socket, name: str) -> List[Tuple[int, int]]:
    calls, end, last = [], b"", REPLIES[name][-1][-len(LAST) :]
    while not end.endswith(last):
        if name == "large" and len(calls) == 1:
            time.sleep(HELD_S)
        began = time.monotonic_ns()
        end = (end + connection.recv(1 << 20))[-len(LAST) :]
        calls.append((began, time.monotonic_ns()))
    return calls


def main(role: str, kind: str, place: str) -> None:
    (serve if role == "serve" else ask)(kind, place)


if __name__ == "__main__":
    main(*sys.argv[1:])
