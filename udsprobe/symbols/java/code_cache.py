"""The code that HotSpot has made, in the memory of its process: which piece is where.

Source: CodeHeap of src/hotspot/share/memory/heap.hpp, CodeBlob of share/code/codeBlob.hpp.
"""

from __future__ import annotations

import struct
from bisect import bisect_right, insort
from contextlib import suppress
from typing import Dict, List, NamedTuple, Optional

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.java.layouts import NOT_TOLD, Layout
from udsprobe.symbols.java.vm_structs import text_at

HEAPS_MAX = 16
"""Of one process; HotSpot has one to four."""

BLOBS_MAX = 10_000
"""Pieces of code that are remembered."""

LOOKED_AT_MAX = 1_000
"""In each round: of more none is known any more."""

_HEAP_BYTES_MAX, _FRAME_WORDS_MAX = 1 << 32, 1 << 16
_SEGMENT_LOG2_MAX = 16
# A segment of no block; what others have counts back, by less than this.
_FREE, _HOPS_MAX, _HOP_BYTES = 0xFF, 2_000, 256
# Where a frame is complete has 32 bits before JDK 24: the lower half tells it, too.
_WORD, _NUMBER, _SHORT = struct.Struct("<Q"), struct.Struct("<i"), struct.Struct("<h")


class Heap(NamedTuple):
    """Reserved from `low` to `high`; one byte for each of its segments is at `segments`."""

    low: int
    high: int
    segments: int
    segment_log2: int


class Blob(NamedTuple):
    """One piece of code.

    Attributes:
        address: of what HotSpot keeps of it, `end`: of the code that begins at `begin`.
        kind: its name: `nmethod`, `Interpreter`, that of a stub.
        frame_bytes: with the return address; 0: it has no frame of one size.
        frame_complete: offset from `begin`; below 0: never.
        method: of an nmethod, the address of its method; 0: it is none.
        deoptimized: where a call returns to whose code is not valid any more; 0: not told.
        original: how far from the stack pointer such a frame has where it would have returned to.
    """

    address: int
    kind: bytes
    begin: int
    end: int
    frame_bytes: int
    frame_complete: int
    method: int
    compile_id: int
    deoptimized: int
    original: int

    @property
    def is_of_method(self) -> bool:
        """A compiled method, or what calls a native one."""
        return self.kind in NMETHODS


NMETHODS = (b"nmethod", b"native nmethod")


