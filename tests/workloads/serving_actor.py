"""One end of a connection, which does what each line says and prints the monotonic clock then.

    serving_actor.py unix|tcp ADDRESS       prints "ready" when it listens

Lines: `accept` or `connect unix|tcp ADDRESS`, `read BYTES` (one call that takes exactly those; of 0
it meets the end), `reply`, `send HEX …` (one call with a buffer for each), `close`.
"""

from __future__ import annotations

import socket
import sys
import time


def listening(kind: str, address: str) -> socket.socket:
    if kind == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
    else:
        host, port = address.rsplit(":", 1)
        listener = socket.create_server((host, int(port)))
    listener.listen()
    return listener


def connected(kind: str, address: str) -> socket.socket:
    if kind == "unix":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        return connection
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)))


def received(connection: socket.socket, size: int) -> int:
    """A reset is an end, too."""
    try:
        return len(connection.recv(size or 1))
    except ConnectionResetError:
        return 0


def act(listener: socket.socket) -> None:
    connection = listener
    for line in sys.stdin:
        what, *words = line.split()
        if what == "accept":
            connection, _ = listener.accept()
        elif what == "connect":
            connection = connected(*words)
        elif what == "close":
            connection.close()
        elif what == "read":
            assert received(connection, int(words[0])) == int(words[0])
        elif what == "reply":
            connection.sendall(b"reply")
        elif what == "send":
            connection.sendmsg([bytes.fromhex(each) for each in words])
        print(time.monotonic_ns(), flush=True)


if __name__ == "__main__":
    with listening(sys.argv[1], sys.argv[2]) as at:
        print("ready", flush=True)
        act(at)
