"""A server that computes before each reply, and nothing else: its one thread is the bottleneck.

Answers each 64-byte request on a Unix socket after a given number of ms. Prints
where it listens; ends when its standard input closes.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import tempfile
import time
from pathlib import Path

REQUEST_BYTES, REPLY = 64, b"." * 1024


def answer(connection: socket.socket, spin_s: float) -> bool:
    """One request; False when the client is gone."""
    request = connection.recv(REQUEST_BYTES)
    if not request:
        return False
    over = time.perf_counter() + spin_s
    while time.perf_counter() < over:
        pass
    connection.sendall(REPLY)
    return True


def serve(listening: socket.socket, spin_s: float) -> None:
    """Until standard input closes."""
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is listening:
                    selector.register(listening.accept()[0], selectors.EVENT_READ)
                elif isinstance(key.fileobj, socket.socket) and not answer(key.fileobj, spin_s):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


def main() -> None:
    # Whatever else the machine does must not be what this server waits for.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        path = Path(folder) / "spinning.sock"
        listening.bind(str(path))
        listening.listen(64)
        print(json.dumps({"socket": str(path), "pid": os.getpid()}), flush=True)
        serve(listening, float(sys.argv[1]) / 1000)


if __name__ == "__main__":
    main()
