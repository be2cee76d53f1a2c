"""A name server (RFC 1035) on 127.0.0.77: each name is 127.0.0.1, after so many ms.

name_server.py MS [PORT]
"""

from __future__ import annotations

import socket
import sys
import threading

ADDRESS = "127.0.0.77"
USUAL_PORT, CONSUL_PORT = 53, 8600
_HEADER_BYTES, _FOUND = 12, b"\x81\x80\0\1\0\1\0\0\0\0"
_A_OF_THE_QUESTION = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1"


def answer(question: bytes) -> bytes:
    """To one question for an address."""
    return question[:2] + _FOUND + question[_HEADER_BYTES:] + _A_OF_THE_QUESTION


def main(takes_ms: float, port: int = USUAL_PORT) -> None:
    """Until it is ended."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((ADDRESS, port))
    print("listens", flush=True)
    while True:
        question, client = server.recvfrom(512)
        threading.Timer(takes_ms / 1000, server.sendto, (answer(question), client)).start()


if __name__ == "__main__":
    main(float(sys.argv[1]), *map(int, sys.argv[2:]))
