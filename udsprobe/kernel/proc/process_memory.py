"""The memory of a process, by /proc/PID/mem, and the objects that are in it."""

from __future__ import annotations

import os
import struct
from typing import Callable, Dict, Generic, Optional, Tuple, TypeVar

OBJECTS_MAX = 20_000
"""Of a process, of which it is remembered what they held."""

Holds = TypeVar("Holds")
_WORD, _NUMBER = struct.Struct("<Q"), struct.Struct("<i")


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

    def word(self, address: int) -> int:
        """Of 8 bytes, unsigned; OSError as `read`."""
        return int(_WORD.unpack(self.read(address, _WORD.size))[0])

    def words(self, address: int, count: int) -> Tuple[int, ...]:
        """So many, as `word`."""
        return struct.unpack(f"<{count}Q", self.read(address, count * _WORD.size))

    def number(self, address: int) -> int:
        """Of 4 bytes, signed; OSError as `read`."""
        return int(_NUMBER.unpack(self.read(address, _NUMBER.size))[0])

    def close(self) -> None:
        """Let go of it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class ObjectsSeen(Generic[Holds]):
    """What objects in the memory of a process hold, looked at once in each round: another one may
    be in their place by the next. Of what is not there any more the last is known.

    Args:
        look: the address of one → what it holds; None: it is none, or cannot be read.
    """

    def __init__(self, look: Callable[[int], Optional[Holds]]) -> None:
        self._look = look
        self._seen: Dict[int, Optional[Holds]] = {}
        self._last: Dict[int, Holds] = {}

    def begin_round(self) -> None:
        """Look at all again."""
        self._seen.clear()

    def at(self, address: int) -> Optional[Holds]:
        """What the object there holds; None: it never was one."""
        if address not in self._seen:
            if len(self._last) >= OBJECTS_MAX:
                self._last.clear()
            found = self._look(address)
            if found is not None:
                self._last[address] = found
            self._seen[address] = self._last.get(address)
        return self._seen[address]
