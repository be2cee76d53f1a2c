"""How many entries the maps may have, from the host's limits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List

FILE_MAX = Path("/proc/sys/fs/file-max")
FILE_NR = Path("/proc/sys/fs/file-nr")
LOADAVG = Path("/proc/loadavg")
THREADS_MAX = Path("/proc/sys/kernel/threads-max")
# 400 bytes each, all allocated at load.
THREADS_USUAL = 8192
# 4.6 KB each, all allocated at load.
JOURNALS_USUAL = 1024
# An entry of `connections` with its key and the allocator's rounding.
CONNECTION_BYTES = 512
# Of the host's memory, were the map ever full; its buckets are allocated at once, 16 bytes each.
SHARE_OF_MEMORY = 32
CONNECTIONS_MIN, CONNECTIONS_MAX = 8192, 1 << 19
# A listing walks through all buckets, used or not: half a million take 6 ms of every sample.
CONNECTIONS_USUAL, GROWTH = 1 << 17, 4
# Where the whole map is allocated at load.
CONNECTIONS_PREALLOCATED = 65536


def connections_max(allocates_late: bool) -> int:
    """How many connections are followed at once; more are turned away and counted.

    Args:
        allocates_late: an entry takes memory when a connection comes, and not at load.

    Returns:
        A power of two: 131,072, or what four times the files open now would need; no more than
        a 32nd of the host's memory holds, nor than it can have open files.
    """
    if not allocates_late:
        return CONNECTIONS_PREALLOCATED
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    expected = max(CONNECTIONS_USUAL, GROWTH * _number(FILE_NR, 0))
    held = memory // SHARE_OF_MEMORY // CONNECTION_BYTES
    return bounded_power(min(expected, held, _number(FILE_MAX, CONNECTIONS_MAX)))


def threads_max() -> int:
    """How many threads can be targets at once; more are turned away and counted.

    Returns:
        8,192 and four times the threads of the host now; no more than it can have.
    """
    running = _words(LOADAVG)[3:4]
    threads = int(running[0].partition("/")[2]) if running else 0
    return min(THREADS_USUAL + GROWTH * threads, _number(THREADS_MAX, 1 << 22))


def journals_max() -> int:
    """How many threads' last calls are kept at once; of requests of others, none are known."""
    return min(threads_max(), JOURNALS_USUAL) + 1


def bounded_power(wanted: int) -> int:
    """The largest power of two that is not above `wanted`, within the bounds of the map."""
    return max(CONNECTIONS_MIN, min(CONNECTIONS_MAX, 1 << max(0, wanted.bit_length() - 1)))


def _number(path: Path, otherwise: int) -> int:
    """The first number of the file."""
    words = _words(path)
    return int(words[0]) if words and words[0].isdigit() else otherwise


def _words(path: Path) -> List[str]:
    """None where the file cannot be read."""
    try:
        return path.read_text().split()
    except (OSError, UnicodeDecodeError):
        return []
