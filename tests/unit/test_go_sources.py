"""Files and lines of Go's functions by its own table, against the debug information."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path
from typing import Dict, Optional, Sequence, Tuple

import pytest
from elftools.dwarf.compileunit import CompileUnit
from elftools.dwarf.die import DIE
from elftools.dwarf.dwarfinfo import DWARFInfo
from elftools.elf.elffile import ELFFile

from tests.conftest import Require
from udsprobe.symbols.elf_file import ElfFile
from udsprobe.symbols.go.code import GoCode
from udsprobe.symbols.go.function_list import FunctionList
from udsprobe.symbols.go.functions import GoFrames, go_program
from udsprobe.symbols.go.sources import GoSources, Source

HOT = Path(__file__).parent.parent / "workloads" / "code" / "hot.go"
GENERATED = 1
Places = Dict[int, Tuple[str, Optional[int]]]


OUTER = """package main

//go:noinline
func plantedOuter(count int) int {
\treturn plantedInner(count)
}
"""
INNER = """package main

import "os"

func plantedInner(count int) int {
\treturn count*count + 3
}

func main() {
\tos.Exit(plantedOuter(len(os.Args)))
}
"""


def built(
    folder: Path, require: Require, options: Sequence[str], files: Sequence[Path] = (HOT,)
) -> Path:
    made = folder / "hot"
    argv = [require("go")["go"], "build", *options, "-o", str(made), *map(str, files)]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local"}
    subprocess.run(argv, check=True, env=environment)
    return made


def places(path: Path) -> Places:
    """Of functions that have one; where they begin → last part of the file's name, and the line."""
    with path.open("rb") as file:
        program = go_program(ElfFile(file))
        assert program is not None
        code = GoCode(program.frames, file.fileno(), is_x86=True)
        found = {each.start: code.sources.of(each.start) for each in program.functions()}
        code.close()
    return {start: told(each) for start, each in found.items() if each is not None}


def told(source: Source) -> Tuple[str, Optional[int]]:
    return source.file.rpartition("/")[2], source.line


def debug_places(path: Path) -> Places:
    """The same by DWARF, of functions that are written in Go and have a frame of their own."""
    with path.open("rb") as file:
        info = ELFFile(file).get_dwarf_info()
        units = [(unit, die) for unit in info.iter_CUs() for die in unit.iter_DIEs()]
        found = (_debug_place(info, unit, die) for unit, die in units)
        return dict(each for each in found if each is not None)


def _debug_place(
    info: DWARFInfo, unit: CompileUnit, die: DIE
) -> Optional[Tuple[int, Tuple[str, Optional[int]]]]:
    known = die.attributes
    if die.tag != "DW_TAG_subprogram" or not {"DW_AT_low_pc", "DW_AT_decl_file"} <= set(known):
        return None
    lines = info.line_program_for_CU(unit)
    files = lines["file_entry"]
    number = known["DW_AT_decl_file"].value - (lines["version"] < 5)
    line = known["DW_AT_decl_line"].value
    name = files[number].name.decode().rpartition("/")[2]
    return known["DW_AT_low_pc"].value, (name, line)


@pytest.mark.parametrize("options", [(), ("-buildmode=pie",)], ids=["exe", "pie"])
def test_places_are_those_of_the_debug_information(
    options: Sequence[str], tmp_path: Path, require: Require
) -> None:
    path = built(tmp_path, require, options)
    truth, found = debug_places(path), places(path)
    written = {at: place for at, place in truth.items() if place[1] != GENERATED}
    assert len(written) > 1000
    assert {at: found.get(at) for at in written} == written
    # What the compiler has written is in no file.
    assert not set(found) & set(truth) - set(written)


def test_stripping_leaves_them(tmp_path: Path, require: Require) -> None:
    path = built(tmp_path, require, ("-ldflags=-s -w",))
    text = HOT.read_text().splitlines()
    line = 1 + next(at for at, row in enumerate(text) if "func plantedDigest" in row)
    assert ("hot.go", line) in places(path).values()


def test_what_is_inlined_is_in_another_file(tmp_path: Path, require: Require) -> None:
    """Its first instruction is that of the function in the other file."""
    files = (tmp_path / "outer.go", tmp_path / "inner.go")
    for file, text in zip(files, (OUTER, INNER)):
        file.write_text(text)
    path = built(tmp_path, require, (), files)
    assert ("outer.go", 4) in places(path).values()


def made(*, is_inlined: bool = False) -> Tuple[bytes, GoFrames]:
    """A table of one function at 0x1000, in line 7 of `a.go`.

    Args:
        is_inlined: its first 4 bytes are of a function in `b.go`.
    """
    entries = struct.pack("<III", 0, 12, 64)
    # None, the steps of its file, then those of what is inlined where.
    steps = bytes([0, 4, 4, 1, 60, 0, 2, 4, 1, 60, 0] if is_inlined else [0, 2, 64, 0])
    told = (0, 0, 0, 0, 0, 1, 0, 3 if is_inlined else 0, 0, 7, 0, 0, 0, 0, 0, 0, 6)
    function = struct.pack("<IiiIIIIIIiBBBBIII", *told)
    units, files = struct.pack("<II", 0, 5), b"a.go\0b.go\0"
    ends = [len(entries + function)]
    for part in (steps, units, files):
        ends.append(ends[-1] + len(part))
    raw = entries + function + steps + units + files
    return raw, GoFrames(0x1000, 0, 1, ends[0], ends[1], ends[2], 41, ends[3])


def read(raw: bytes, frames: GoFrames, path: Path) -> Optional[Source]:
    path.write_bytes(raw)
    with path.open("rb") as file:
        functions = FunctionList(frames, file.fileno())
    found = GoSources(functions).of(0x1000)
    functions.close()
    return found


def test_its_file_is_not_that_of_what_is_inlined_in_it(tmp_path: Path) -> None:
    raw, frames = made(is_inlined=True)
    assert read(raw, frames, tmp_path / "table") == Source("a.go", 7)


def test_a_table_that_lies_does_no_harm(tmp_path: Path) -> None:
    raw, frames = made()
    assert read(raw, frames, tmp_path / "table") == Source("a.go", 7)
    for at in range(len(raw)):
        for byte in (0, 1, 0x7F, 0xFF):
            lie = raw[:at] + bytes([byte]) + raw[at + 1 :]
            found = read(lie, frames, tmp_path / "table")
            assert found is None or found.line is None or found.line > 1
    assert read(b"", frames, tmp_path / "table") is None
