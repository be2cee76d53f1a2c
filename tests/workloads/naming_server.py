"""A server on a Unix socket that asks a name server for each request, in the way that it says."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress
from itertools import count, repeat
from typing import Iterator

# As Consul has: what is asked tells that it is a name server.
NAMES, NOBODY = ("127.0.0.78", 8600), ("127.0.0.79", 8600)
PATIENCE_S = 0.15
AT_ONCE = 5
HEADER_BYTES = 12


def asking(where: tuple[str, int] = NAMES) -> socket.socket:
    """Connected to the name server, as the C library's is."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.connect(where)
    made.settimeout(PATIENCE_S)
    return made


def question(number: int, how: str) -> bytes:
    """With a header (RFC 1035, 4.1.1)."""
    return number.to_bytes(2, "big") + b"\1\0\0\1\0\0\0\0\0\0" + how.encode()


def ask(at: socket.socket, numbers: Iterator[int], how: str) -> None:
    """`one`; `both` families at once; `again` after the first was lost; `lost`; `many` at once."""
    asked = [next(numbers) for _ in range({"both": 2, "many": AT_ONCE}.get(how, 1))]
    for number in asked:
        at.send(question(number, how))
    try:
        for _ in asked:
            at.recv(512)
    except TimeoutError:
        if how == "again":
            at.send(question(asked[0], "one"))
            at.recv(512)


def main(path: str) -> None:
    """Until its client leaves."""
    kept, metrics = asking(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    numbers = count(0x1234)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("listens", flush=True)
    client = listener.accept()[0]
    while order := client.recv(64).decode():
        if order in ("kept", "many"):
            ask(kept, numbers, order)
        elif order.startswith("metric"):
            metrics.connect((NAMES[0], int(order.split()[1])))
            metrics.send(b"requests:1|c")
        elif order.startswith("once "):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as at:
                at.connect((NAMES[0], int(order.split()[1])))
                at.send(b"requests:1|c")
        elif order == "refused":
            with asking(NOBODY) as at, suppress(ConnectionRefusedError):
                ask(at, numbers, order)
        elif order.startswith("same "):
            with asking() as at:
                ask(at, repeat(7), order[len("same ") :])
        elif order != "none":
            with asking() as at:
                ask(at, numbers, order)
        client.sendall(b"done")


if __name__ == "__main__":
    main(sys.argv[1])
