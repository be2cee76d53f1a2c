"""A server that is asked again before its send call returns, and knows it.

usage: overtaken_server.py PATH

One thread replies with `REPLY_BYTES`, more than fit anywhere, and another one receives meanwhile,
as Go's net/http does. It prints a line for each receive call that returned bytes. The last request
is answered with one byte.
"""

from __future__ import annotations

import socket
import sys
import threading

REPLY_BYTES = 16 << 20
LAST = b"last"


class Connection:
    """Of one client."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._received = threading.Semaphore(0)
        self._last = b""

    def receive(self) -> None:
        """All requests, one after the other."""
        while True:
            self._last = self._client.recv(64)
            if self._last:
                print("received", flush=True)
            self._received.release()
            if not self._last:
                return

    def reply(self) -> None:
        """To each, in one send call that the next request overtakes."""
        while self._received.acquire() and self._last not in (b"", LAST):
            self._client.send(bytes(REPLY_BYTES))
        if self._last:
            self._client.send(b"x")


def main() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        print("listens", flush=True)
        connection = Connection(listener.accept()[0])
        receiver = threading.Thread(target=connection.receive)
        receiver.start()
        connection.reply()
        receiver.join()


if __name__ == "__main__":
    main()
