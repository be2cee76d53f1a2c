"""Maps that the kernel half shares through mmap: reading costs no system call."""

from __future__ import annotations

import ctypes
import mmap
import struct
from functools import cache, reduce
from operator import add
from typing import Dict, Iterable, List, Sequence, Tuple, Type

from udsprobe.kernel.objects.probe_object import ProbeObject

Row = List[int]
WORD_BYTES = 8


def combined(rows: Iterable[Row], maxima_at: Sequence[int]) -> Row:
    """Rows of several CPUs added up, word by word.

    Args:
        maxima_at: the words that are maxima and not sums.
    """
    kept = list(rows)
    if len(kept) == 1:
        return kept[0]
    # Each pair in C: a row has thousands of words.
    total = reduce(_sums, kept)
    for at in maxima_at:
        total[at] = max(row[at] for row in kept)
    return total


def _sums(some: Row, others: Row) -> Row:
    return list(map(add, some, others))


@cache
def words_at(layout: Type[ctypes.Structure], *path: str) -> slice:
    """Where the words of a member of a structure are, nested members by path."""
    within: type = layout
    start_bytes = 0
    for name in path:
        member = getattr(within, name)
        start_bytes += member.offset
        size_bytes = member.size
        types = {field[0]: field[1] for field in within._fields_}  # type: ignore[attr-defined]
        within = types[name]
    start = start_bytes // WORD_BYTES
    return slice(start, start + size_bytes // WORD_BYTES)


class SharedArray:
    """An mmap-able array map of structures of 64-bit words.

    Args:
        entries: how many it was loaded with.
        layout: the structure's ctypes twin.
    """

    def __init__(
        self, loaded: ProbeObject, name: str, entries: int, layout: Type[ctypes.Structure]
    ) -> None:
        self._size = ctypes.sizeof(layout)
        self._words = self._size // WORD_BYTES
        self._layout = layout
        mapped = loaded.mapped(name, whole_pages(self._size * entries))
        self._bytes = memoryview(mapped)
        self._decoded: Dict[int, Tuple[bytes, Row]] = {}

    def row(self, index: int) -> Row:
        """The words of one entry; decoded again only when they changed."""
        raw = bytes(self._bytes[index * self._size : (index + 1) * self._size])
        known = self._decoded.get(index)
        if known is None or known[0] != raw:
            known = (raw, list(struct.unpack(f"<{self._words}Q", raw)))
            self._decoded[index] = known
        return known[1]

    def some(self, index: int, place: slice) -> Row:
        """Some words of an entry, as they are now."""
        begin, end = (index * self._size + at * WORD_BYTES for at in (place.start, place.stop))
        return list(struct.unpack(f"<{place.stop - place.start}Q", self._bytes[begin:end]))

    def word(self, index: int, at: int) -> int:
        """One word of an entry, as it is now."""
        begin = index * self._size + at * WORD_BYTES
        return int.from_bytes(self._bytes[begin : begin + WORD_BYTES], "little")

    def place(self, *path: str) -> slice:
        """Where the words of a member are in a row, nested members by path."""
        return words_at(self._layout, *path)


class SharedGlobals:
    """The object's `.bss`: counters and flags of rare events."""

    def __init__(self, loaded: ProbeObject) -> None:
        self._places = loaded.btf.variables(".bss")
        size = max(place.offset_bytes + place.size_bytes for place in self._places.values())
        self._bytes: mmap.mmap = loaded.mapped(".bss", whole_pages(size), writable=True)

    def get(self, name: str) -> int:
        """A global of 4 or 8 bytes."""
        place = self._places[name]
        raw = self._bytes[place.offset_bytes : place.offset_bytes + place.size_bytes]
        return int.from_bytes(raw, "little")

    def set(self, name: str, value: int) -> None:
        """Write a global of 4 or 8 bytes."""
        place = self._places[name]
        raw = value.to_bytes(place.size_bytes, "little")
        self._bytes[place.offset_bytes : place.offset_bytes + place.size_bytes] = raw

    def set_word(self, name: str, index: int, value: int) -> None:
        """Write one word of a global array of 32-bit words."""
        struct.pack_into("<I", self._bytes, self._places[name].offset_bytes + 4 * index, value)

    def set_long_word(self, name: str, index: int, value: int) -> None:
        """Write one word of a global array of 64-bit words."""
        struct.pack_into("<Q", self._bytes, self._places[name].offset_bytes + 8 * index, value)

    def long_words(self, name: str) -> Tuple[int, ...]:
        """A global array of 64-bit words."""
        place = self._places[name]
        raw = self._bytes[place.offset_bytes : place.offset_bytes + place.size_bytes]
        return struct.unpack(f"<{len(raw) // 8}Q", raw)

    def words(self, name: str) -> Tuple[int, ...]:
        """A global array of 32-bit words."""
        place = self._places[name]
        raw = self._bytes[place.offset_bytes : place.offset_bytes + place.size_bytes]
        return struct.unpack(f"<{len(raw) // 4}I", raw)


def whole_pages(size_bytes: int) -> int:
    """As much as so many bytes of a map are mapped in."""
    return -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
