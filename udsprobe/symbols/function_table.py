"""Addresses → names of functions: sorted, looked up by bisection, in little memory."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Iterable, Iterator, NamedTuple, Optional, Tuple


class Function(NamedTuple):
    """`size_bytes` 0: not known, it reaches to the next one."""

    start: int
    size_bytes: int
    name: bytes


class FunctionTable:
    """Functions that do not overlap; where they do, the one that begins last has it."""

    def __init__(self, functions: Iterable[Function]) -> None:
        starts, sizes, ends = array("Q"), array("Q"), array("Q", [0])
        names = bytearray()
        for each in functions:
            starts.append(each.start)
            sizes.append(each.size_bytes)
            names += each.name
            ends.append(len(names))
        self._names, self._ends = bytes(names), ends

        self._order = array("I", sorted(range(len(starts)), key=starts.__getitem__))
        self._starts = array("Q", (starts[number] for number in self._order))
        self._sizes = array("Q", (sizes[number] for number in self._order))

    def __len__(self) -> int:
        return len(self._starts)

    def at(self, address: int) -> Optional[Function]:
        """None between functions: the one before is not named for what it does not hold."""
        place = bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        found = [self._function(each) for each in self._at_one_place(place)]
        best = max(found, key=_how_known)
        size_bytes = best.size_bytes or max(each.size_bytes for each in found)
        return None if size_bytes and address >= best.start + size_bytes else best

    def _at_one_place(self, last: int) -> Iterator[int]:
        start = self._starts[last]
        while last >= 0 and self._starts[last] == start:
            yield last
            last -= 1

    def _function(self, place: int) -> Function:
        number = self._order[place]
        name = self._names[self._ends[number] : self._ends[number + 1]]
        return Function(self._starts[place], self._sizes[place], name)


def _how_known(function: Function) -> Tuple[int, int, bytes]:
    """Of several names of one place, the one that people know: what is exported, plainly named."""
    return -function.name.count(b"_", 0, 2), -len(function.name), function.name
