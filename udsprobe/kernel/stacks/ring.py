"""A BPF ring buffer (BPF_MAP_TYPE_RINGBUF), of which only what is read just now is mapped."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import contextmanager
from typing import Callable, Iterator

# include/uapi/linux/bpf.h
_BUSY, _DISCARD, _HEADER_BYTES = 1 << 31, 1 << 30, 8
_WINDOW_BYTES = 256 << 10
"""More than one record has."""

Take = Callable[[int, int], object]
_number, _size = ctypes.c_int, ctypes.c_size_t
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, _size, _number, _number, _number, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, _size]


class Ring:
    """Its records, in the order in which they were begun.

    libbpf maps all of it, twice in a row, and both count as resident: 8 MB of one of 4 MB.

    Args:
        descriptor: of the map, which stays the caller's and open.
        size_bytes: of its records: a power of two.

    Raises:
        OSError: it cannot be mapped.
    """

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self._descriptor, self._size_bytes = descriptor, size_bytes
        writable = mmap.PROT_READ | mmap.PROT_WRITE
        pages = [(0, writable), (mmap.PAGESIZE, mmap.PROT_READ)]
        self._pages = [_mapped(descriptor, at, mmap.PAGESIZE, access) for at, access in pages]
        self._consumed, self._produced = map(ctypes.c_uint64.from_address, self._pages)

    def read(self, take: Take) -> None:
        """Hand over what is there, by address and size in bytes, and make room for more.

        The address is good until `take` returns. Positions are read and written with a system
        call between them and the records, so that no CPU does it in another order.

        Raises:
            OSError: it cannot be mapped now; what was not handed over stays.
        """
        while (at := self._consumed.value) < (end := self._produced.value):
            after = self._read(at, min(end - at, _WINDOW_BYTES), take)
            if after == at:
                return
            self._consumed.value = after

    def close(self) -> None:
        """Give it back. May be called twice."""
        pages, self._pages = self._pages, []
        for address in pages:
            _libc.munmap(address, mmap.PAGESIZE)

    def _read(self, position: int, size_bytes: int, take: Take) -> int:
        """Whole records of a part; the position behind the last one that is complete."""
        with self._part(position % self._size_bytes, size_bytes) as begin:
            at = begin
            while at + _HEADER_BYTES <= begin + size_bytes:
                header = ctypes.c_uint32.from_address(at).value
                record_bytes = header & ~(_BUSY | _DISCARD)
                behind = at + _HEADER_BYTES + (record_bytes + 7) // 8 * 8
                if header & _BUSY or behind > begin + size_bytes:
                    break
                if not header & _DISCARD:
                    take(at + _HEADER_BYTES, record_bytes)
                at = behind
            return position + at - begin

    @contextmanager
    def _part(self, offset: int, size_bytes: int) -> Iterator[int]:
        # Behind the positions the kernel has the records twice: none is in two pieces.
        inside = offset % mmap.PAGESIZE
        at, whole_bytes = 2 * mmap.PAGESIZE + offset - inside, inside + size_bytes
        address = _mapped(self._descriptor, at, whole_bytes, mmap.PROT_READ)
        try:
            yield address + inside
        finally:
            _libc.munmap(address, whole_bytes)


def _mapped(descriptor: int, offset: int, size_bytes: int, access: int) -> int:
    # Python's own mmap tells no address of what cannot be written to.
    found: int = _libc.mmap(None, size_bytes, access, mmap.MAP_SHARED, descriptor, offset)
    if found == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found
