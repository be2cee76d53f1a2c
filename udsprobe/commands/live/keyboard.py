"""Keys for a screen that is no application: q, the end of the terminal, and Ctrl-Z."""

from __future__ import annotations

import enum
import os
import select
import signal
import sys
import termios
import time
import tty
from contextlib import suppress
from typing import Any, Optional

_QUIT_KEYS = (b"q", b"Q")


class Asked(enum.Enum):
    """What somebody at the terminal wants."""

    QUIT = "quit"
    SUSPEND = "suspend"


class Keyboard:
    """The terminal of stdin, whose keys arrive one by one and unseen; Ctrl-C stays a signal.

    A context: afterwards the terminal is as it was.
    """

    def __init__(self) -> None:
        self._terminal = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._terminal)
        # Ctrl-Z may come between two waits: what it asks for is kept in a pipe.
        self._asked, self._asking = os.pipe()
        os.set_blocking(self._asking, False)

    def __enter__(self) -> Keyboard:
        tty.setcbreak(self._terminal, termios.TCSANOW)
        self._default = signal.signal(signal.SIGTSTP, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTSTP, self._default)
        termios.tcsetattr(self._terminal, termios.TCSANOW, self._before)
        os.close(self._asked)
        os.close(self._asking)

    def wait(self, seconds: float) -> Optional[Asked]:
        """Until somebody asks for something, or for so long: then None."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready = select.select([self._terminal, self._asked], [], [], left)[0]
            if self._asked in ready:
                os.read(self._asked, 64)
                return Asked.SUSPEND
            if self._terminal in ready and self._is_quit(os.read(self._terminal, 64)):
                return Asked.QUIT
        return None

    def suspend(self) -> None:
        """Give the terminal back as it was, and stop until the shell continues this process."""
        termios.tcsetattr(self._terminal, termios.TCSANOW, self._before)
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        tty.setcbreak(self._terminal, termios.TCSANOW)

    def _ask(self, *_: Any) -> None:
        with suppress(BlockingIOError):  # asked for already
            os.write(self._asking, b"z")

    @staticmethod
    def _is_quit(typed: bytes) -> bool:
        return not typed or any(key in typed for key in _QUIT_KEYS)
