"""A client of leaving_server.py that asks what it is told to, and says what became of it.

    asking_client.py unix PATH|tcp PORT_FILE

Prints "ready", and reads lines of a word and a number. Each word is sent so many times, on a
connection of its own, which is closed when nothing came for 50 ms. More words: `stale` asks again
on a connection that the server has closed after its reply; `bye` says goodbye after a reply, and
closes at once; `tls` does so as TLS does, `terminate` as PostgreSQL's clients do, `quit` as those
of MySQL, and these wait for the other end; `trigger` has the server close the connection after a
while, and closes it without having looked, as Postfix wakes its queue manager. Prints "done" after
each line, and what came of all at the end, as JSON.
"""

from __future__ import annotations

import json
import select
import socket
import sys
from typing import Dict

WAITS_S = 0.05
PATIENCE_MS = 60_000
TLS_RECORD = bytes([22, 3, 3])
GOODBYES = {b"terminate": b"X\0\0\0\4", b"quit": b"\1\0\0\0\1"}
counts = {"answered": 0, "ended": 0, "given_up": 0}


def connected(kind: str, place: str) -> socket.socket:
    if kind == "tcp":
        with open(place, encoding="ascii") as file:
            return socket.create_connection(("127.0.0.1", int(file.read())), WAITS_S)
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(WAITS_S)
    sock.connect(place)
    return sock


def ask(sock: socket.socket, word: bytes) -> None:
    try:
        sock.sendall(word)
        outcome = "answered" if sock.recv(64) else "ended"
    except socket.timeout:
        outcome = "given_up"
    except ConnectionError:
        outcome = "ended"
    counts[outcome] += 1


def wait_for_its_end(sock: socket.socket) -> None:
    waiting = select.poll()
    waiting.register(sock, select.POLLRDHUP)
    if not waiting.poll(PATIENCE_MS):
        raise TimeoutError("the server keeps the connection")


def ask_once(sock: socket.socket, word: bytes) -> None:
    if word == b"stale":
        ask(sock, b"last")
        wait_for_its_end(sock)
        ask(sock, b"answer")
    elif word == b"bye":
        ask(sock, b"answer")
        sock.sendall(b"bye")
    elif word == b"tls":
        ask(sock, TLS_RECORD)
        sock.sendall(b"bye")
        sock.recv(64)
    elif word in GOODBYES:
        ask(sock, b"answer")
        sock.sendall(GOODBYES[word])
        sock.recv(64)
    elif word == b"trigger":
        sock.sendall(b"fail")
        wait_for_its_end(sock)
    else:
        ask(sock, word)


def main(kind: str, place: str) -> Dict[str, int]:
    print("ready", flush=True)
    for line in sys.stdin:
        word, number = line.split()
        for _ in range(int(number)):
            with connected(kind, place) as sock:
                ask_once(sock, word.encode())
        print("done", flush=True)
    return counts


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
