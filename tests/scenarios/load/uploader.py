"""Clients that send requests of 100 KB slowly: ADDRESS CONNECTIONS BYTES_PER_S."""

from __future__ import annotations

import socket
import sys
import threading
import time

PIECE, PIECES = b"x" * 10_000, 10
ENDS = b"\r\n\r\n"


def upload(address: str, rate: float, replied: threading.Semaphore) -> None:
    """One request after the other."""
    connection = _connected(address)
    while True:
        for _ in range(PIECES):
            connection.sendall(PIECE)
            time.sleep(len(PIECE) / rate)
        connection.sendall(ENDS)
        connection.recv(65536)
        replied.release()


def _connected(address: str) -> socket.socket:
    if address.startswith("/"):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        return connection
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)))


def main(address: str, connections: int, rate: float) -> None:
    """For ever; says when each has had a reply."""
    replied = threading.Semaphore(0)
    for _ in range(connections):
        threading.Thread(target=upload, args=(address, rate, replied)).start()
    for _ in range(connections):
        replied.acquire()
    print("uploading", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
