"""A server of one connection that does what each line says and prints the monotonic clock after it.

    serving_actor.py unix|tcp ADDRESS       prints "ready" when it listens

Lines: `accept`, `read BYTES` (one call that takes exactly those), `reply`, `send HEX …` (one call
with a buffer for each).
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


def act(listener: socket.socket) -> None:
    connection = listener
    for line in sys.stdin:
        what, *words = line.split()
        if what == "accept":
            connection, _ = listener.accept()
        elif what == "read":
            taken = connection.recv(int(words[0]))
            assert len(taken) == int(words[0]), taken
        elif what == "reply":
            connection.sendall(b"reply")
        elif what == "send":
            connection.sendmsg([bytes.fromhex(each) for each in words])
        print(time.monotonic_ns(), flush=True)


if __name__ == "__main__":
    with listening(sys.argv[1], sys.argv[2]) as at:
        print("ready", flush=True)
        act(at)
