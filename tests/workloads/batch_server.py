"""A server that receives one request of each of its connections, and only then replies to each.

    batch_server.py PATH CONNECTIONS together|apart

`apart`: it replies to each before it receives the next. Prints "ready" when it listens.
"""

from __future__ import annotations

import socket
import sys
from typing import List, Sequence


def serve(connections: Sequence[socket.socket], *, together: bool) -> bool:
    """One request of each; False at their end."""
    for connection in connections:
        if not connection.recv(64):
            return False
        if not together:
            connection.sendall(b"reply")
    for connection in connections if together else ():
        connection.sendall(b"reply")
    return True


def accepted(listener: socket.socket, count: int) -> List[socket.socket]:
    return [listener.accept()[0] for _ in range(count)]


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as at:
        at.bind(sys.argv[1])
        at.listen()
        print("ready", flush=True)
        served = accepted(at, int(sys.argv[2]))
        while serve(served, together=sys.argv[3] == "together"):
            pass
