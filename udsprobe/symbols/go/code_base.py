"""Where the code of a Go program begins: its table counts from there, and need not say it.

Since Go 1.26 it does not, and in a PIE it did not before. What is likely must agree with the file,
or else all names and frames would be wrong.
"""

from __future__ import annotations

import re
import struct
from typing import Iterator, List, NamedTuple, Optional

from udsprobe.symbols.elf_file import ElfFile
from udsprobe.symbols.go.table import STEPS_AT, GoTable, named, steps

# Where a program starts that no C library starts.
_START = re.compile(rb"_rt0_[a-z0-9]+_linux")
# How many functions must begin as their steps say.
_PROOFS, _PROOFS_MIN, _STEPS_BYTES = 64, 16, 16
# By one of these a function of x86-64 makes room: `push %rbp`, `sub $depth,%rsp` in two forms, and
# `add $-128,%rsp`.
_PUSH, _SUB, _SUB_LONG, _ADD_128 = b"\x55", b"\x48\x83\xec", b"\x48\x81\xec", b"\x48\x83\xc4\x80"
_PUSHED_BYTES, _LONGEST_BYTES = 8, 7
# What the C library's start, and no more, is before Go's code, which begins at such an address.
_SEARCHED_BYTES, _BOUNDARY_BYTES = 1 << 20, 16
_X86_INSTRUCTION_BYTES = 1
_NUMBER = struct.Struct("<I")


class _Proof(NamedTuple):
    """Up to `end` a function has made room for so much, the first that it does.

    Attributes:
        begin: where it begins, or the instruction may.
    """

    begin: int
    end: int
    depth: int


def code_base(elf: ElfFile, table: GoTable) -> Optional[int]:
    """In the file's own numbers; None: it cannot be proved.

    Raises:
        struct.error, ValueError: the table is damaged.
    """
    proofs = _proofs(table) if table.instruction_bytes == _X86_INSTRUCTION_BYTES else []
    likely = [table.text] if table.text else _by_start(elf, table)
    for base in likely:
        if base > 0 and _is_code(elf, table, base) and _agrees(elf, base, proofs):
            return base
    return _searched(elf, table, proofs) if len(proofs) >= _PROOFS_MIN else None


def _by_start(elf: ElfFile, table: GoTable) -> List[int]:
    """By the entry point, which is Go's own where no C library starts the program."""
    return [elf.entry - each.begin for each in named(table) if _START.fullmatch(each.name)]


def _searched(elf: ElfFile, table: GoTable, proofs: List[_Proof]) -> Optional[int]:
    text = elf.section(b".text")
    last = max(proof.end for proof in proofs)
    for segment in (each for each in elf.segments if each.is_executable):
        if text is None or not 0 <= text.offset - segment.offset < segment.size_bytes:
            continue
        begin = segment.address + text.offset - segment.offset
        code = elf.code(begin, min(text.size_bytes, last + _SEARCHED_BYTES))
        for at in range(-begin % _BOUNDARY_BYTES, len(code) - last + 1, _BOUNDARY_BYTES):
            if all(_makes_room(code[at + p.begin : at + p.end], p.depth) for p in proofs):
                return begin + at if _is_code(elf, table, begin + at) else None
    return None


def _agrees(elf: ElfFile, base: int, proofs: List[_Proof]) -> bool:
    return all(_makes_room(elf.code(base + p.begin, p.end - p.begin), p.depth) for p in proofs)


def _makes_room(code: bytes, depth: int) -> bool:
    """Whether its last instruction does."""
    if depth == _PUSHED_BYTES and code.endswith(_PUSH):
        return True
    if depth < 128:
        return code.endswith(_SUB + bytes([depth]))
    return code.endswith((_SUB_LONG + struct.pack("<I", depth), *[_ADD_128][: depth == 128]))


def _proofs(table: GoTable) -> List[_Proof]:
    """Of functions all over the program."""
    some = range(0, table.functions, max(1, table.functions // (2 * _PROOFS)))
    return [proof for number in some for proof in _proof(table, number)][:_PROOFS]


def _proof(table: GoTable, number: int) -> Iterator[_Proof]:
    begin, place = table.entry(number)
    (first,) = _NUMBER.unpack_from(table.raw, table.entries + place + STEPS_AT)
    found = steps(table.raw[table.steps + first :][:_STEPS_BYTES])
    (depth, end), (deeper, _) = next(found, (-1, 0)), next(found, (-1, 0))
    if depth == 0 and deeper > 0 and end:
        yield _Proof(begin + max(0, end - _LONGEST_BYTES), begin + end, deeper)


def _is_code(elf: ElfFile, table: GoTable, base: int) -> bool:
    begin, end = base + table.entry(0)[0], base + table.end()
    return any(
        each.is_executable and each.address <= begin and end <= each.address + each.size_bytes
        for each in elf.segments
    )
