"""Functions of a Go program, and where their frames are told."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import List, NamedTuple, Optional

from udsprobe.symbols.elf_file import ElfFile
from udsprobe.symbols.function_table import Function
from udsprobe.symbols.go.code_base import code_base
from udsprobe.symbols.go.inline_data import InlineData, inline_data
from udsprobe.symbols.go.table import GoTable, go_table, named


class GoFrames(NamedTuple):
    """Where the frames of its functions are told, in bytes of the file.

    Attributes:
        base: address at which its code begins, in the file's own numbers.
        entries: where the list of its `functions` begins, in the order of their addresses.
        steps: where the steps of stack pointers, files and lines are.
        units, files: where the list of files by unit of compilation is, and their names.
        names: where names are. inlined: where it is told what is inlined; None: not known.
        flags_at: of a function, the place of its flags.
        end: of the table.
    """

    base: int
    entries: int
    functions: int
    steps: int
    units: int
    files: int
    flags_at: int
    end: int
    names: int = 0
    inlined: Optional[InlineData] = None


class GoProgram:
    """Of a file whose table is whole.

    Attributes:
        frames: where they are told.
    """

    def __init__(self, table: GoTable, base: int, inlined: Optional[InlineData] = None) -> None:
        self._table = table
        self.frames = GoFrames(
            base=base,
            entries=table.offset + table.entries,
            functions=table.functions,
            steps=table.offset + table.steps,
            units=table.offset + table.units,
            files=table.offset + table.files,
            flags_at=table.flags_at,
            end=table.offset + len(table.raw),
            names=table.offset + table.names,
            inlined=inlined,
        )

    def functions(self) -> List[Function]:
        """In the order of their addresses; none where one of them is damaged."""
        base = self.frames.base
        with suppress(struct.error, ValueError):
            found = named(self._table)
            return [Function(base + each.begin, each.end - each.begin, each.name) for each in found]
        return []


def go_program(elf: ElfFile) -> Optional[GoProgram]:
    """None where it is no Go program, or where its code begins cannot be proved."""
    with suppress(struct.error, ValueError):
        table = go_table(elf)
        base = None if table is None else code_base(elf, table)
        if table is not None and base is not None:
            return GoProgram(table, base, inline_data(elf, table))
    return None
