"""Maps that the kernel half shares through mmap: reading costs no system call."""

from __future__ import annotations

import ctypes
import mmap
import struct
from contextlib import contextmanager
from functools import cache, reduce
from operator import add
from typing import Callable, Dict, Iterable, Iterator, List, Sequence, Tuple, Type, Union

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


def words_of_raw(raw: Union[bytes, memoryview]) -> Row:
    """A structure of 64-bit words, or a part of one."""
    return list(struct.unpack(f"<{len(raw) // WORD_BYTES}Q", raw))


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
        self._layout = layout
        mapped = loaded.mapped(name, whole_pages(self._size * entries))
        self._bytes = memoryview(mapped)

    def raw(self, index: int) -> bytes:
        """One entry, as it is now."""
        return bytes(self._bytes[index * self._size : (index + 1) * self._size])

    def some(self, index: int, place: slice) -> Row:
        """Some words of an entry, as they are now."""
        begin, end = (index * self._size + at * WORD_BYTES for at in (place.start, place.stop))
        return words_of_raw(self._bytes[begin:end])

    def word(self, index: int, at: int) -> int:
        """One word of an entry, as it is now."""
        begin = index * self._size + at * WORD_BYTES
        return int.from_bytes(self._bytes[begin : begin + WORD_BYTES], "little")

    def place(self, *path: str) -> slice:
        """Where the words of a member are in a row, nested members by path."""
        return words_at(self._layout, *path)


class ArrayAtTimes:
    """The same, large, and mapped only while it is read: all pages that are mapped are resident.

    Args:
        entries: how many it was loaded with.
        size_bytes: of one.
    """

    def __init__(self, loaded: ProbeObject, name: str, entries: int, size_bytes: int) -> None:
        self._loaded, self._name = loaded, name
        self._size, self._whole = size_bytes, whole_pages(size_bytes * entries)

    @contextmanager
    def reading(self) -> Iterator[Callable[[int], bytes]]:
        """One entry by its index, as it is now."""
        with self._loaded.mapped_for_now(self._name, self._whole) as mapped:
            yield lambda index: mapped[index * self._size : (index + 1) * self._size]


class AddedUp:
    """Entries of an array at one moment, added up word by word where it is asked for.

    A part that is as it was when it was asked for the last time is the same object.

    Args:
        entries: their indices.
        maxima_at: the words that are maxima and not sums.
    """

    def __init__(
        self, array: SharedArray, entries: Sequence[int], maxima_at: Sequence[int]
    ) -> None:
        self._array = array
        self._entries = entries
        self._maxima_at = maxima_at
        self._now: List[bytes] = []
        self._known: Dict[Tuple[int, int], Tuple[List[bytes], Row]] = {}

    def take(self) -> None:
        """All of them as they are now: parts are of this moment until the next call."""
        self._now = [self._array.raw(entry) for entry in self._entries]

    def part(self, place: slice) -> Row:
        """Some words."""
        kind = place.start, place.stop
        raws = [raw[kind[0] * WORD_BYTES : kind[1] * WORD_BYTES] for raw in self._now]
        known = self._known.get(kind)
        if known is None or known[0] != raws:
            maxima_at = [at - kind[0] for at in self._maxima_at if kind[0] <= at < kind[1]]
            known = self._known[kind] = raws, combined(map(words_of_raw, raws), maxima_at)
        return known[1]


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
