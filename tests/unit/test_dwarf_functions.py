"""Functions, files, lines and inlining by debug information, against llvm-symbolizer's."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import List, Sequence

import pytest

from tests.conftest import Require
from tests.unit.debug_programs import Chain, built, code_of, told, truth
from udsprobe.compiled_sources import COMPILED
from udsprobe.symbols.dwarf.answers import Source

STEP = 5
PROGRAMS = {
    "c": ("gcc", "inlined.c", "-O2", "-g"),
    "c-dwarf-4": ("gcc", "inlined.c", "-O2", "-gdwarf-4", "-no-pie"),
    "c-clang": ("clang", "inlined.c", "-O2", "-g"),
    "c-shared": ("gcc", "inlined.c", "-O2", "-g", "-shared", "-fPIC"),
    "c-compressed": ("gcc", "inlined.c", "-O2", "-g", "-gz=zlib"),
    "c-link-time": ("gcc", "inlined.c", "-O2", "-g", "-flto"),
    "cpp": ("g++", "inlined.cpp", "-O2", "-g"),
    "cpp-dwarf-4": ("g++", "inlined.cpp", "-O3", "-gdwarf-4", "-no-pie"),
    "cpp-compressed": ("g++", "inlined.cpp", "-O2", "-g", "-gz=zlib"),
    "cpp-clang": ("clang++", "inlined.cpp", "-O2", "-g", "-std=c++17"),
    "cpp-clang-dwarf-4": ("clang++", "inlined.cpp", "-O2", "-gdwarf-4", "-std=c++17"),
    "rust": ("rustc", "inlined.rs", "-O", "-g"),
}


def addresses_of(program: Path, require: Require) -> List[int]:
    code = code_of(program, require)
    return list(range(code.start, code.start + code.size_bytes, STEP))


def assert_same(ours: Sequence[Chain], theirs: Sequence[Chain]) -> None:
    """The outer function's name is that of the symbol table, theirs too."""
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs):
        if not mine:
            assert [(each.file, each.line) for each in other] == [(None, None)]
            continue
        assert [each.name for each in mine[:-1]] == [each.name for each in other[:-1]]
        for one, its in zip(mine, other):
            assert_same_place(one, its)


def assert_same_place(mine: Source, its: Source) -> None:
    if mine.file is None:
        assert mine.line is None and not (its.file or "").endswith(COMPILED)
        return
    # Some versions lack files of version 5.
    assert (posixpath.normpath(mine.file), mine.line) == (its.file or mine.file, its.line)


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_are_those_of_llvm_symbolizer(
    name: str, tmp_path: Path, require: Require
) -> None:
    compiler, source, *options = PROGRAMS[name]
    program = built(compiler, source, tmp_path / name, require, *options)
    addresses = addresses_of(program, require)
    ours = told(program, addresses)
    assert sum(len(each) > 1 for each in ours) > 3
    assert_same(ours, truth(program, addresses, require))
