"""Where a Go program tells what is inlined where: beside its table, at no place that is written.

Its runtime's list of modules has it (`gofunc` of `moduledata`, Go's src/runtime/symtab.go), in a
place that differs between versions: what is likely must agree with the table.
"""

from __future__ import annotations

import struct
from typing import Iterator, NamedTuple, Optional

from udsprobe.symbols.elf_file import ElfFile, Segment
from udsprobe.symbols.go.table import (
    FLAGS_BEHIND_LINE_AT,
    INLINED,
    TABLES_AT,
    GoTable,
    steps,
)

CALL = struct.Struct("<B3siii")
"""Of a call that is inlined (Go 1.20): kind, nothing, name, place in the caller, first line."""

TREE = 3
"""Of a function's data, the one with its inlined calls (FUNCDATA_InlTree)."""

TREES_AT = 43
"""In what is told of a function, how much data it has; its tables, then that, are behind it."""

TOLD_BYTES_MAX = 1024
"""Of what is told of a function, with all its tables and data."""

SEARCHED_BYTES_MAX = 64 << 20
_WORD, _NUMBER = struct.Struct("<Q"), struct.Struct("<I")
# Of a list of modules: behind the six tables, and before what programs with plugins have.
_WORDS = range(30, 56)
_PROOFS, _PROOFS_MIN, _STEPS_BYTES = 64, 8, 1 << 12
_NONE = 0xFFFFFFFF


class InlineData(NamedTuple):
    """`begin` and `end` in bytes of the file."""

    begin: int
    end: int


class _Proof(NamedTuple):
    """So many inlined calls are told from there on; each begins within so many bytes."""

    offset: int
    calls: int
    size_bytes: int


def inline_data(elf: ElfFile, table: GoTable) -> Optional[InlineData]:
    """None where it cannot be proved, or the program is older than Go 1.20.

    Raises:
        struct.error: the table is damaged.
    """
    if table.flags_at != FLAGS_BEHIND_LINE_AT:
        return None
    proofs = list(_proofs(table))
    if len(proofs) < _PROOFS_MIN:
        return None
    for each in _likely(elf, table):
        if all(_agrees(elf, table, each, proof) for proof in proofs):
            return each
    return None


def _likely(elf: ElfFile, table: GoTable) -> Iterator[InlineData]:
    for at in _modules(elf, table):
        for word in _WORDS:
            found = at[word * _WORD.size : (word + 1) * _WORD.size]
            place = _in_file(elf, _WORD.unpack(found)[0]) if len(found) == _WORD.size else None
            if place is not None:
                yield place


def _modules(elf: ElfFile, table: GoTable) -> Iterator[bytes]:
    """What is behind each word of the program's data that is the address of the table."""
    inside = (each for each in elf.segments if 0 <= table.offset - each.offset < each.size_bytes)
    of_table = next(inside, None)
    if of_table is None:
        return
    word = _WORD.pack(of_table.address + table.offset - of_table.offset)
    for each in elf.segments:
        if not each.is_writable or each.size_bytes > SEARCHED_BYTES_MAX:
            continue
        raw = elf.part(each.offset, each.size_bytes)
        at = raw.find(word)
        while at >= 0:
            yield raw[at : at + _WORD.size * _WORDS.stop]
            at = raw.find(word, at + 1)


def _in_file(elf: ElfFile, address: int) -> Optional[InlineData]:
    def holds(each: Segment) -> bool:
        return each.address <= address < each.address + each.size_bytes

    found = next(filter(holds, elf.segments), None)
    if found is None:
        return None
    end = found.offset + found.size_bytes
    return InlineData(found.offset + address - found.address, end)


def _proofs(table: GoTable) -> Iterator[_Proof]:
    """Of functions all over the program."""
    left = _PROOFS
    for number in range(0, table.functions - 1, max(1, table.functions // (16 * _PROOFS))):
        begin, place = table.entry(number)
        at = table.entries + place
        told = table.raw[at : at + TOLD_BYTES_MAX]
        calls, offset = _calls(table, told), tree_of(told)
        if calls and offset is not None and left:
            left -= 1
            yield _Proof(offset, calls, table.entry(number + 1)[0] - begin)


def _calls(table: GoTable, told: bytes) -> int:
    """How many are inlined in it."""
    if _NUMBER.unpack_from(told, TABLES_AT)[0] <= INLINED:
        return 0
    (place,) = _NUMBER.unpack_from(told, TREES_AT + 1 + _NUMBER.size * INLINED)
    at = table.steps + place
    raw = table.raw[at : at + _STEPS_BYTES]
    return 1 + max((number for number, _ in steps(raw)), default=-1) if place else 0


def tree_of(told: bytes) -> Optional[int]:
    """Where the inlined calls of a function are, behind `InlineData.begin`; None: it has none.

    Raises:
        struct.error: it is cut off.
    """
    (tables,) = _NUMBER.unpack_from(told, TABLES_AT)
    if told[TREES_AT] <= TREE:
        return None
    (found,) = _NUMBER.unpack_from(told, TREES_AT + 1 + _NUMBER.size * (tables + TREE))
    return None if found == _NONE else int(found)


def _agrees(elf: ElfFile, table: GoTable, data: InlineData, proof: _Proof) -> bool:
    size_bytes = CALL.size * proof.calls
    raw = elf.part(data.begin + proof.offset, size_bytes)
    if len(raw) < size_bytes:
        return False
    calls = CALL.iter_unpack(raw)
    return all(
        not any(nothing) and _is_name(table, name) and 0 <= at < proof.size_bytes and line > 0
        for _, nothing, name, at, line in calls
    )


def _is_name(table: GoTable, name: int) -> bool:
    """A name begins there."""
    at = table.names + name
    before, here = table.raw[at - 1 : at], table.raw[at : at + 1]
    return name >= 0 and (name == 0 or before == b"\0") and here not in (b"", b"\0")
