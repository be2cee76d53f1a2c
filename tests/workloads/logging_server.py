"""A server that writes a line to a log for each request, sleeps, and replies.

    logging_server.py SOCKET unix LOG_PATH|tcp LOG_PORT

One client at a time. The log is a stream, which nobody answers. Prints "ready" when it listens.
"""

from __future__ import annotations

import socket
import sys
import time

SLEEPS_S = 0.02


def connected(kind: str, place: str) -> socket.socket:
    if kind == "tcp":
        return socket.create_connection(("127.0.0.1", int(place)))
    log = socket.socket(socket.AF_UNIX)
    log.connect(place)
    return log


def main(path: str, kind: str, place: str) -> None:
    log = connected(kind, place)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        client, _ = listener.accept()
    while client.recv(64):
        log.sendall(b"a request\n")
        time.sleep(SLEEPS_S)
        client.sendall(b"reply")


if __name__ == "__main__":
    main(*sys.argv[1:])
