"""Opens descriptors until none is left, then asks for so many more that it is refused.

Usage: exhausted_fds.py LIMIT REFUSALS. Says `ready`; at a line on stdin it
begins, and at the end it prints its own truth and waits for another line.
Opens in every way there is, inside and outside of udsprobe's table of calls.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import socket
import sys
from typing import Callable, List

libc = ctypes.CDLL(None, use_errno=True)


def refused(call: Callable[[], object]) -> int:
    """1; it must not work."""
    try:
        call()
    except OSError as error:
        assert error.errno == errno.EMFILE, error
        return 1
    raise AssertionError("it was not refused")


def inotify() -> None:
    """Counted by nobody: its EMFILE can be about instances."""
    if libc.inotify_init1(0) < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")


def main() -> None:
    limit, refusals = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0udsprobe-{os.getpid()}")
    listener.listen(4)
    client = socket.socket(socket.AF_UNIX)
    client.connect(listener.getsockname())
    print("ready", flush=True)
    sys.stdin.readline()
    held: List[int] = []
    while True:
        try:
            held.append(os.dup(0))
        except OSError:
            break
    ways = (
        lambda: os.open("/dev/null", os.O_RDONLY),
        lambda: os.dup(0),
        os.pipe,
        lambda: socket.socket(socket.AF_UNIX),
        listener.accept,
        lambda: os.eventfd(0) if hasattr(os, "eventfd") else os.dup(0),
    )
    count = 1 + sum(refused(ways[number % len(ways)]) for number in range(refusals - 1))
    refused(inotify)
    for descriptor in held[:3]:
        os.close(descriptor)
    print(json.dumps({"refused": count, "open": limit - 3}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
