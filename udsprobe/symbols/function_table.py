"""Addresses → names of functions: sorted, looked up by bisection, in little memory.

Names are compressed, neighbours together: those of Node take 1 MB instead of 8. Most are never
asked for.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

_NAMES_OF_A_BLOCK, _BLOCKS_OPEN_MAX = 128, 8
_FAST = 1


class Function(NamedTuple):
    """`size_bytes` 0: not known, it reaches to the next one."""

    start: int
    size_bytes: int
    name: bytes


class FunctionTable:
    """Functions that do not overlap; where they do, the one that begins last has it.

    A name ends at a NUL that is in it.
    """

    def __init__(self, functions: Iterable[Function]) -> None:
        starts, sizes, names = array("Q"), array("Q"), _Names()
        for each in functions:
            starts.append(each.start)
            sizes.append(each.size_bytes)
            names.append(each.name)
        order = array("I", sorted(range(len(starts)), key=starts.__getitem__))
        self._base = starts[order[0]] if order else 0
        self._starts = _packed([starts[number] - self._base for number in order])
        self._sizes = _packed([sizes[number] for number in order])
        self._blocks = list(_compressed(names, order))
        self._open: Dict[int, List[bytes]] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def at(self, address: int) -> Optional[Function]:
        """None between functions: the one before is not named for what it does not hold."""
        place = bisect_right(self._starts, address - self._base) - 1
        if place < 0:
            return None
        found = [self._function(each) for each in self._at_one_place(place)]
        best = max(found, key=_how_known)
        size_bytes = best.size_bytes or max(each.size_bytes for each in found)
        return None if size_bytes and address >= best.start + size_bytes else best

    def named(self, name: bytes) -> Optional[Function]:
        """The first of that name: it goes through all, and keeps none of them."""
        for number, block in enumerate(self._blocks):
            names = zlib.decompress(block).split(b"\0")
            if name in names:
                return self._function(number * _NAMES_OF_A_BLOCK + names.index(name))
        return None

    def _at_one_place(self, last: int) -> Iterator[int]:
        start = self._starts[last]
        while last >= 0 and self._starts[last] == start:
            yield last
            last -= 1

    def _function(self, place: int) -> Function:
        block, inside = divmod(place, _NAMES_OF_A_BLOCK)
        start, size_bytes = self._base + self._starts[place], self._sizes[place]
        return Function(start, size_bytes, self._names(block)[inside])

    def _names(self, block: int) -> List[bytes]:
        if block not in self._open:
            if len(self._open) >= _BLOCKS_OPEN_MAX:
                self._open.clear()
            self._open[block] = zlib.decompress(self._blocks[block]).split(b"\0")
        return self._open[block]


class _Names:
    """One after the other, until all are there."""

    def __init__(self) -> None:
        self._bytes, self._ends = bytearray(), array("Q", [0])

    def append(self, name: bytes) -> None:
        self._bytes += name.partition(b"\0")[0]
        self._ends.append(len(self._bytes))

    def __getitem__(self, number: int) -> bytes:
        return bytes(self._bytes[self._ends[number] : self._ends[number + 1]])


def _packed(numbers: Sequence[int]) -> Sequence[int]:
    kinds = (("B", 8), ("H", 16), ("I", 32))
    largest = max(numbers, default=0)
    return array(next((kind for kind, bits in kinds if not largest >> bits), "Q"), numbers)


def _compressed(names: _Names, order: Sequence[int]) -> Iterator[bytes]:
    for first in range(0, len(order), _NAMES_OF_A_BLOCK):
        numbers = order[first : first + _NAMES_OF_A_BLOCK]
        yield zlib.compress(b"\0".join(names[each] for each in numbers), _FAST)


def _how_known(function: Function) -> Tuple[int, int, bytes]:
    """Of several names of one place, the one that people know: what is exported, plainly named."""
    return -function.name.count(b"_", 0, 2), -len(function.name), function.name
