"""Numbers as HotSpot compresses them, src/hotspot/share/utilities/unsigned5.hpp."""

from __future__ import annotations

from typing import Iterator

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.java.layouts import NOT_TOLD, Layout

# A byte below this ends a number, and so does the fifth.
_MORE, _BYTES_MAX = 192, 5
_WITHOUT_NUL = 20


def compressed(raw: bytes, skipped: int) -> Iterator[int]:
    """All that are whole: six bits of a number in each of its first bytes, the lowest first.

    Args:
        skipped: as of `skipped_of`.
    """
    value = size = 0
    for byte in raw:
        value += (byte - skipped) << (6 * size)
        size += 1
        if byte < _MORE or size == _BYTES_MAX:
            yield value
            value = size = 0


def skipped_of(layout: Layout, memory: ProcessMemory) -> int:
    """How much a byte is above what it means: 1 since JDK 20, where none is 0.

    Raises:
        OSError: the process's memory cannot be read.
    """
    if layout.heaps == NOT_TOLD:
        return 0  # JDK 8, whose HotSpot is of version 25
    major = memory.number(layout.major)
    return int(major >= _WITHOUT_NUL)
