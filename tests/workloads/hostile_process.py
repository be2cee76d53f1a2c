"""A server, a client and an upstream that are called what would hurt a careless reader.

Reads one JSON object from stdin: `comm`, `thread`, `path`, `abstract`,
`upstream`, `missing`, each hex. Listens at `path` (stream) and `abstract`
(seqpacket), answers requests of a client it forks by asking `upstream`, and
tries to connect to `missing` each time. Says its PID and those of its
children once all run, and ends, with them, when stdin is closed. Knows
nothing of udsprobe.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Callable, Dict, List

PR_SET_NAME, PR_SET_PDEATHSIG = 15, 1
REQUESTS_MAX = 200_000
libc = ctypes.CDLL(None)


def call_itself(comm: bytes) -> None:
    """Name the calling thread; the kernel keeps 15 bytes."""
    libc.prctl(PR_SET_NAME, ctypes.c_char_p(comm), 0, 0, 0)


def listening(name: bytes, kind: int) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(name)
    made.listen(3)
    return made


def child(comm: bytes, work: Callable[[], None]) -> int:
    """A forked process that ends with its parent."""
    pid = os.fork()
    if pid == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        call_itself(comm)
        work()
        os._exit(0)
    return pid


def echo(listener: socket.socket, ask: Callable[[], None]) -> None:
    connection, _ = listener.accept()
    with suppress(ConnectionError):  # whoever asked is killed in the end
        while connection.recv(64):
            ask()
            connection.sendall(b"ok")


def fail_to_connect(name: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hopeless:
        hopeless.connect_ex(name)


def serve(listener: socket.socket, upstream: bytes, missing: bytes, comm: bytes) -> None:
    call_itself(comm)
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    asked.connect(upstream)

    def ask() -> None:
        fail_to_connect(missing)
        asked.sendall(b"?")
        asked.recv(64)

    echo(listener, ask)


def load(path: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(path)
        for _ in range(REQUESTS_MAX):
            client.sendall(b"GET")
            client.recv(64)
            signal.sigtimedwait([], 0.002)


def main() -> None:
    names: Dict[str, bytes] = {k: bytes.fromhex(v) for k, v in json.loads(input()).items()}
    pids: List[int] = []
    behind = listening(names["upstream"], socket.SOCK_STREAM)
    pids.append(child(names["thread"], lambda: echo(behind, lambda: None)))
    front = listening(names["path"], socket.SOCK_STREAM)
    idle = listening(names["abstract"], socket.SOCK_SEQPACKET)
    call_itself(names["comm"])
    arguments = (front, names["upstream"], names["missing"], names["thread"])
    threading.Thread(target=serve, args=arguments, daemon=True).start()
    pids.append(child(names["comm"], lambda: load(names["path"])))
    print(json.dumps([os.getpid(), *pids]), flush=True)
    sys.stdin.read()
    idle.close()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
