"""A BPF ring buffer as its reader meets it: pages of positions, then the records, twice."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from typing import Iterator, List

import pytest

from udsprobe.kernel.stacks.ring import Ring

SIZE_BYTES = 1 << 20
BUSY, DISCARD = 1 << 31, 1 << 30


class Buffer:
    """A file with the layout of `bpf_ringbuf_map_mmap`, which both its copies are written to.

    Args:
        at: the position at which the first record begins.
    """

    def __init__(self, at: int = 0) -> None:
        self.descriptor = os.memfd_create("ring")
        os.truncate(self.descriptor, 2 * mmap.PAGESIZE + 2 * SIZE_BYTES)
        self._pages = mmap.mmap(self.descriptor, 0)
        self.produced = at
        self._tell(0, at)
        self._tell(mmap.PAGESIZE, at)

    def _tell(self, place: int, position: int) -> None:
        os.pwrite(self.descriptor, struct.pack("<Q", position), place)

    def put(self, content: bytes, flags: int = 0) -> None:
        """One more record."""
        header = struct.pack("<II", len(content) | flags, 0)
        padded = header + content.ljust((len(content) + 7) // 8 * 8, b"\0")
        for number, byte in enumerate(padded, self.produced):
            for copy in (0, SIZE_BYTES):
                place = 2 * mmap.PAGESIZE + copy + number % SIZE_BYTES
                self._pages[place] = byte
        self.produced += len(padded)
        self._tell(mmap.PAGESIZE, self.produced)

    def consumed(self) -> int:
        """How far the reader says that it is."""
        position: int = struct.unpack("<Q", os.pread(self.descriptor, 8, 0))[0]
        return position


@pytest.fixture
def buffer() -> Iterator[Buffer]:
    made = Buffer()
    yield made
    os.close(made.descriptor)


def read(buffer: Buffer) -> List[bytes]:
    """All that is there now."""
    found: List[bytes] = []
    ring = Ring(buffer.descriptor, SIZE_BYTES)
    ring.read(lambda address, size: found.append(_content(address, size)))
    ring.close()
    ring.close()
    return found


def _content(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)


def test_records_come_in_order_and_make_room(buffer: Buffer) -> None:
    for content in (b"first", b"", b"third one"):
        buffer.put(content)
    assert read(buffer) == [b"first", b"", b"third one"]
    assert buffer.consumed() == buffer.produced
    assert read(buffer) == []


def test_what_is_discarded_is_no_record_and_what_is_not_complete_stays(buffer: Buffer) -> None:
    buffer.put(b"one")
    buffer.put(b"given up", DISCARD)
    buffer.put(b"two")
    complete = buffer.produced
    buffer.put(b"being written", BUSY)
    buffer.put(b"behind it")
    assert read(buffer) == [b"one", b"two"]
    assert buffer.consumed() == complete
    assert read(buffer) == []


def test_more_than_is_mapped_at_once(buffer: Buffer) -> None:
    contents = [bytes([number]) * 30_001 for number in range(12)]
    for content in contents:
        buffer.put(content)
    assert read(buffer) == contents


@pytest.mark.parametrize("before_end", [8, 16, 4096, 20_000])
def test_a_record_that_goes_on_at_the_beginning(before_end: int) -> None:
    buffer = Buffer(5 * SIZE_BYTES - before_end)
    contents = [b"a" * 9000, b"b" * 9000, b"c"]
    for content in contents:
        buffer.put(content)
    assert read(buffer) == contents
    assert buffer.consumed() == buffer.produced
    os.close(buffer.descriptor)


def test_what_is_no_ring_cannot_be_mapped() -> None:
    reading, writing = os.pipe()
    with pytest.raises(OSError, match="Permission denied"):
        Ring(reading, SIZE_BYTES)
    os.close(reading)
    os.close(writing)
