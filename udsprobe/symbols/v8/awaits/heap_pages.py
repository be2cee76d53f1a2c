"""Where V8 may keep objects, and how they are found there by their type."""

from __future__ import annotations

import re
from typing import Iterator, List, NamedTuple, Sequence, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory

HEAP_BYTES_MAX = 256 << 20
"""Of a process with more, nothing is searched for: a MB takes 1.5 ms."""

PAGE_BYTES = 1 << 18
"""Where V8's pages begin: src/common/globals.h, `kPageSizeBits`."""

_WORD_BYTES = 8
# Of addresses here, these are never 0 in all objects; a pattern without the zeros is found sooner.
_ADDRESS_BYTES = 6
_WRITABLE = re.compile(rb"^(\w+)-(\w+) rw-p \S+ \S+ 0\s*(?:\[anon:.*\])?$", re.MULTILINE)


class Pages(NamedTuple):
    """Memory of a process that may hold pages of V8, one behind the other."""

    start: int
    end: int


def heap_pages(maps: bytes) -> List[Pages]:
    """Of a process's `/proc/PID/maps`; none where they are more than `HEAP_BYTES_MAX`."""
    told = ((int(start, 16), int(end, 16)) for start, end in _WRITABLE.findall(maps))
    found = [Pages(start, end) for start, end in told if not start % PAGE_BYTES]
    total_bytes = sum(each.end - each.start for each in found)
    return found if total_bytes <= HEAP_BYTES_MAX else []


def chunks(pages: Sequence[Pages], memory: ProcessMemory) -> Iterator[Tuple[int, bytes]]:
    """What they hold now, with where it is; what cannot be read is left out."""
    for each in pages:
        for at in range(each.start, each.end, PAGE_BYTES):
            try:
                yield at, memory.read(at, min(PAGE_BYTES, each.end - at))
            except OSError:
                continue


def objects_with(first: int, size_bytes: int, chunk: bytes) -> Iterator[int]:
    """Offsets in a chunk of what begins with this word, and is in it in whole."""
    pattern = first.to_bytes(_WORD_BYTES, "little")
    searched, rest = pattern[:_ADDRESS_BYTES], pattern[_ADDRESS_BYTES:]
    at = chunk.find(searched)
    while 0 <= at <= len(chunk) - size_bytes:
        if at % _WORD_BYTES == 0 and chunk.startswith(rest, at + _ADDRESS_BYTES):
            yield at
        at = chunk.find(searched, at + _ADDRESS_BYTES)


def words_with(bits: bytes, inside: int, chunk: bytes) -> Iterator[int]:
    """Offsets in a chunk of words that hold these bytes at a place."""
    at = chunk.find(bits)
    while at >= 0:
        if at % _WORD_BYTES == inside:
            yield at - inside
        at = chunk.find(bits, at + 1)
