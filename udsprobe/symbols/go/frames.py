"""How to get from a function of Go to its caller, by the table that its runtime walks stacks by.

Programs with parts in C (cgo: those that look names up by the C library, and all of Debian's) have
unwind tables of these parts alone. Source: as of `table`, also funcspdelta and abi.FuncFlag.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from contextlib import suppress
from typing import Dict, Optional, Sequence, Tuple

from udsprobe.symbols import frame_rules as ops
from udsprobe.symbols.frame_rules import MACHINES, Operations, Rule
from udsprobe.symbols.go.functions import GoFrames
from udsprobe.symbols.go.table import ENTRY, FUNCTION_BYTES, STEPS_AT, steps

_STEPS = struct.Struct("<I")
_RULES_MAX, _STEPS_BYTES_MAX = 200_000, 1 << 16
_TOP_FRAME, _WRITES_SP = 1, 2
_WORD_BYTES, _SP = 8, MACHINES["x86_64"].sp


def _from_frame(distance: int) -> Operations:
    return ((ops.OP_CALL_FRAME_CFA, 0, 0), (ops.OP_PLUS_UCONST, distance % (1 << 64), 0))


_CALLER, _SAVED = _from_frame(-_WORD_BYTES), _from_frame(-2 * _WORD_BYTES)


class GoRules:
    """Of one program for x86-64, each place decoded once.

    Args:
        file: a descriptor, which stays the caller's and open.
    """

    def __init__(self, frames: GoFrames, file: int) -> None:
        self._frames = frames
        self._file = os.dup(file)
        self._entries = _Entries(frames, self._file)
        self._known: Dict[int, Optional[Rule]] = {}

    def at(self, address: int) -> Optional[Rule]:
        """Of the file's own address; None where it is none of Go's, or one changes stacks there."""
        if address not in self._known:
            if len(self._known) >= _RULES_MAX:
                self._known.clear()
            self._known[address] = None
            with suppress(OSError, struct.error, IndexError, OverflowError):
                self._known[address] = self._decoded(address - self._frames.base)
        return self._known[address]

    def close(self) -> None:
        """Give it back. May be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _decoded(self, pc: int) -> Optional[Rule]:
        number = bisect_right(self._entries, pc) - 1
        if number < 0 or pc >= self._entries[number + 1]:
            return None
        begin, place = self._entries.whole(number)
        raw = self._read(self._frames.entries + place, FUNCTION_BYTES)
        flags = raw[self._frames.flags_at]
        if flags & _TOP_FRAME:
            return Rule(((ops.OP_BREGX, _SP, _WORD_BYTES),), _CALLER, None, True, False)
        if flags & _WRITES_SP:
            return None
        (first,) = _STEPS.unpack_from(raw, STEPS_AT)
        depth = _depth(self._read(self._frames.steps + first, _STEPS_BYTES_MAX), pc - begin)
        if depth is None:
            return None
        cfa = ((ops.OP_BREGX, _SP, depth + _WORD_BYTES),)
        # With the first word of its frame it saves the frame pointer of its caller.
        return Rule(cfa, _CALLER, _SAVED if depth else None, False, False)

    def _read(self, offset: int, size_bytes: int) -> bytes:
        return os.pread(self._file, min(size_bytes, self._frames.end - offset), offset)


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
        size_bytes = ENTRY.size if number < self._frames.functions else _STEPS.size
        raw = os.pread(self._file, size_bytes, self._frames.entries + ENTRY.size * number)
        begin, place = ENTRY.unpack(raw.ljust(ENTRY.size, b"\0"))
        return begin, place


def _depth(raw: bytes, pc: int) -> Optional[int]:
    """How far the stack pointer is from the return address there; None: it is not told."""
    found = next((depth for depth, end in steps(raw) if pc < end), -1)
    return found if found >= 0 else None
