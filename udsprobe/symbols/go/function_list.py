"""What a Go program tells of each of its functions, read from its file when it is asked for."""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from typing import Iterator, NamedTuple, Optional, Sequence, Tuple

from udsprobe.printable import printable
from udsprobe.symbols.go.functions import GoFrames
from udsprobe.symbols.go.inline_data import TOLD_BYTES_MAX
from udsprobe.symbols.go.table import ENTRY, INLINED, NAME_BYTES_MAX, TABLES_AT, steps

_NUMBER = struct.Struct("<I")
_STEPS_BYTES_MAX = 1 << 16
# Of its flags, one that is not used and a number are before its tables.
_BEHIND_FLAGS = 3


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
        return int(_NUMBER.unpack_from(self.raw, at)[0])


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
        return Told(begin, self.read(self.frames.entries + place, TOLD_BYTES_MAX))

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Of the table's part of the file; raises OSError, OverflowError."""
        return os.pread(self._file, min(size_bytes, self.frames.end - offset), offset)

    def read_inlined(self, offset: int, size_bytes: int) -> bytes:
        """Of what is told of inlined calls, from its begin on; raises OSError, OverflowError."""
        data = self.frames.inlined
        if data is None:
            return b""
        return os.pread(
            self._file, min(size_bytes, data.end - data.begin - offset), data.begin + offset
        )

    def inlined(self, told: Told) -> Iterator[Tuple[int, int]]:
        """Which of its inlined calls is up to which byte of it; -1: none."""
        tables = self.frames.flags_at + _BEHIND_FLAGS
        has_any = told.number(TABLES_AT) > INLINED
        return self.steps(told.number(tables + _NUMBER.size * INLINED) if has_any else 0)

    def steps(self, place: int) -> Iterator[Tuple[int, int]]:
        """Of a function, by the place that it tells; 0: it has none."""
        raw = self.read(self.frames.steps + place, _STEPS_BYTES_MAX) if place else b""
        return steps(raw)

    def text(self, offset: int) -> str:
        """The name there, printable; empty where none ends."""
        name, end, _ = self.read(offset, NAME_BYTES_MAX).partition(b"\0")
        return printable(name) if end else ""

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
        size_bytes = ENTRY.size if number < self._frames.functions else _NUMBER.size
        raw = os.pread(self._file, size_bytes, self._frames.entries + ENTRY.size * number)
        begin, place = ENTRY.unpack(raw.ljust(ENTRY.size, b"\0"))
        return begin, place
