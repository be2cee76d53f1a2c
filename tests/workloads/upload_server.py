"""A server of one connection after the other that tells when it received each piece of a request.

usage: upload_server.py PATH READ_BYTES REPLY

Each request is LENGTH bytes. For each receive call that returned bytes it prints two times in ns
(CLOCK_MONOTONIC), before and after it.
"""

from __future__ import annotations

import select
import socket
import sys
import time

LENGTH = 90


def serve(connection: socket.socket, read_bytes: int, reply: bytes) -> None:
    """In a poller, with a socket that does not block: as event loops do."""
    connection.setblocking(False)
    poller = select.epoll()
    poller.register(connection, select.EPOLLIN)
    left = LENGTH
    while True:
        poller.poll()
        before_ns = time.monotonic_ns()
        piece = connection.recv(min(left, read_bytes))
        after_ns = time.monotonic_ns()
        if not piece:
            return
        print(before_ns, after_ns, flush=True)
        left -= len(piece)
        if not left:
            connection.sendall(reply)
            left = LENGTH


def main() -> None:
    path, read_bytes, reply = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("listens", flush=True)
        while True:
            with listener.accept()[0] as connection:
                serve(connection, int(read_bytes), reply.encode())


if __name__ == "__main__":
    main()
