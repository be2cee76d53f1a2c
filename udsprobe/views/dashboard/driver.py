"""Where the screen is drawn: on standard output, as everything else a command answers.

Textual draws on standard error, which users send to a file to keep warnings.
This is the only file that knows Textual's driver.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TextIO, cast

from textual.drivers.linux_driver import LinuxDriver


class StdoutDriver(LinuxDriver):
    """Textual's driver for a terminal, on standard output."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if sys.__stdout__ is not None:
            self._file = cast(Any, Screen(sys.__stdout__))


class Screen:
    """A terminal that may go away while it is drawn on.

    Textual's thread that writes would end with the error, its queue fill and the
    application wait for room forever. The hang-up is a signal, which ends it properly.
    """

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._terminal.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._terminal.flush()

    def fileno(self) -> int:
        return self._terminal.fileno()

    def isatty(self) -> bool:
        return self._terminal.isatty()
