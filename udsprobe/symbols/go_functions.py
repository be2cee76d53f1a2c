"""Functions of a Go program from the table that its runtime needs: stripping leaves it in.

Source: Go's src/runtime/symtab.go (pcHeader, functab) and src/internal/abi/symtab.go, as of Go 1.18
and 1.20: two numbers for one layout. Older tables are not read.
"""

from __future__ import annotations

import re
import struct
from typing import Iterator, NamedTuple, Optional

from udsprobe.symbols.elf_file import ElfFile
from udsprobe.symbols.function_table import Function

TABLE_BYTES_MAX = 256 << 20
NAME_BYTES_MAX, NAMES_BYTES_MAX = 4096, 64 << 20
FUNCTIONS_MAX = 1 << 20
"""The largest programs have a quarter of that."""

_SECTIONS = (b".gopclntab", b".data.rel.ro.gopclntab")
_MAGICS = (0xFFFFFFF0, 0xFFFFFFF1)
_HEADER = struct.Struct("<IHBB8Q")
_ENTRY, _NAME = struct.Struct("<II"), struct.Struct("<4xi")
_POINTER_BYTES = 8
# Where a program starts that no C library starts.
_START = re.compile(rb"_rt0_[a-z0-9]+_linux")


class _Table(NamedTuple):
    """A whole section. `text`: where the program starts by its word; 0: it does not say."""

    raw: bytes
    functions: int
    text: int
    names: int
    entries: int


class _Named(NamedTuple):
    """`begin` and `end` count from the start of the program's code."""

    begin: int
    end: int
    name: bytes


def go_functions(elf: ElfFile) -> Iterator[Function]:
    """None where it is no Go program, or where its code begins cannot be proved."""
    try:
        table = _table(elf)
        base = None if table is None else _base(elf, table)
    except (struct.error, ValueError):
        return
    if table is not None and base is not None:
        for each in _named(table):
            yield Function(base + each.begin, each.end - each.begin, each.name)


def _table(elf: ElfFile) -> Optional[_Table]:
    sections = (elf.section(name) for name in _SECTIONS)
    section = next((each for each in sections if each is not None), None)
    if section is None or not section.is_raw or section.size_bytes > TABLE_BYTES_MAX:
        return None
    raw = elf.data(section)
    magic, _, _, pointer, count, _, text, names, _, _, _, entries = _HEADER.unpack_from(raw)
    if magic not in _MAGICS or pointer != _POINTER_BYTES:
        return None
    if count > FUNCTIONS_MAX or max(names, entries + _ENTRY.size * count) > len(raw):
        return None
    return _Table(raw, count, text, names, entries)


def _named(table: _Table) -> Iterator[_Named]:
    """In the order of their addresses; each ends where the next one begins.

    Raises:
        struct.error, ValueError: it is damaged.
    """
    raw, size = table.raw, _ENTRY.size
    (last,) = struct.unpack_from("<I", raw, table.entries + size * table.functions)
    left_bytes = NAMES_BYTES_MAX
    for number in range(table.functions):
        begin, place = _ENTRY.unpack_from(raw, table.entries + size * number)
        end = last
        if number + 1 < table.functions:
            end, _ = _ENTRY.unpack_from(raw, table.entries + size * (number + 1))
        (name,) = _NAME.unpack_from(raw, table.entries + place)
        start = table.names + name
        stop = raw.find(b"\0", start, start + NAME_BYTES_MAX)
        left_bytes -= stop - start
        if name < 0 or stop <= start or end < begin or left_bytes < 0:
            raise ValueError("no table of functions")
        yield _Named(begin, end, raw[start:stop])


def _base(elf: ElfFile, table: _Table) -> Optional[int]:
    """Where the code begins: it must agree with the file, or else all names would be wrong.

    The entry point is Go's own where no C library starts the program. Since Go 1.26 the table
    does not say where the code begins (and in a PIE it did not before).
    """
    starts, first, last = [], None, 0
    for each in _named(table):
        first = each.begin if first is None else first
        last = each.end
        if _START.fullmatch(each.name):
            starts.append(each.begin)
    likely = [elf.entry - begin for begin in starts]
    agreed = [base for base in likely if table.text in (0, base)]
    for base in (*agreed, table.text):
        if base > 0 and first is not None and _is_code(elf, base + first, base + last):
            return base
    return None


def _is_code(elf: ElfFile, begin: int, end: int) -> bool:
    return any(
        each.is_executable and each.address <= begin and end <= each.address + each.size_bytes
        for each in elf.segments
    )
