"""An HTTP server whose one poller hands requests to a pool of threads, which read and reply.

ADDRESS [threads=N] [sleep_ms=T]. ADDRESS: a path or HOST:PORT. A request waits T ms on a
condition that nobody fulfils.
"""

from __future__ import annotations

import selectors
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Dict

from threaded import listen, receive, send

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Dispatcher:
    """The listener, its poller and the pool."""

    def __init__(self, address: str, options: Dict[str, str]) -> None:
        self._sleep_s = float(options.get("sleep_ms", 0)) / 1000
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
            self._pool.submit(self._serve, ready)

    def _serve(self, connection: socket.socket) -> None:
        if receive(connection):
            threading.Event().wait(self._sleep_s)
            if send(connection, REPLY):
                self._served.append(connection)
                self._waker.send(b"1")
                return
        connection.close()


if __name__ == "__main__":
    Dispatcher(sys.argv[1], dict(text.split("=", 1) for text in sys.argv[2:])).run()
