"""Depths of Go's frames by its own table, against the unwind tables of the same program."""

from __future__ import annotations

import os
import struct
import subprocess
from bisect import bisect_right
from io import BytesIO
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

from tests.conftest import Require
from udsprobe.symbols import frame_rules as ops
from udsprobe.symbols.elf_file import ElfFile
from udsprobe.symbols.go.frames import GoRules
from udsprobe.symbols.go.function_list import FunctionList
from udsprobe.symbols.go.functions import GoFrames, go_program

CODE = Path(__file__).parent.parent / "workloads" / "code"
RSP = 7
Depths = List[Tuple[int, int]]
"""Places in code, and how far the frame's address is from the stack pointer there."""


def built(folder: Path, require: Require, options: Sequence[str]) -> Path:
    made = folder / "hot"
    argv = [require("go")["go"], "build", *options, "-o", str(made), str(CODE / "hot.go")]
    cgo = str(int("-ldflags=-linkmode=external" in options))
    environment = {**os.environ, "CGO_ENABLED": cgo, "GOFLAGS": "", "GOTOOLCHAIN": "local"}
    subprocess.run(argv, check=True, env=environment)
    return made


def told(file: ELFFile) -> Depths:
    """By `.debug_frame`, where they change; before its last instructions that may lag behind."""
    found: Depths = []
    for entry in file.get_dwarf_info().CFI_entries():
        if isinstance(entry, FDE):
            rows = entry.get_decoded().table
            assert all(row["cfa"].reg == RSP for row in rows)
            found += [(row["pc"], row["cfa"].offset) for row in rows]
    return found


@pytest.mark.parametrize(
    "options",
    [(), ("-buildmode=pie",), ("-ldflags=-linkmode=external",)],
    ids=["exe", "pie", "linked-with-c"],
)
def test_depths_are_those_of_the_unwind_tables(
    options: Sequence[str], tmp_path: Path, require: Require
) -> None:
    path = built(tmp_path, require, options)
    with path.open("rb") as file:
        program = go_program(ElfFile(file))
        assert program is not None
        functions = FunctionList(program.frames, file.fileno())
        rules, outermost, without = GoRules(functions), set(), set()
        names = {each.start: each.name.decode() for each in program.functions()}
        starts, compared = sorted(names), 0
        for at, depth in told(ELFFile(file)):
            rule = rules.at(at)
            if rule is None or rule.is_outermost:
                begins = starts[bisect_right(starts, at) - 1]
                (without if rule is None else outermost).add(names[begins])
                continue
            assert rule.cfa == ((ops.OP_BREGX, RSP, depth),)
            compared += 1
        functions.close()
        functions.close()
    assert compared > 10_000
    assert {"runtime.goexit", "runtime.mstart"} <= outermost and len(outermost) < 10
    assert {"runtime.systemstack", "runtime.mcall"} <= without and len(without) < 40


def frames_of(raw: bytes, tmp_path: Path, frames: GoFrames) -> GoRules:
    path = tmp_path / "table"
    path.write_bytes(raw)
    with path.open("rb") as file:
        return GoRules(FunctionList(frames, file.fileno()))


def made(steps: bytes, flags: int = 0) -> Tuple[bytes, GoFrames]:
    """A table of one function of 64 bytes at 0x1000."""
    entries = struct.pack("<III", 0, 12, 64)
    function = struct.pack("<IiiII", 0, 0, 0, 0, 0) + bytes(21) + bytes([flags]) + bytes(2)
    raw = entries + function + steps
    return raw, GoFrames(0x1000, 0, 1, len(entries + function), 0, 0, 41, len(raw))


@pytest.mark.parametrize(
    ("at", "expected"),
    [(0x0FFF, None), (0x1000, 8), (0x1003, 8), (0x1004, 72), (0x103F, 72), (0x1040, None)],
)
def test_steps_are_added_up_to_the_instruction(
    at: int, expected: Optional[int], tmp_path: Path
) -> None:
    # From -1 up by 1 for 4 bytes, then up by 64 for 60; 0 ends it.
    raw, frames = made(bytes([2, 4, 0x80, 1, 60, 0]))
    rule = frames_of(raw, tmp_path, frames).at(at)
    found = None if rule is None else rule.cfa[0][2]
    assert found == expected


def test_a_table_that_lies_does_no_harm(tmp_path: Path) -> None:
    """Each byte of it another one: a rule, or none."""
    raw, frames = made(bytes([2, 4, 0x80, 1, 60, 0]))
    path = tmp_path / "table"
    for at in range(len(raw)):
        for byte in (0, 1, 0x7F, 0xFF):
            path.write_bytes(raw[:at] + bytes([byte]) + raw[at + 1 :])
            with path.open("rb") as file:
                functions = FunctionList(frames, file.fileno())
            rules = GoRules(functions)
            for place in (0x1000, 0x1010, 0x103F):
                rule = rules.at(place)
                assert rule is None or rule.is_outermost or rule.cfa[0][2] >= 8
            functions.close()
    assert frames_of(b"", tmp_path, frames).at(0x1000) is None


def test_a_program_of_another_language_has_none() -> None:
    with open("/bin/true", "rb") as file:
        assert go_program(ElfFile(BytesIO(file.read()))) is None
