"""How udsprobe's own memory is asked for and given back."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from typing import Any

# glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 128 << 10


def keep_together() -> None:
    """Before the first thread: all threads share one heap, and what is large has its own pages.

    By itself glibc gives each thread a heap, which is not handed back while anything in it is in
    use (6 MB after the modules were imported by one), and raises the size from which memory has
    its own pages up to 32 MB with what is freed. Other C libraries do neither.
    """
    with suppress(AttributeError):
        change = ctypes.CDLL(None).mallopt
        change(_ARENA_MAX, 1)
        change(_MMAP_THRESHOLD, _LARGE_BYTES)
        change(_TRIM_THRESHOLD, _LARGE_BYTES)


def give_back() -> None:
    """What lies between parts in use, too: reading symbols frees 20 MB there, which stay otherwise.

    Takes 0.1 ms, 1 ms where there is much (glibc's malloc_trim; other C libraries do it by
    themselves).
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def untouched(size_bytes: int) -> Any:
    """A buffer whose pages are resident once somebody has written to them, for ctypes."""
    pages = mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return (ctypes.c_char * size_bytes).from_buffer(pages)
