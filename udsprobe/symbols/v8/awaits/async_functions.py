"""The async functions of a process that wait, by their objects in V8's heap.

One has an object from its first `await` on (src/objects/js-generator.tq, JSAsyncFunctionObject).
V8 has no list of them, so its pages are searched for their map.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.v8.awaits.heap_pages import Pages, chunks, objects_with, words_with
from udsprobe.symbols.v8.awaits.layouts import AwaitsLayout
from udsprobe.symbols.v8.heap import V8Heap
from udsprobe.symbols.v8.layouts import Layout

LOOKED_AT_MAX = 2000
"""Async functions of a process that wait; of more of them nothing is told."""

_MAPS_MAX, _LOOKS_BY_MAPS = 64, 16
# Behind the head: function, context, receiver, input or position, mode, continuation, registers,
# promise, or of an async generator what it is asked. Until it waits, or goes on, the fourth is an
# object and the continuation is negative.
_STATE = struct.Struct("<8Q")
# Behind the map of a map, whose first word is its own map, sizes and then the type.
_TYPE = struct.Struct("<H")
_PENDING, _STATUS = 0, 3
# AsyncGeneratorRequest.
_ASKED_PROMISE = 32


class TooMany(Exception):
    """They cannot be looked at in the time that one look may take."""


class Suspended(NamedTuple):
    """One that waits; addresses of objects."""

    address: int
    function: int
    context: int
    receiver: int
    registers: int
    promise: int


class AsyncFunctions:
    """Of one process.

    Args:
        pages: where its objects may be now.
    """

    def __init__(
        self,
        layout: Layout,
        awaits: AwaitsLayout,
        heap: V8Heap,
        memory: ProcessMemory,
        pages: Callable[[], List[Pages]],
    ) -> None:
        self._layout, self._awaits, self._heap = layout, awaits, heap
        self._memory, self._pages = memory, pages
        self._maps: Tuple[int, ...] = ()
        self._looks = 0

    def waiting(self) -> Iterator[Suspended]:
        """Those that wait, each looked at right after it was found: some wait for a moment only.

        Raises:
            TooMany: they are more than `LOOKED_AT_MAX`.
        """
        pages = self._pages()
        # Another thread of JavaScript has maps of its own.
        if not self._maps or self._looks % _LOOKS_BY_MAPS == 0:
            self._maps = self._maps_in(pages)
        self._looks += 1
        found = 0
        for start, chunk in chunks(pages, self._memory) if self._maps else ():
            for address, state in self._candidates(start, chunk):
                one = self._one(address, state)
                if one is not None:
                    found += 1
                    yield one
            if found > LOOKED_AT_MAX:
                raise TooMany

    def is_one(self, address: int) -> bool:
        """It is still there: V8 moves objects."""
        kinds = (self._awaits.async_type, self._awaits.async_generator_type)
        return any(self._heap.is_type(address, kind) for kind in kinds)

    def generator_at(self, address: int) -> Optional[Suspended]:
        """The async generator there that is asked for its next value; None: there is none."""
        awaits, heap = self._awaits, self._heap
        with suppress(OSError):
            if heap.type(address) == awaits.async_generator_type:
                state = list(heap.words(address + awaits.head_bytes, _STATE.size // 8))
                state[7] = heap.word(state[7] - 1 + _ASKED_PROMISE)
                return self._one(address, state) if _is_suspended(state) else None
        return None

    def _maps_in(self, pages: Sequence[Pages]) -> Tuple[int, ...]:
        """Those of async functions; each context of JavaScript has one."""
        places, bits = self._layout.names.map_type, _TYPE.pack(self._awaits.async_type)
        found: List[int] = []
        for start, chunk in chunks(pages, self._memory):
            for at in words_with(bits, places % 8, chunk):
                address = start + at - (places - places % 8)
                if self._is_map(address) and len(found) < _MAPS_MAX:
                    found.append(address)
        return tuple(found)

    def _is_map(self, address: int) -> bool:
        with suppress(OSError):
            return self._heap.type(address) == self._awaits.map_of_map_type
        return False

    def _candidates(self, start: int, chunk: bytes) -> Iterator[Tuple[int, Tuple[int, ...]]]:
        """Address, and what is behind the head, of those that wait as far as that alone tells."""
        head = self._awaits.head_bytes
        for map_ in self._maps:
            for at in objects_with(map_ | 1, head + _STATE.size, chunk):
                state = _STATE.unpack_from(chunk, at + head)
                if _is_suspended(state):
                    yield start + at, state

    def _one(self, address: int, state: Sequence[int]) -> Optional[Suspended]:
        """None: it was none, or is done."""
        function, context, receiver = (state[at] - 1 for at in (0, 1, 2))
        registers, promise = (state[at] - 1 for at in (6, 7))
        heap = self._heap
        with suppress(OSError):
            flags = heap.number(promise + self._awaits.head_bytes + 8)
            is_sound = (
                heap.type(promise) == self._awaits.promise_type
                and heap.type(registers) == self._awaits.fixed_array_type
                and flags is not None
                and flags & _STATUS == _PENDING
            )
            found = Suspended(address, function, context, receiver, registers, promise)
            return found if is_sound else None
        return None


def _is_suspended(state: Sequence[int]) -> bool:
    function, _, _, position, _, continuation, registers, promise = state
    are_objects = all(each & 3 == 1 for each in (function, registers, promise))
    is_number = not (position & 0xFFFF_FFFF or continuation & 0xFFFF_FFFF)
    return are_objects and is_number and continuation >> 63 == 0
