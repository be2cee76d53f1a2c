"""The executable memory of a process, by /proc/PID/maps."""

from __future__ import annotations

from bisect import bisect_right
from typing import List, NamedTuple, Optional, Sequence

MAPPINGS_MAX = 65_530
"""vm.max_map_count of the kernel, as it comes."""


class Mapping(NamedTuple):
    """One of them.

    Attributes:
        offset: of `start` in the file, in bytes.
        device: as in the file, `fe:01`. inode: 0 where no file is mapped.
        path: as the kernel prints it: of the file in the process's mount namespace, `[vdso]`,
            or nothing.
    """

    start: int
    end: int
    offset: int
    device: str
    inode: int
    path: bytes

    @property
    def is_file(self) -> bool:
        """A file is mapped, not only memory."""
        return self.inode != 0

    @property
    def name(self) -> bytes:
        """The last part of `path`."""
        return self.path.rpartition(b"/")[2]


def mappings(text: bytes) -> List[Mapping]:
    """The executable ones, in the order of their addresses; lines that are none are passed over."""
    found = []
    for line in text.split(b"\n", MAPPINGS_MAX)[:MAPPINGS_MAX]:
        fields = line.split(None, 5)
        if len(fields) < 5 or b"x" not in fields[1]:
            continue
        start, _, end = fields[0].partition(b"-")
        path = fields[5] if len(fields) > 5 else b""
        try:
            numbers = int(start, 16), int(end, 16), int(fields[2], 16), int(fields[4])
        except ValueError:
            continue
        found.append(Mapping(*numbers[:3], fields[3].decode("ascii", "replace"), numbers[3], path))
    return sorted(found)


class AddressSpace:
    """Which mapping an address lies in."""

    def __init__(self, found: Sequence[Mapping]) -> None:
        self._mappings = found
        self._starts = [each.start for each in found]

    def at(self, address: int) -> Optional[Mapping]:
        """None where nothing executable is."""
        place = bisect_right(self._starts, address) - 1
        if place < 0 or address >= self._mappings[place].end:
            return None
        return self._mappings[place]
