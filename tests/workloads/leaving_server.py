"""An event loop that answers some requests, leaves others, and says what it did.

    leaving_server.py unix PATH|tcp PORT_FILE [shutdown]

A request is one word: `answer` gets `reply`, `leave` and `keep` nothing, `drop` has its connection
closed, `fail` too after a while, `last` after its reply, and `bye` is a goodbye; so are those of a
database's clients, after which it takes as long as after `fail`. Of `exit` and `kill`, a child has
the connection, receives one byte and ends, by itself or by a signal: TCP resets it while that one
exits. A text frame of a WebSocket gets nothing, and the beginning of a TLS record gets itself.
A connection that ends is closed (with `shutdown`, shut down first, as Node does), but for one with
`keep`, which is looked at no more. Prints "ready" when it listens, and at the end of its input, as
JSON, how many connections ended while their request was left.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import Dict, List

FAILS_AFTER_S = 0.02
WEBSOCKET_TEXT = (b"\x81", b"\xc1")  # plain and compressed
TLS_RECORD = bytes([22, 3, 3])
ENDS = (b"exit", b"kill")
GOODBYES = (b"X\0\0\0\4", b"\1\0\0\0\1")  # PostgreSQL's Terminate, MySQL's COM_QUIT
left: Dict[socket.socket, bytes] = {}
kept: List[socket.socket] = []
counts = {"answered": 0, "ended_without_a_reply": 0, "dropped": 0, "failed": 0}


def listening(kind: str, place: str) -> socket.socket:
    if kind == "unix":
        at = socket.socket(socket.AF_UNIX)
        at.bind(place)
    else:
        at = socket.create_server(("127.0.0.1", 0))
        with open(place, "w", encoding="ascii") as file:
            file.write(str(at.getsockname()[1]))
    at.listen(512)
    return at


def received(connection: socket.socket, flags: int = 0) -> bytes:
    try:
        return connection.recv(1024, flags)
    except ConnectionResetError:
        return b""


def end(connection: socket.socket, *, shut_down: bool) -> None:
    if shut_down:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
    connection.close()


def left_to_a_child(connection: socket.socket) -> None:
    child = os.fork()
    if child == 0:
        is_killed = connection.recv(1) == b"k"
        time.sleep(FAILS_AFTER_S)
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    connection.close()
    os.waitpid(child, 0)


def serve(connection: socket.socket, loop: selectors.BaseSelector, *, shut_down: bool) -> None:
    if received(connection, socket.MSG_PEEK) in ENDS:
        loop.unregister(connection)
        left_to_a_child(connection)
        return
    data = received(connection)
    word = data or left.pop(connection, b"")
    if data == b"answer":
        connection.sendall(b"reply")
        counts["answered"] += 1
        return
    if data == b"last":
        connection.sendall(b"reply")
        counts["answered"] += 1
    if data == TLS_RECORD:
        connection.sendall(data)
        counts["answered"] += 1
        return
    if data[:1] in WEBSOCKET_TEXT:
        return
    if data == b"fail":
        time.sleep(FAILS_AFTER_S)
        counts["failed"] += 1
    if data in GOODBYES:
        time.sleep(FAILS_AFTER_S)
    if data == b"leave":
        left[connection] = data
        return
    if data == b"keep":
        loop.unregister(connection)
        kept.append(connection)
        return
    counts["ended_without_a_reply"] += not data and word == b"leave"
    counts["dropped"] += data == b"drop"
    loop.unregister(connection)
    end(connection, shut_down=shut_down)


def main(kind: str, place: str, how: str = "") -> None:
    loop = selectors.DefaultSelector()
    at = listening(kind, place)
    loop.register(at, selectors.EVENT_READ)
    loop.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in loop.select():
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is at:
                loop.register(at.accept()[0], selectors.EVENT_READ)
            else:
                serve(key.fileobj, loop, shut_down=how == "shutdown")  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:4])
    print(json.dumps(counts), flush=True)
