"""How the demo's processes learn that it is over: a signal, or their starter is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys


def ending() -> asyncio.Event:
    """From now on SIGTERM, SIGINT and the end of standard input set the event."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, over.set)
    stdin = sys.stdin.fileno()

    def read_stdin() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            over.set()

    # epoll takes no regular file and no /dev/null: then signals remain.
    with contextlib.suppress(PermissionError):
        loop.add_reader(stdin, read_stdin)
    return over
