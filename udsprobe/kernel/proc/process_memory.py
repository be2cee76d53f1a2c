"""The memory of a process, by /proc/PID/mem."""

from __future__ import annotations

import os
from typing import Optional


class ProcessMemory:
    """Opened on first use, and again after `close`: a process may have begun another program."""

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        self._path = f"{proc}/{pid}/mem"
        self._descriptor: Optional[int] = None

    def read(self, address: int, size_bytes: int) -> bytes:
        """All of it.

        Raises:
            OSError: it is not there in whole, or may not be read.
        """
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.pread(self._descriptor, size_bytes, address)
        except (OverflowError, ValueError) as error:
            raise OSError(f"no address: {address:#x}") from error
        if len(found) != size_bytes:
            raise OSError(f"memory ends at {address + len(found):#x}")
        return found

    def close(self) -> None:
        """Let go of it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
