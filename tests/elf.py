"""Sections of a 64-bit little-endian ELF file."""

from __future__ import annotations

import struct
from typing import NamedTuple


class Section(NamedTuple):
    offset: int
    content: bytes


def section(elf: bytes, wanted: str) -> Section:
    """Where a section is, and what is in it. Raises KeyError."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names_at = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + size * at) for at in range(count)]
    names = headers[names_at][4]
    for name, _, _, _, offset, length in headers:
        start = names + name
        if elf[start : elf.index(b"\0", start)].decode() == wanted:
            return Section(offset, elf[offset : offset + length])
    raise KeyError(wanted)
