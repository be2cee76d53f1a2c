"""Where a report goes: stdout, stderr or a file; and what happens when it cannot."""

from __future__ import annotations

import errno
import os
import sys
from typing import Optional, TextIO

from udsprobe.errors import UdsprobeError, UsageError

TEXT_COLUMNS = 80
TO_A_FILE = "write it to a file with --output FILE"


class DeliveryError(UdsprobeError):
    """The report could not be written."""


class Outlet:
    """Writes documents to one place.

    Args:
        path: a file, created with mode 0600 at once so that a bad path fails
            before anything is observed; None is `stream`.
        stream: stdout, or stderr when stdout belongs to an observed command;
            None (as Python says it) when we were started without it.

    Raises:
        UsageError: `output-not-writable`.
        DeliveryError: `stdout-closed`.
    """

    def __init__(self, path: Optional[str], stream: Optional[TextIO]) -> None:
        self._name = path or ("stdout" if stream is sys.stdout else "stderr")
        self._stream = _given(stream) if path is None else self._opened(path)
        self.is_terminal = path is None and self._stream.isatty()

    def columns(self) -> int:
        """How wide a line can be: the terminal's width, or 80."""
        if not self.is_terminal:
            return TEXT_COLUMNS
        return os.get_terminal_size(self._stream.fileno()).columns or TEXT_COLUMNS

    def write(self, text: str) -> None:
        """Write one document and see it out.

        Raises:
            DeliveryError: `stdout-closed` or `output-failed`.
        """
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            raise self._failure(error) from error

    def _opened(self, path: str) -> TextIO:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            return os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8")
        except OSError as error:
            raise UsageError(
                "output-not-writable",
                f"cannot write to {path!r}: {error.strerror}",
                "give --output a file in a directory you can write to",
            ) from error

    def _failure(self, error: OSError) -> DeliveryError:
        # Whatever is still in its buffer would fail again, loudly, at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        if error.errno == errno.EPIPE and self._name == "stdout":
            return DeliveryError(
                "stdout-closed",
                "whoever read stdout is gone, the report is lost",
                TO_A_FILE,
            )
        return DeliveryError(
            "output-failed",
            f"writing the report to {self._name} failed: {error.strerror}",
            "free space there or give --output another file",
        )


def _given(stream: Optional[TextIO]) -> TextIO:
    if stream is None:
        raise DeliveryError("stdout-closed", "there is no stdout to write the report to", TO_A_FILE)
    return stream
