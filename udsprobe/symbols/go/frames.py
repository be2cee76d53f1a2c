"""How to get from a function of Go to its caller, by the table that its runtime walks stacks by.

Programs with parts in C (cgo: those that look names up by the C library, and all of Debian's) have
unwind tables of these parts alone. Source: as of `table`, also funcspdelta and abi.FuncFlag.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Dict, Optional

from udsprobe.symbols import frame_rules as ops
from udsprobe.symbols.frame_rules import MACHINES, Operations, Rule
from udsprobe.symbols.go.function_list import FunctionList
from udsprobe.symbols.go.table import STEPS_AT, steps

_RULES_MAX, _STEPS_BYTES_MAX = 200_000, 1 << 16
_TOP_FRAME, _WRITES_SP = 1, 2
_WORD_BYTES, _SP = 8, MACHINES["x86_64"].sp


def _from_frame(distance: int) -> Operations:
    return ((ops.OP_CALL_FRAME_CFA, 0, 0), (ops.OP_PLUS_UCONST, distance % (1 << 64), 0))


_CALLER, _SAVED = _from_frame(-_WORD_BYTES), _from_frame(-2 * _WORD_BYTES)


class GoRules:
    """Of one program for x86-64, each place decoded once."""

    def __init__(self, functions: FunctionList) -> None:
        self._functions = functions
        self._known: Dict[int, Optional[Rule]] = {}

    def at(self, address: int) -> Optional[Rule]:
        """Of the file's own address; None where it is none of Go's, or one changes stacks there."""
        if address not in self._known:
            if len(self._known) >= _RULES_MAX:
                self._known.clear()
            self._known[address] = None
            with suppress(OSError, struct.error, IndexError, OverflowError):
                self._known[address] = self._decoded(address - self._functions.frames.base)
        return self._known[address]

    def _decoded(self, pc: int) -> Optional[Rule]:
        told = self._functions.at(pc)
        if told is None:
            return None
        frames = self._functions.frames
        flags = told.raw[frames.flags_at]
        if flags & _TOP_FRAME:
            return Rule(((ops.OP_BREGX, _SP, _WORD_BYTES),), _CALLER, None, True, False)
        if flags & _WRITES_SP:
            return None
        first = frames.steps + told.number(STEPS_AT)
        depth = _depth(self._functions.read(first, _STEPS_BYTES_MAX), pc - told.begin)
        if depth is None:
            return None
        cfa = ((ops.OP_BREGX, _SP, depth + _WORD_BYTES),)
        # With the first word of its frame it saves the frame pointer of its caller.
        return Rule(cfa, _CALLER, _SAVED if depth else None, False, False)


def _depth(raw: bytes, pc: int) -> Optional[int]:
    """How far the stack pointer is from the return address there; None: it is not told."""
    found = next((depth for depth, end in steps(raw) if pc < end), -1)
    return found if found >= 0 else None
