"""Memory of udsprobe's own: what is asked for is resident once it is used, and not before."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

from udsprobe.kernel.objects.own_memory import give_back, keep_together, untouched

SIZE_BYTES = 4 << 20


def resident_bytes(address: int) -> int:
    """Of the mapping that has the address."""
    is_it = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            begin, end = (int(each, 16) for each in words[0].split("-"))
            is_it = begin <= address < end
        elif is_it and words[0] == "Rss:":
            return int(words[1]) << 10
    raise AssertionError("nothing is mapped there")


def test_a_buffer_takes_no_memory_until_it_is_written_to() -> None:
    buffer = untouched(SIZE_BYTES)
    before = resident_bytes(ctypes.addressof(buffer))
    ctypes.memset(ctypes.addressof(buffer) + mmap.PAGESIZE, 7, 1)
    assert resident_bytes(ctypes.addressof(buffer)) == before + mmap.PAGESIZE
    assert ctypes.sizeof(buffer) == len(memoryview(buffer)) == SIZE_BYTES
    assert bytes(memoryview(buffer)[mmap.PAGESIZE - 1 : mmap.PAGESIZE + 2]) == b"\0\7\0"


def test_the_allocator_may_be_told_at_any_time() -> None:
    keep_together()
    keep_together()
    give_back()
