"""Where a report goes: stdout, stderr or a file; and what happens when it cannot."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import contextmanager
from typing import Iterator, Optional, TextIO

from udsprobe.errors import UdsprobeError, UsageError
from udsprobe.written_files import open_new, open_to_write

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
        option: that `path` was given with, for messages.

    Raises:
        UsageError: `output-not-writable`.
        DeliveryError: `stdout-closed`.
    """

    def __init__(
        self, path: Optional[str], stream: Optional[TextIO], option: str = "--output"
    ) -> None:
        self._option = option
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

    @contextmanager
    def printing(self) -> Iterator[None]:
        """Around what others print to the stream. A reader that leaves is no failure here.

        Raises:
            DeliveryError: `output-failed`.
            BrokenPipeError: the reader has left.
        """
        try:
            yield
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failure(error) from error

    def _opened(self, path: str) -> TextIO:
        try:
            return os.fdopen(open_to_write(path), "w", encoding="utf-8")
        except (OSError, ValueError) as error:  # a NUL in the name
            raise self._not_writable(path, error) from error

    def _not_writable(self, path: str, error: Exception) -> UsageError:
        return UsageError(
            "output-not-writable",
            f"cannot write to {path!r}: {getattr(error, 'strerror', error)}",
            f"give {self._option} a file in a directory you can write to",
        )

    def _failure(self, error: OSError) -> DeliveryError:
        # Whatever is still in its buffer would fail again, loudly, at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        if error.errno == errno.EPIPE and self._name == "stdout":
            return DeliveryError(
                "stdout-closed",
                "the reader of stdout has closed it, and the report is lost",
                TO_A_FILE,
            )
        return DeliveryError(
            "output-failed",
            f"writing the report to {self._name} failed: {error.strerror}",
            f"free space there or give {self._option} another file",
        )


class WholeFile(Outlet):
    """A file that has all of one document, or stays as it was.

    What is no regular file, such as a link or a device, is written to as it is.

    Leave it, as a context manager, without a `write` and there is nothing new.

    Args:
        path: of the file; a name beside it is taken at once, so that a bad path fails
            before the document is made.
        option: that `path` was given with.

    Raises:
        UsageError: `output-not-writable`.
    """

    def __init__(self, path: str, option: str = "--output") -> None:
        self._path, self._temporary = path, ""
        super().__init__(path, None, option)

    def write(self, text: str) -> None:
        """Write the document; the only one.

        Raises:
            DeliveryError: `output-failed`.
        """
        super().write(text)
        self._put_in_place()

    def write_bytes(self, content: bytes) -> None:
        """The same of what is no text."""
        try:
            self._stream.buffer.write(content)
            self._stream.flush()
        except OSError as error:
            raise self._failure(error) from error
        self._put_in_place()

    def _put_in_place(self) -> None:
        if self._temporary:
            try:
                os.replace(self._temporary, self._path)
            except OSError as error:
                raise self._failure(error) from error
            self._temporary = ""

    def __enter__(self) -> WholeFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        if self._temporary:
            os.unlink(self._temporary)

    def _opened(self, path: str) -> TextIO:
        if not os.path.basename(path) or os.path.islink(path):
            return super()._opened(path)
        if os.path.exists(path) and not os.path.isfile(path):
            return super()._opened(path)
        try:
            if os.path.exists(path):
                os.close(open_to_write(path, empty=False))
            folder, name = os.path.split(path)
            beside = os.path.join(folder, f".{name[:200]}.{os.urandom(4).hex()}")
            number = open_new(beside)
        except (OSError, ValueError) as error:
            raise self._not_writable(path, error) from error
        self._temporary = beside
        return os.fdopen(number, "w", encoding="utf-8")


@contextmanager
def html_libraries() -> Iterator[None]:
    """Around the import of what makes pages.

    Raises:
        UsageError: `no-html-libraries`.
    """
    try:
        yield
    except ImportError as error:
        from udsprobe.commands.output.extras import install_command

        raise UsageError(
            "no-html-libraries",
            f"--html needs {error.name}, which is not installed",
            install_command("html"),
        ) from error


def _given(stream: Optional[TextIO]) -> TextIO:
    if stream is None:
        raise DeliveryError(
            "stdout-closed", "stdout is closed, so the report cannot be written", TO_A_FILE
        )
    if isinstance(getattr(stream, "buffer", None), io.RawIOBase):
        # With PYTHONUNBUFFERED, what a write that a signal cuts short leaves over would be lost.
        number, kind, errors = stream.fileno(), stream.encoding, stream.errors
        return open(number, "w", encoding=kind, errors=errors, closefd=False)
    return stream
