"""An HTTP server whose one poller hands requests to a pool of threads, which read and reply.

ADDRESS [threads=N] [read=1] [option=T …]. ADDRESS: a path or HOST:PORT. read=1: the poller reads
them. wait_ms=T a request waits T ms on a condition that nobody fulfils · sleep_ms=T · spin_ms=T
"""

from __future__ import annotations

import selectors
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Dict

from threaded import listen, receive, send, spin

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
WORK = {
    "wait_ms": lambda seconds: threading.Event().wait(seconds),
    "sleep_ms": time.sleep,
    "spin_ms": spin,
}


def received_whole(connection: socket.socket) -> bool:
    """Whether a request came to its end, an empty line."""
    ends = b""
    while ends != b"\r\n\r\n":
        piece = receive(connection)
        if not piece:
            return False
        ends = (ends + piece)[-4:]
    return True


class Dispatcher:
    """The listener, its poller and the pool."""

    def __init__(self, address: str, options: Dict[str, str]) -> None:
        self._work_ms = {name: float(ms) for name, ms in options.items() if name.endswith("_ms")}
        self._reads = options.get("read") == "1"
        self._pool = ThreadPoolExecutor(int(options.get("threads", 2)))
        self._ready = selectors.EpollSelector()
        self._listener = listen(address, 128)
        self._woken, self._waker = socket.socketpair()
        self._served: list[socket.socket] = []
        self._ready.register(self._listener, selectors.EVENT_READ)
        self._ready.register(self._woken, selectors.EVENT_READ)

    def run(self) -> None:
        """Poll for ever."""
        while True:
            for key, _ in self._ready.select():
                self._take(key.fileobj)  # type: ignore[arg-type]

    def _take(self, ready: socket.socket) -> None:
        if ready is self._listener:
            self._ready.register(self._listener.accept()[0], selectors.EVENT_READ)
        elif ready is self._woken:
            for _ in self._woken.recv(64):
                self._ready.register(self._served.pop(), selectors.EVENT_READ)
        else:
            self._ready.unregister(ready)
            if not self._reads:
                self._pool.submit(self._serve, ready)
            elif receive(ready):
                self._pool.submit(self._reply, ready)
            else:
                ready.close()

    def _serve(self, connection: socket.socket) -> None:
        if received_whole(connection):
            self._reply(connection)
        else:
            connection.close()

    def _reply(self, connection: socket.socket) -> None:
        for name, ms in self._work_ms.items():
            WORK[name](ms / 1000)
        if not send(connection, REPLY):
            connection.close()
            return
        self._served.append(connection)
        self._waker.send(b"1")


if __name__ == "__main__":
    Dispatcher(sys.argv[1], dict(text.split("=", 1) for text in sys.argv[2:])).run()
