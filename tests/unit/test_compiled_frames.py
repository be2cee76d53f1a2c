"""Frames of C, C++ and Rust with files and lines: no scripts, and the program's own as before."""

from __future__ import annotations

import pytest

from udsprobe.model.code.frames import Frame, is_script, own_functions
from udsprobe.symbols.dwarf.answers import Told, read, written
from udsprobe.symbols.dwarf.inlining import OWN, Call, Stretch
from udsprobe.symbols.dwarf.library import Place

PYTHON = Frame("h", "python3", "/srv/app.py", 3)
NATIVE = Frame("mix", "shop", "/src/shop.c", 12)


@pytest.mark.parametrize("name", ["a.c", "a.cc", "a.hpp", "a.rs", "a.go", "a.S", "/x/gram.y"])
def test_a_source_that_is_compiled_is_no_script(name: str) -> None:
    assert not is_script(name)


@pytest.mark.parametrize("name", ["a.py", "a.js", "a.php", "a.inc", "A.java", "node:fs", "a"])
def test_any_other_is_one(name: str) -> None:
    assert is_script(name)


def test_a_function_of_c_with_its_file_is_named_as_others_are() -> None:
    assert NATIVE.named() == "mix (shop.c:12)"


def test_it_is_the_program_s_own_only_where_nothing_is_interpreted() -> None:
    assert own_functions([NATIVE]) == [0]
    assert own_functions([NATIVE, PYTHON]) == [1]
    assert own_functions([Frame("_PyEval", "python3", "/src/ceval.c", 5), PYTHON]) == [1]


def test_an_interpreter_s_own_function_is_not_the_program_s() -> None:
    assert own_functions([Frame("_PyEval", "python3", "/src/ceval.c", 5)]) == []


LIBRARY_SOURCES = [
    "/usr/include/c++/12/bits/stl_vector.h",
    "/usr/include/c++/12/functional",
    "/usr/include/x86_64-linux-gnu/bits/string_fortified.h",
    "/usr/include/x86_64-linux-gnu/c++/12/bits/gthr-default.h",
    "/usr/lib/gcc/x86_64-linux-gnu/12/include/emmintrin.h",
    "/usr/lib/llvm-14/lib/clang/14.0.6/include/emmintrin.h",
    "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/core/src/cmp.rs",
    "/usr/src/rustc-1.63.0/library/core/src/num/mod.rs",
    "/home/x/.rustup/toolchains/stable/lib/rustlib/src/rust/library/alloc/src/vec/mod.rs",
]
OWN_SOURCES = [
    "/src/shop.c",
    "/src/include/sys/shop.h",
    "/usr/include/openssl/ssl.h",
    "/src/include/shop.hpp",
    "/src/lib.rs",
]


def told(file: str) -> Told:
    inner = Call(Place(b"inner", file.encode(), 2), OWN)
    own = Place(b"own", b"/a.c", 1)
    return read(written(own, [(16, 32)], [inner], [Stretch(18, 20, 0)]).encode())


@pytest.mark.parametrize("file", LIBRARY_SOURCES)
def test_what_is_inlined_of_a_library_counts_as_who_uses_it(file: str) -> None:
    assert told(file).inlined_at(18) == [] and len(told(file).calls_at(18)) == 1


@pytest.mark.parametrize("file", OWN_SOURCES)
def test_what_is_inlined_of_the_program_is_told(file: str) -> None:
    assert [each.name for each in told(file).inlined_at(19)] == ["inner"]
    assert told(file).inlined_at(20) == [] and told(file).inlined_at(17) == []
