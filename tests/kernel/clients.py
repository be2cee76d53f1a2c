"""Clients that ask again as soon as they have their answers, until they are told to end."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import contextmanager
from typing import Callable, Iterator

from tests.patience import PATIENCE_S

Client = Callable[[threading.Event], None]
"""Asks until that is set."""


@contextmanager
def asked(client: Client, count: int) -> Iterator[None]:
    """By so many of them, meanwhile."""
    ends = threading.Event()
    threads = [threading.Thread(target=client, args=(ends,)) for _ in range(count)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        ends.set()
        for each in threads:
            each.join()


class _Unix(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


def by_http(address: str) -> Client:
    """Of a server of HTTP at a path, or a port of this host."""

    def ask(ends: threading.Event) -> None:
        kind = _Unix if address.startswith("/") else http.client.HTTPConnection
        connection = kind(address, timeout=PATIENCE_S)
        while not ends.is_set():
            connection.request("GET", "/")
            connection.getresponse().read()
        connection.close()

    return ask
