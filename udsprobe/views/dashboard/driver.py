"""Where the screen is drawn: on standard output, as everything else a command answers.

Textual draws on standard error, which users send to a file to keep warnings.
This is the only file that knows Textual's driver.
"""

from __future__ import annotations

import sys
from typing import Any

from textual.drivers.linux_driver import LinuxDriver


class StdoutDriver(LinuxDriver):
    """Textual's driver for a terminal, on standard output."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if sys.__stdout__ is not None:
            self._file = sys.__stdout__
