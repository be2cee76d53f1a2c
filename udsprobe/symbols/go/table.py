"""The table of a Go program that its runtime needs: stripping leaves it in.

Source: Go's src/runtime/symtab.go (pcHeader, functab, pcvalue), src/runtime/runtime2.go (_func) and
src/internal/abi/symtab.go, as of Go 1.18 and 1.20: two numbers for one layout. Older tables are not
read.
"""

from __future__ import annotations

import struct
from typing import Iterator, NamedTuple, Optional, Tuple

from udsprobe.symbols.elf_file import ElfFile
from udsprobe.symbols.varints import signed, varints

TABLE_BYTES_MAX = 256 << 20
NAME_BYTES_MAX, NAMES_BYTES_MAX = 4096, 64 << 20
FUNCTIONS_MAX = 1 << 20
"""The largest programs have a quarter of that."""

ENTRY = struct.Struct("<II")
"""In the list of functions: where one begins, and the place of what is told of it."""

FUNCTION_BYTES, STEPS_AT = 56, 16
"""Of what is told of a function, with its first three tables; in it, the place of the steps of its
stack pointer."""

FILES_AT, TABLES_AT, UNIT_AT = 20, 28, 32
"""In it, the places of the steps of its file, of how many tables it has, and of what its files
count from."""

INLINED = 2
"""Of its tables, the one of what is inlined where (PCDATA_InlTreeIndex); -1: nothing is."""

FLAGS_AT, FLAGS_BEHIND_LINE_AT, FIRST_LINE_AT = 37, 41, 36
"""In it, the place of its flags, by layout: since Go 1.20 its first line is before them."""

_FLAGS_AT = {0xFFFFFFF0: FLAGS_AT, 0xFFFFFFF1: FLAGS_BEHIND_LINE_AT}
_SECTIONS = (b".gopclntab", b".data.rel.ro.gopclntab")
FLAGS_AT, FLAGS_BEHIND_LINE_AT = 37, 41
"""In it, the place of its flags; of the second layout (Go 1.20), where its first line is before."""

_FLAGS_AT = {0xFFFFFFF0: FLAGS_AT, 0xFFFFFFF1: FLAGS_BEHIND_LINE_AT}
_HEADER = struct.Struct("<IHBB8Q")
_NAME, _NUMBER = struct.Struct("<4xi"), struct.Struct("<I")
_POINTER_BYTES = 8


class GoTable(NamedTuple):
    """A whole section.

    Attributes:
        raw: its bytes; offset: where they are in the file.
        instruction_bytes: of the shortest one; 1 on x86-64.
        text: where the program's code begins, by its word; 0: it does not say.
        functions: how many there are.
        names, steps, entries: places in it: of names, of steps, and of the list of functions.
        units, files: of the list of files by unit of compilation, and of their names.
        flags_at: of a function, the place of its flags.
    """

    raw: bytes
    offset: int
    instruction_bytes: int
    functions: int
    text: int
    names: int
    steps: int
    entries: int
    units: int
    files: int
    flags_at: int

    def entry(self, number: int) -> Tuple[int, int]:
        """Of a function: where it begins, from the begin of the code on, and its place.

        Raises:
            struct.error: there is none.
        """
        begin, place = ENTRY.unpack_from(self.raw, self.entries + ENTRY.size * number)
        return begin, place

    def end(self) -> int:
        """Where the last function ends; raises struct.error."""
        found = _NUMBER.unpack_from(self.raw, self.entries + ENTRY.size * self.functions)
        return int(found[0])


class Named(NamedTuple):
    """`begin` and `end` count from the begin of the program's code."""

    begin: int
    end: int
    name: bytes


def go_table(elf: ElfFile) -> Optional[GoTable]:
    """None where the file has none that can be read.

    Raises:
        struct.error: it is damaged.
    """
    sections = (elf.section(name) for name in _SECTIONS)
    section = next((each for each in sections if each is not None), None)
    if section is None or not section.is_raw or section.size_bytes > TABLE_BYTES_MAX:
        return None
    raw = elf.data(section)
    header = _HEADER.unpack_from(raw)
    magic, _, shortest, pointer, count, _, text, names, units, files, steps, entries = header
    if magic not in _FLAGS_AT or pointer != _POINTER_BYTES:
        return None
    ends = (names, units, files, steps, entries + ENTRY.size * count)
    if count > FUNCTIONS_MAX or max(ends) > len(raw):
        return None
    places = (count, text, names, steps, entries, units, files)
    return GoTable(raw, section.offset, shortest, *places, _FLAGS_AT[magic])


def named(table: GoTable) -> Iterator[Named]:
    """In the order of their addresses; each ends where the next one begins.

    Raises:
        struct.error, ValueError: it is damaged.
    """
    left_bytes = NAMES_BYTES_MAX
    for number in range(table.functions):
        begin, place = table.entry(number)
        is_last = number + 1 == table.functions
        end = table.end() if is_last else table.entry(number + 1)[0]
        (name,) = _NAME.unpack_from(table.raw, table.entries + place)
        start = table.names + name
        stop = table.raw.find(b"\0", start, start + NAME_BYTES_MAX)
        left_bytes -= stop - start
        if name < 0 or stop <= start or end < begin or left_bytes < 0:
            raise ValueError("no table of functions")
        yield Named(begin, end, table.raw[start:stop])


def steps(raw: bytes) -> Iterator[Tuple[int, int]]:
    """How far the stack pointer is from the return address, and up to which byte of a function.

    Or another number that changes within it.
    """
    found, end, left = -1, 0, varints(raw)
    for change in left:
        if change == 0 and end:
            return
        found += signed(change)
        end += next(left, 0)
        yield found, end
