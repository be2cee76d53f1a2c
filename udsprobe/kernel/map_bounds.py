"""How many entries the maps may have, from the host's limits."""

from __future__ import annotations

import os
from pathlib import Path

FILE_MAX = Path("/proc/sys/fs/file-max")
FILE_NR = Path("/proc/sys/fs/file-nr")
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


def bounded_power(wanted: int) -> int:
    """The largest power of two that is not above `wanted`, within the bounds of the map."""
    return max(CONNECTIONS_MIN, min(CONNECTIONS_MAX, 1 << max(0, wanted.bit_length() - 1)))


def _number(path: Path, otherwise: int) -> int:
    """The first number of the file."""
    try:
        return int(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return otherwise
