"""A process that listens, connects to others, and keeps what it accepted and opened."""

from __future__ import annotations

import sys
from subprocess import PIPE, Popen

HOP = """
import socket, sys
kept = []
def sock(address):
    return socket.socket(socket.AF_UNIX if address.startswith("/") else socket.AF_INET)
def place(address):
    return address if address.startswith("/") else ("127.0.0.1", int(address))
listen, *upstream = sys.argv[1:]
listener = sock(listen)
listener.bind(place(listen))
listener.listen()
for address in upstream:
    kept.append(sock(address))
    kept[-1].connect(place(address))
print("ready", flush=True)
while True:
    kept.append(listener.accept())
    print("accepted", flush=True)
"""


class Hop:
    """Listens at the first address (a path or a port of loopback), is connected to the others."""

    def __init__(self, *addresses: str) -> None:
        self.popen = Popen([sys.executable, "-c", HOP, *addresses], stdout=PIPE)
        self.pid = self.popen.pid
        assert self._said() == b"ready\n"

    def _said(self) -> bytes:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline()

    def accepted(self) -> None:
        """Wait until it has accepted one more."""
        assert self._said() == b"accepted\n"

    def __enter__(self) -> Hop:
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.kill()
        self.popen.wait()
        assert self.popen.stdout is not None
        self.popen.stdout.close()
