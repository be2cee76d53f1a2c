"""Which functions of Go are inlined where, by its own tables, against the debug information."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Iterator, List, Sequence, Tuple

import pytest
from elftools.dwarf.compileunit import CompileUnit
from elftools.dwarf.die import DIE
from elftools.dwarf.dwarfinfo import DWARFInfo
from elftools.elf.elffile import ELFFile

from tests.conftest import Require
from tests.unit.test_go_sources import built, made, read
from udsprobe.symbols.elf_file import ElfFile
from udsprobe.symbols.go.code import GoCode
from udsprobe.symbols.go.functions import go_program
from udsprobe.symbols.go.inlined import InlinedCall

Span = Tuple[int, int]
Inlined = Tuple[Span, List[str]]
"""Where, and the names, the innermost first."""


def spans(info: DWARFInfo, unit: CompileUnit, die: DIE) -> List[Span]:
    known = die.attributes
    if "DW_AT_low_pc" in known:
        low, high = known["DW_AT_low_pc"].value, known["DW_AT_high_pc"]
        return [(low, high.value if high.form == "DW_FORM_addr" else low + high.value)]
    if "DW_AT_ranges" not in known:
        return []
    begin = unit.get_top_DIE().attributes.get("DW_AT_low_pc")
    base, found = (begin.value if begin else 0), []
    ranges = info.range_lists().get_range_list_at_offset(known["DW_AT_ranges"].value, unit)
    for each in ranges:
        if hasattr(each, "base_address"):
            base = each.base_address
        else:
            more = 0 if each.is_absolute else base
            found.append((more + each.begin_offset, more + each.end_offset))
    return found


def inlined_in(
    info: DWARFInfo, unit: CompileUnit, die: DIE, callers: List[str]
) -> Iterator[Inlined]:
    for each in die.iter_children():
        names = callers
        if each.tag == "DW_TAG_inlined_subroutine":
            origin = each.get_DIE_from_attribute("DW_AT_abstract_origin")
            names = [origin.attributes["DW_AT_name"].value.decode(), *callers]
            for span in spans(info, unit, each):
                yield span, names
        yield from inlined_in(info, unit, each, names)


def truth(path: Path) -> Iterator[Tuple[int, List[str]]]:
    """At the begin, middle and end of each, and behind it: who is there."""
    with path.open("rb") as file:
        info = ELFFile(file).get_dwarf_info()
        for unit in info.iter_CUs():
            for die in unit.iter_DIEs():
                if die.tag == "DW_TAG_subprogram" and (own := spans(info, unit, die)):
                    found = list(inlined_in(info, unit, die, []))
                    edges = {at for (a, b), _ in found for at in (a, b - 1, b, (a + b) // 2)}
                    for at in (at for at in edges if own[0][0] <= at < own[0][1]):
                        yield at, innermost(found, at)


def innermost(found: Sequence[Inlined], at: int) -> List[str]:
    here = [names for (begin, end), names in found if begin <= at < end]
    return max(here, key=len, default=[])


def code_of(path: Path) -> GoCode:
    with path.open("rb") as file:
        program = go_program(ElfFile(file))
        assert program is not None and program.frames.inlined is not None
        return GoCode(program.frames, file.fileno(), is_x86=True)


@pytest.mark.parametrize("options", [(), ("-buildmode=pie",)], ids=["exe", "pie"])
def test_who_is_inlined_is_what_the_debug_information_says(
    options: Sequence[str], tmp_path: Path, require: Require
) -> None:
    path = built(tmp_path, require, options)
    code, compared, deepest = code_of(path), 0, 0
    for at, names in truth(path):
        assert [each.name for each in code.inlined.at(at)] == names
        compared, deepest = compared + 1, max(deepest, len(names))
    code.close()
    assert compared > 10_000 and deepest > 2


PLANTED = """package main

import "os"

func plantedLeaf(count int) int {
\treturn count*count + len(os.Args)
}

func plantedMiddle(count int) int {
\treturn plantedLeaf(count) + 1
}

//go:noinline
func plantedOuter(count int) int {
\treturn plantedMiddle(count)
}

func main() {
\tos.Exit(plantedOuter(len(os.Args)))
}
"""


@pytest.mark.parametrize("strip", [False, True], ids=["whole", "stripped"])
def test_they_have_their_files_and_lines(tmp_path: Path, require: Require, strip: bool) -> None:
    (tmp_path / "planted.go").write_text(PLANTED)
    path = built(tmp_path, require, (), [tmp_path / "planted.go"])
    with path.open("rb") as file:
        program = go_program(ElfFile(file))
        assert program is not None
        outer = next(each for each in program.functions() if each.name == b"main.plantedOuter")
    if strip:
        subprocess.run([require("strip")["strip"], str(path)], check=True)
    code = code_of(path)
    met = [code.inlined.at(outer.start + at) for at in range(outer.size_bytes)]
    code.close()
    named = {tuple(told(each) for each in calls) for calls in met}
    leaf = ("main.plantedLeaf", "planted.go", 5)
    assert (leaf, ("main.plantedMiddle", "planted.go", 9)) in named
    assert () in named


def told(call: InlinedCall) -> Tuple[str, str, int]:
    assert call.source is not None and call.source.line is not None
    return call.name, call.source.file.rpartition("/")[2], call.source.line


def test_where_it_is_not_told_there_is_none(tmp_path: Path) -> None:
    raw, frames = made(is_inlined=True)
    assert frames.inlined is None
    assert read(raw, frames, tmp_path / "table") is not None
    with (tmp_path / "table").open("rb") as file:
        code = GoCode(frames, file.fileno(), is_x86=True)
    assert [code.inlined.at(0x1000 + at) for at in range(64)] == [[]] * 64
    code.close()
