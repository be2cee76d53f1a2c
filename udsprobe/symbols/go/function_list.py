"""What a Go program tells of each of its functions, read from its file when it is asked for."""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from typing import NamedTuple, Optional, Sequence, Tuple

from udsprobe.symbols.go.functions import GoFrames
from udsprobe.symbols.go.table import ENTRY, FUNCTION_BYTES

_END = struct.Struct("<I")


class Told(NamedTuple):
    """Of one function.

    Attributes:
        begin: counted from the begin of the program's code.
        raw: `_func` of Go's src/runtime/runtime2.go.
    """

    begin: int
    raw: bytes

    def number(self, at: int) -> int:
        """Raises struct.error where it is cut off."""
        return int(_END.unpack_from(self.raw, at)[0])


class FunctionList:
    """Of one program, in the order of addresses.

    Args:
        file: a descriptor, which stays the caller's and open.
    """

    def __init__(self, frames: GoFrames, file: int) -> None:
        self.frames = frames
        self._file = os.dup(file)
        self._entries = _Entries(frames, self._file)

    def at(self, pc: int) -> Optional[Told]:
        """None where none is.

        Args:
            pc: counted from the begin of the program's code.

        Raises:
            OSError, struct.error: it cannot be read.
        """
        number = bisect_right(self._entries, pc) - 1
        if number < 0 or pc >= self._entries[number + 1]:
            return None
        begin, place = self._entries.whole(number)
        return Told(begin, self.read(self.frames.entries + place, FUNCTION_BYTES))

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Of the table's part of the file; raises OSError, OverflowError."""
        return os.pread(self._file, min(size_bytes, self.frames.end - offset), offset)

    def close(self) -> None:
        """Give it back. May be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class _Entries(Sequence[int]):
    """Where functions begin, counted from the first one's; behind them, where the last one ends."""

    def __init__(self, frames: GoFrames, file: int) -> None:
        self._frames = frames
        self._file = file

    def __len__(self) -> int:
        return self._frames.functions

    def __getitem__(self, number):  # type: ignore[no-untyped-def]
        return self.whole(number)[0]

    def whole(self, number: int) -> Tuple[int, int]:
        """With the place of what is told of it; of what is behind the last one there is none."""
        size_bytes = ENTRY.size if number < self._frames.functions else _END.size
        raw = os.pread(self._file, size_bytes, self._frames.entries + ENTRY.size * number)
        begin, place = ENTRY.unpack(raw.ljust(ENTRY.size, b"\0"))
        return begin, place