class CodeCache:
    """Of one process. A blob is looked at again in each round: another may be in its place."""

    def __init__(self, layout: Layout, memory: ProcessMemory) -> None:
        self._layout, self._memory = layout, memory
        self._heaps: List[Heap] = []
        self._names: Dict[int, bytes] = {}
        self._blobs: Dict[int, Blob] = {}
        self._begins: List[int] = []
        self._free: Dict[int, None] = {}
        self._bytes = 8 + max(
            *(layout.blob_name, layout.code_end, layout.code_end_offset, layout.code_begin),
            *(layout.code_begin_offset, layout.blob_bytes, layout.blob_frame_words),
            *(layout.blob_frame_complete, layout.method, layout.compile_id),
            *(layout.deoptimized, layout.deoptimized_offset, layout.original_pc),
        )

    def begin_round(self) -> bool:
        """Look at all again; whether other code is where code was.

        Of a process that has ended the last is known.
        """
        were = self._blobs if len(self._blobs) <= LOOKED_AT_MAX else {}
        stay = {begin: blob for begin, blob in were.items() if self._is_still(blob)}
        is_other = len(stay) != len(self._blobs)
        self._blobs, self._begins = stay, sorted(stay)
        self._free.clear()
        return is_other

    def holds(self, address: int) -> bool:
        """Whether it is in memory for such code."""
        return any(heap.low <= address < heap.high for heap in self._known_heaps())

    def at(self, address: int) -> Optional[Blob]:
        """The one whose code is there."""
        place = bisect_right(self._begins, address) - 1
        known = self._blobs[self._begins[place]] if place >= 0 else None
        if known is None or address >= known.end:
            known = self._found(address)
        return known

    def _found(self, address: int) -> Optional[Blob]:
        if address in self._free:
            return None
        found = self._sought(address)
        if len(self._blobs) + len(self._free) >= BLOBS_MAX:
            for each in (self._blobs, self._begins, self._free):
                each.clear()
        if found is None:
            self._free[address] = None
        elif found.begin not in self._blobs:
            self._blobs[found.begin] = found
            insort(self._begins, found.begin)
        return found

    def _sought(self, address: int) -> Optional[Blob]:
        for heap in self._known_heaps():
            if heap.low <= address < heap.high:
                segment = self._first_segment(heap, (address - heap.low) >> heap.segment_log2)
                if segment is None:
                    return None
                block = heap.low + (segment << heap.segment_log2)
                with suppress(OSError):
                    found = self._read(block + self._layout.block_size)
                    if found is not None and found.begin <= address < found.end <= heap.high:
                        return found
                return None
        return None

    def _first_segment(self, heap: Heap, segment: int) -> Optional[int]:
        """Of the block that a segment is of."""
        with suppress(OSError):
            for _ in range(_HOPS_MAX):
                first = max(0, segment - _HOP_BYTES + 1)
                told = self._memory.read(heap.segments + first, segment - first + 1)
                while segment >= first:
                    back = told[segment - first]
                    if back == _FREE or back > segment:
                        return None
                    if not back:
                        return segment
                    segment -= back
        return None

    def _is_still(self, blob: Blob) -> bool:
        with suppress(OSError):
            return self._read(blob.address) == blob
        return True

    def _read(self, address: int) -> Optional[Blob]:
        """None: the block is free, or holds no code.

        Raises:
            OSError: it cannot be read.
        """
        layout = self._layout
        raw = self._memory.read(address - layout.block_size, layout.block_size + self._bytes)
        return self._blob(address, raw[layout.block_size :]) if raw[layout.block_used] else None

    def _blob(self, address: int, raw: bytes) -> Optional[Blob]:
        layout = self._layout
        begin = _place(raw, address, layout.code_begin, layout.code_begin_offset)
        end = _place(raw, address, layout.code_end, layout.code_end_offset)
        size_bytes = _number(raw, layout.blob_bytes)
        frame_words = _number(raw, layout.blob_frame_words)
        is_sound = address < begin < end <= address + size_bytes
        if not is_sound or not 0 <= frame_words <= _FRAME_WORDS_MAX:
            return None
        kind = self._name(_word(raw, layout.blob_name))
        is_method = kind in NMETHODS
        told = layout.deoptimized, layout.deoptimized_offset
        return Blob(
            address,
            kind,
            begin,
            end,
            8 * frame_words,
            int(_SHORT.unpack_from(raw, layout.blob_frame_complete)[0]),
            _word(raw, layout.method) if is_method else 0,
            _number(raw, layout.compile_id) if is_method else 0,
            _place(raw, address, *told) if is_method else 0,
            _number(raw, layout.original_pc) if is_method else 0,
        )

    def _name(self, address: int) -> bytes:
        if address not in self._names:
            if len(self._names) >= BLOBS_MAX:
                self._names.clear()
            self._names[address] = text_at(self._memory, address)
        return self._names[address]

    def _known_heaps(self) -> List[Heap]:
        """There are none before the virtual machine has made them."""
        if not self._heaps:
            with suppress(OSError):
                self._heaps = self._read_heaps()
        return self._heaps

    def _read_heaps(self) -> List[Heap]:
        layout, read = self._layout, self._memory.word
        if layout.heaps == NOT_TOLD:
            return [self._heap(read(layout.heap))]
        array = read(layout.heaps)
        count = self._memory.number(array + layout.array_length)
        if not 0 < count <= HEAPS_MAX:
            raise OSError("no heaps")
        items = read(array + layout.array_data)
        return [self._heap(read(items + 8 * number)) for number in range(count)]

    def _heap(self, address: int) -> Heap:
        layout, read = self._layout, self._memory.word
        memory = address + layout.heap_memory
        low, high = read(memory + layout.space_low), read(memory + layout.space_high)
        segments = read(address + layout.heap_segments + layout.space_low)
        place = address + layout.heap_segment_log2
        log2 = self._memory.number(place)
        if not 0 < high - low <= _HEAP_BYTES_MAX or not 0 <= log2 <= _SEGMENT_LOG2_MAX:
            raise OSError("no heap")
        return Heap(low, high, segments, log2)


def _word(raw: bytes, at: int) -> int:
    return int(_WORD.unpack_from(raw, at)[0])


def _number(raw: bytes, at: int) -> int:
    return int(_NUMBER.unpack_from(raw, at)[0])


def _place(raw: bytes, address: int, at: int, at_offset: int) -> int:
    """An address that is told, or how far it is from `address`; 0: neither is told."""
    if at != NOT_TOLD:
        return _word(raw, at)
    return address + _number(raw, at_offset) if at_offset != NOT_TOLD else 0
