"""A program that is told lines by a pipe and says lines by another."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import IO, Optional, Type, TypeVar

from tests.patience import PATIENCE_S

Piped = TypeVar("Piped", bound="PipedProgram")


class PipedProgram:
    """It runs from the first moment on; when the block is left it is killed.

    Args:
        stderr: as `subprocess.Popen` takes it.

    Attributes:
        pid: its.
    """

    def __init__(self, *argv: str, stderr: Optional[int] = None) -> None:
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
        self.pid = self._process.pid

    @property
    def stdout(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def tell(self, text: str) -> None:
        """Write to it, without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def says(self) -> str:
        """The next line it says, waited for."""
        line = self.stdout.readline()
        assert line, "it ended"
        return line.strip()

    def close(self) -> None:
        """Wait until it ends because nothing more is told to it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self.stdout.close()

    def __enter__(self: Piped) -> Piped:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._process.kill()
        self._process.communicate(timeout=PATIENCE_S)
