"""A server that replies with what it is sent, and its client.

    echoing_server.py serve unix PATH|tcp PORT_FILE
    echoing_server.py ask unix PATH|tcp PORT_FILE

The server handles one connection after the other; it receives and sends by the calls in turn, and
ends with its input. The client reads lines, each the messages of one connection as JSON: texts of
latin-1, a reply awaited after each; an empty one is not sent. Both print "ready", the client also
"done" after each line.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from itertools import cycle
from typing import Callable, List

LENGTH_MAX = 4096


def in_pieces(data: bytes) -> List[bytes]:
    """The status line whole: what a program writes in one piece."""
    return [data[:40], data[40:]]


def in_words(data: bytes) -> List[bytes]:
    """As Varnish sends its status line; what else there is in one piece."""
    if not data.startswith(b"HTTP"):
        return [data]
    return [data[:8], data[8:9], data[9:12], data[12:]]


def cut_anywhere(data: bytes) -> List[bytes]:
    if not data.startswith(b"HTTP"):
        return [data]
    return [data[:3], b"", data[3:14], data[14:]]


SENDS: List[Callable[[socket.socket, bytes], int]] = [
    lambda sock, data: sock.send(data),
    lambda sock, data: os.write(sock.fileno(), data),
    lambda sock, data: sock.sendmsg(in_pieces(data)),
    lambda sock, data: os.writev(sock.fileno(), in_pieces(data)),
    lambda sock, data: sock.sendmsg(in_words(data)),
    lambda sock, data: os.writev(sock.fileno(), in_words(data)),
    lambda sock, data: os.writev(sock.fileno(), cut_anywhere(data)),
]
RECEIVES: List[Callable[[socket.socket], bytes]] = [
    lambda sock: sock.recv(LENGTH_MAX),
    lambda sock: os.read(sock.fileno(), LENGTH_MAX),
    lambda sock: sock.recvmsg(LENGTH_MAX)[0],
]
sends, receives = cycle(SENDS), cycle(RECEIVES)


def listening(kind: str, place: str) -> socket.socket:
    if kind == "unix":
        at = socket.socket(socket.AF_UNIX)
        at.bind(place)
        at.listen(64)
        return at
    at = socket.create_server(("127.0.0.1", 0))
    with open(place, "w", encoding="ascii") as file:
        file.write(str(at.getsockname()[1]))
    return at


def serve(kind: str, place: str) -> None:
    at = listening(kind, place)
    threading.Thread(target=answer, args=(at,), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


def answer(at: socket.socket) -> None:
    while True:
        with at.accept()[0] as connection:
            while True:
                data = next(receives)(connection)
                if not data:
                    break
                next(sends)(connection, data)


def ask(kind: str, place: str) -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        with connected(kind, place) as connection:
            for message in json.loads(line):
                exchange(connection, message)
        print("done", flush=True)


def connected(kind: str, place: str) -> socket.socket:
    if kind == "tcp":
        with open(place, encoding="ascii") as file:
            return socket.create_connection(("127.0.0.1", int(file.read())))
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(place)
    return sock


def exchange(connection: socket.socket, message: str) -> None:
    if message:
        connection.sendall(message.encode("latin-1"))
    next(receives)(connection)


def main(role: str, kind: str, place: str) -> None:
    (serve if role == "serve" else ask)(kind, place)


if __name__ == "__main__":
    main(*sys.argv[1:])
