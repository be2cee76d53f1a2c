"""Code that V8 has optimized: whose it is, and which functions are inlined where it calls."""

from __future__ import annotations

import struct
from bisect import bisect_right
from contextlib import suppress
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.kernel.proc.process_memory import ObjectsSeen, ProcessMemory
from udsprobe.symbols.v8.heap import V8Heap
from udsprobe.symbols.v8.layouts import NamesLayout
from udsprobe.symbols.v8.machine_calls import has_call
from udsprobe.symbols.varints import signed, varints

CODES_MAX, CALLS_MAX = 2000, 20_000
"""Of a process, that are remembered."""

INLINED_MAX = 64
"""Functions in each other, of one call."""

# Before an instruction, in which its object is looked for; of objects, the fields that are.
_CODE_BYTES_MAX, _FIELDS_MAX, _PAGE_BYTES = 1 << 16, 10, 4096
_TABLE_BYTES_MAX = 1 << 20
# From the place of a call on: what it is given, and the call.
_CALL_BYTES_MAX = 512
# Between the object of instructions and the first of them: its fields, and room to a boundary.
_HEADER_BYTES_MAX, _BOUNDARY_BYTES = 128, 32  # kCodeAlignment, src/common/globals.h
# src/codegen/source-position.h: 1 bit, 30 bits of a place in the source, then which inlined
# function it is of; that and the place are one more than they say, 0 says that there is none.
_INLINED_SHIFT, _INLINED_MASK = 31, (1 << 16) - 1
# struct InliningPosition: a source position, the number of a literal, 4 bytes of nothing.
_INLINING = struct.Struct("<qi4x")


class _Code(NamedTuple):
    """Addresses of an object of code and of what belongs to it; 0: it has none."""

    start: int
    shared: int
    positions: int
    inlined: int
    literals: int


class _Calls(NamedTuple):
    """Places of calls, from the first instruction on, and of each the inlined function or -1."""

    places: List[int]
    inlined: List[int]


