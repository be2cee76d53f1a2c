"""Which functions of Go are inlined at an instruction: each is one that the program calls.

Source: Go's src/runtime/symtabinl.go (inlineUnwinder) of Go 1.20 and later.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Iterator, List, NamedTuple, Optional

from udsprobe.symbols.go.function_list import FunctionList, Told
from udsprobe.symbols.go.inline_data import CALL, tree_of
from udsprobe.symbols.go.sources import GoSources, Source, source

DEPTH_MAX = 64


class InlinedCall(NamedTuple):
    """`source`: None: not known."""

    name: str
    source: Optional[Source]


class GoInlined:
    """Of one program."""

    def __init__(self, functions: FunctionList, sources: GoSources) -> None:
        self._functions, self._sources = functions, sources

    def at(self, address: int) -> List[InlinedCall]:
        """Those at the file's own address, the innermost first; none where that is not known."""
        found: List[InlinedCall] = []
        if self._functions.frames.inlined is not None:
            with suppress(OSError, struct.error, IndexError, OverflowError, StopIteration):
                found.extend(self._read(address - self._functions.frames.base))
        return found

    def _read(self, pc: int) -> Iterator[InlinedCall]:
        told = self._functions.at(pc)
        tree = None if told is None else tree_of(told.raw)
        place = 0 if told is None else pc - told.begin
        for _ in range(DEPTH_MAX):
            number = self._number(told, place) if told is not None and tree is not None else -1
            if told is None or tree is None or number < 0:
                return
            raw = self._functions.read_inlined(tree + CALL.size * number, CALL.size)
            _, _, name, caller, line = CALL.unpack(raw)
            text = self._functions.text(self._functions.frames.names + name)
            if not text:
                return
            yield InlinedCall(text, source(self._sources.at(told, place), line))
            place = caller

    def _number(self, told: Told, place: int) -> int:
        return next((number for number, end in self._functions.inlined(told) if place < end), -1)
