"""A WSGI application whose requests cost what the environment says.

SLEEP_MS time.sleep · SPIN_MS computes · FLOCK_MS holds a lock file for so long (LOCK_FILE) ·
FSYNC=1 writes and syncs LOCK_FILE · CHILD_S runs `sleep` · BODY bytes · UPSTREAM a Redis socket,
asked with COMMAND · CRASH_AT the request of a worker in which it crashes
"""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import socket
import subprocess
import time
from typing import Any, Callable, Iterable, List

SLEEP_S = float(os.environ.get("SLEEP_MS", 0)) / 1000
SPIN_S = float(os.environ.get("SPIN_MS", 0)) / 1000
FLOCK_S = float(os.environ.get("FLOCK_MS", 0)) / 1000
BODY = b"x" * int(os.environ.get("BODY", 64))
CRASH_AT = int(os.environ.get("CRASH_AT", 0))
upstream: List[socket.socket] = []
requests = itertools.count(1)


def _spin() -> None:
    end = time.perf_counter() + SPIN_S
    while time.perf_counter() < end:
        sum(range(200))


def _hold_lock_file() -> None:
    with open(os.environ["LOCK_FILE"], "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        time.sleep(FLOCK_S)


def _write_through() -> None:
    with open(os.environ["LOCK_FILE"], "ab") as journal:
        journal.write(b"x" * 4096)
        journal.flush()
        os.fsync(journal.fileno())


def _ask() -> None:
    if not upstream:
        upstream.append(socket.socket(socket.AF_UNIX))
        upstream[0].connect(os.environ["UPSTREAM"])
    upstream[0].sendall(os.environ["COMMAND"].encode() + b"\r\n")
    while not upstream[0].recv(65536).endswith(b"\n"):
        pass


def _work() -> None:
    if next(requests) == CRASH_AT:
        os.kill(os.getpid(), signal.SIGSEGV)
    if SLEEP_S:
        time.sleep(SLEEP_S)
    if SPIN_S:
        _spin()
    if FLOCK_S:
        _hold_lock_file()
    if "FSYNC" in os.environ:
        _write_through()
    if "CHILD_S" in os.environ:
        subprocess.run(["sleep", os.environ["CHILD_S"]], check=True)
    if "UPSTREAM" in os.environ:
        _ask()


def application(environ: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
    """WSGI."""
    _work()
    start_response("200 OK", [("Content-Length", str(len(BODY)))])
    return [BODY]