class OptimizedCode:
    """Of one process. V8 moves code and lets go of it: what is where is looked up in each round.

    Args:
        is_code: whether code is at an address.
    """

    def __init__(
        self,
        layout: NamesLayout,
        memory: ProcessMemory,
        heap: V8Heap,
        is_code: Callable[[int], bool],
    ) -> None:
        self._is_code = is_code
        self._layout, self._memory, self._heap = layout, memory, heap
        self._codes = ObjectsSeen(self._look)
        self._by_stream: Dict[int, Optional[_Code]] = {}
        self._calls: Dict[_Code, _Calls] = {}
        self._inlined_at: Dict[Tuple[_Code, int], Tuple[int, ...]] = {}
        self._stream_map = 0

    def begin_round(self) -> None:
        """Look at all again."""
        self._codes.begin_round()
        self._by_stream.clear()

    def shared_at(self, address: int) -> Optional[int]:
        """The shared part of the function whose code this is; None: it is no such code."""
        code = self._codes.at(address)
        return None if code is None else code.shared

    def inlined_at(self, call: int) -> Tuple[int, ...]:
        """Shared parts of the functions that are inlined where it calls, the outermost first.

        Only calls have their place in the table that V8 keeps (InstructionSelector,
        kCallSourcePositions).

        Args:
            call: an address in the instruction that calls.
        """
        code = self._codes.at(call)
        if code is None or not code.positions or not code.inlined:
            return ()
        if (code, call) not in self._inlined_at:
            if len(self._inlined_at) >= CALLS_MAX:
                self._inlined_at.clear()
            self._inlined_at[code, call] = self._chain(code, self._number(code, call))
        return self._inlined_at[code, call]

    def _number(self, code: _Code, call: int) -> int:
        """Of the inlined function that calls there; -1: none, or not known."""
        calls = self._calls_of(code)
        at = bisect_right(calls.places, call - code.start) - 1
        if at < 0 or calls.inlined[at] < 0:
            return -1
        place = code.start + calls.places[at]
        size_bytes = call + 1 - place
        if size_bytes > _CALL_BYTES_MAX:
            return -1
        with suppress(OSError):
            # Calls that have no place of their own, as those for memory, come behind another one.
            if not has_call(self._memory.read(place, size_bytes), place, self._begins):
                return calls.inlined[at]
        return -1

    def _begins(self, address: int) -> bool:
        """Whether code that is called directly, one of V8's builtins, may begin there."""
        return not address % _BOUNDARY_BYTES and self._is_code(address)

    def _chain(self, code: _Code, number: int) -> Tuple[int, ...]:
        found: List[int] = []
        with suppress(OSError):
            table = self._heap.bytes_of(code.inlined, _TABLE_BYTES_MAX)
            entries = list(_INLINING.iter_unpack(table[: len(table) // 16 * 16]))
            while 0 <= number < len(entries) and len(found) < INLINED_MAX:
                position, literal = entries[number]
                found.insert(0, self._literal(code, literal))
                number = _inlined_of(position)
        return tuple(found)

    def _literal(self, code: _Code, number: int) -> int:
        first = code.literals + self._layout.array_data
        # A literal may be held weakly, by its second bit.
        shared = (self._heap.word(first + 8 * number) & ~3) if number >= 0 else code.shared
        return self._unwrapped(shared)

    def _calls_of(self, code: _Code) -> _Calls:
        if code not in self._calls:
            if len(self._calls) >= CODES_MAX:
                self._calls.clear()
            raw = b""
            with suppress(OSError):
                raw = self._heap.bytes_of(code.positions, _TABLE_BYTES_MAX)
            self._calls[code] = calls_of(raw)
        return self._calls[code]

    def _look(self, address: int) -> Optional[_Code]:
        stream = self._stream(address)
        if stream is None:
            return None
        if stream not in self._by_stream:
            self._by_stream[stream] = None
            with suppress(OSError):
                self._by_stream[stream] = self._read(stream)
        return self._by_stream[stream]

    def _read(self, stream: int) -> Optional[_Code]:
        found = [stream, *self._heap.objects(_fields(stream))]
        kind = self._layout.code_type
        code = next((each for each in found if self._heap.is_type(each, kind)), None)
        if code is None:
            return None
        fields = list(self._heap.objects(_fields(code)))
        for at, optimized in enumerate(fields):
            shared = self._shared(optimized)
            if shared is not None:
                positions = next(filter(self._is_bytes, fields[at + 1 :]), 0)
                start = self._start(stream, code)
                return _Code(start, shared, positions, *self._inlined(optimized))
        return None

    def _shared(self, optimized: int) -> Optional[int]:
        """None: it is not what V8 keeps of optimized code."""
        with suppress(OSError):
            return self._unwrapped(self._element(optimized, self._layout.optimized_shared))
        return None

    def _inlined(self, optimized: int) -> Tuple[int, int]:
        """What was inlined, and the literals that it names; 0: it is not told."""
        layout = self._layout
        with suppress(OSError):
            inlined = self._element(optimized, layout.optimized_inlined)
            literals = self._element(optimized, layout.optimized_literals)
            return (inlined if self._is_bytes(inlined) else 0), literals
        return 0, 0

    def _element(self, array: int, number: int) -> int:
        return self._heap.object(array + self._layout.array_data + 8 * number)

    def _unwrapped(self, shared: int) -> int:
        if self._heap.is_type(shared, self._layout.wrapper_type):
            shared = self._heap.object(shared + 8)
        if not self._heap.is_type(shared, self._layout.shared_type):
            raise OSError("no function")
        return shared

    def _is_bytes(self, address: int) -> bool:
        kinds = (self._layout.bytes_type, self._layout.trusted_bytes_type)
        return any(self._heap.is_type(address, kind) for kind in kinds)

    def _start(self, stream: int, code: int) -> int:
        """Of the instructions: told, or where the object of their code points to."""
        if self._layout.instructions:
            return stream + self._layout.instructions
        for word in self._heap.words(code, _FIELDS_MAX):
            if stream < word <= stream + _HEADER_BYTES_MAX and not word % _BOUNDARY_BYTES:
                return word
        raise OSError("no instructions")

    def _stream(self, address: int) -> Optional[int]:
        """The object whose instructions these are: the nearest before them."""
        # Page by page: it may be the first of its memory.
        end = (address & ~7) + 8
        while end > address - _CODE_BYTES_MAX:
            start = (end - 1) & ~(_PAGE_BYTES - 1)
            try:
                words = self._heap.words(start, (end - start) // 8)
            except OSError:
                return None
            for at in range(len(words) - 1, -1, -1):
                if self._is_stream_map(words[at]):
                    return start + 8 * at
            end = start
        return None

    def _is_stream_map(self, word: int) -> bool:
        if self._stream_map or word & 3 != 1:
            return word == self._stream_map != 0
        with suppress(OSError):
            map_of_map = self._heap.object(word - 1)
            is_map = self._heap.object(map_of_map) == map_of_map
            if is_map and self._heap.type_of_map(word - 1) == self._layout.stream_type:
                self._stream_map = word
        return word == self._stream_map


def calls_of(table: bytes) -> _Calls:
    """Of V8's table of source positions (src/codegen/source-position-table.cc).

    It has two numbers for each place: how far it is from the one before, below 0 where it is an
    expression, and how far its position is.
    """
    numbers = [signed(each) for each in varints(table)]
    places, inlined, place, position = [], [], 0, 0
    for step, change in zip(numbers[::2], numbers[1::2]):
        place += step if step >= 0 else -step - 1
        position += change
        places.append(place)
        inlined.append(_inlined_of(position))
    return _Calls(places, inlined)


def _inlined_of(position: int) -> int:
    return ((position >> _INLINED_SHIFT) & _INLINED_MASK) - 1


def _fields(address: int) -> Sequence[int]:
    return range(address + 8, address + 8 * _FIELDS_MAX, 8)
