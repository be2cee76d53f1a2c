"""A server that forks for each connection, as inetd and CGI do: ADDRESS heap_mb=N.

It holds N MB of memory, whose page tables each fork() copies. A child answers one request.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


def main(address: str, heap_mb: int) -> None:
    """Serve for ever."""
    heap = mmap.mmap(-1, heap_mb << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(heap), mmap.PAGESIZE):
        heap[at] = 1
    host, port = address.rsplit(":", 1)
    listener = socket.create_server((host, int(port)), backlog=128)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            connection.recv(65536)
            connection.sendall(REPLY)
            os._exit(0)
        connection.close()
        reap()


def reap() -> None:
    """Take leave of the children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2].partition("=")[2]))
