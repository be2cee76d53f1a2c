"""Defers accept until there are bytes; accepts, reads and replies once for each line."""

from __future__ import annotations

import socket
import sys


def serve(listener: socket.socket) -> None:
    """One connection after the other, when it is told to."""
    for _ in sys.stdin:
        client, _address = listener.accept()
        with client:
            client.sendall(client.recv(4096))


def main() -> None:
    """Prints its port first."""
    with socket.socket() as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        print(listener.getsockname()[1], flush=True)
        serve(listener)


if __name__ == "__main__":
    main()
