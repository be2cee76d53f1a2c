"""Debug information in the program, apart from it, shared and compressed: all tell the same."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest

from tests.conftest import Require
from tests.unit.debug_programs import CODE, built, run
from udsprobe.symbols.dwarf.debug_files import is_library
from udsprobe.symbols.frame_rules import MACHINES
from udsprobe.symbols.process_names import CodeFrame, ProcessNames
from udsprobe.symbols.target_images import TargetImages

SOURCE = str(CODE / "inlined.c")
# Of the words `planted_step(unsigned value)` and so on: where each begins.
LINES = {
    name: 1 + Path(SOURCE).read_text().splitlines().index(first)
    for name, first in (
        (
            "planted_step",
            "static inline __attribute__((always_inline)) unsigned planted_step(unsigned value)",
        ),
        (
            "planted_mix",
            "static inline __attribute__((always_inline)) unsigned planted_mix(unsigned rounds)",
        ),
        (
            "planted_handle",
            "__attribute__((noinline, noclone)) unsigned planted_handle(unsigned rounds)",
        ),
    )
}
STACK = ["planted_step", "planted_mix", "planted_handle"]


@pytest.fixture
def program(tmp_path: Path, require: Require) -> Path:
    return built("gcc", "inlined.c", tmp_path / "hot", require, "-O2", "-g", "-Wl,--build-id")


@contextmanager
def spinning(program: Path) -> Iterator[int]:
    argv = [str(program)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"spins\n"
        yield process.pid
        process.kill()


def handled(program: Path, require: Require) -> Tuple[int, int]:
    """Address and size of `planted_handle`."""
    for line in run(require, "nm", "-S", program).splitlines():
        if line.endswith(" planted_handle"):
            start, size_bytes, *_ = line.split()
            return int(start, 16), int(size_bytes, 16)
    raise AssertionError("no such symbol")


def named(
    program: Path, where: Tuple[int, int], *, is_told: bool = True
) -> List[Tuple[CodeFrame, ...]]:
    """What is told of each address of a function, in a process."""
    images = TargetImages(MACHINES[platform.machine()])
    with spinning(program) as pid:
        names = ProcessNames(pid, images)
        (mapping,) = [each for each in names.mapped if each.path == os.fsencode(program)]
        elf = images.of(pid, mapping).elf
        loaded_at = None if elf is None else elf.loaded_at(mapping)
        assert loaded_at is not None
        addresses = range(loaded_at + where[0], loaded_at + sum(where))
        for address in addresses:
            names.want(address)
        names.frame(addresses[0])
        assert images.look() is is_told
        names.forget()
        found = [names.frames(address) for address in addresses]
    images.close()
    return found


def assert_told(found: List[Tuple[CodeFrame, ...]]) -> None:
    wanted = tuple(CodeFrame(name, "hot", SOURCE, LINES[name]) for name in STACK)
    assert wanted in found
    assert {frames[-1] for frames in found} == {wanted[-1]}


def assert_symbols_only(found: List[Tuple[CodeFrame, ...]]) -> None:
    assert set(found) == {(CodeFrame("planted_handle", "hot"),)}


def parted(program: Path, require: Require) -> Path:
    """Its symbols and debug information, where the link in it leads to."""
    debug = program.parent / ".debug" / f"{program.name}.debug"
    debug.parent.mkdir()
    run(require, "objcopy", "--only-keep-debug", program, debug)
    run(require, "objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", program)
    return debug


def test_in_the_program(program: Path, require: Require) -> None:
    assert_told(named(program, handled(program, require)))


def test_apart_by_its_link(program: Path, require: Require) -> None:
    where = handled(program, require)
    parted(program, require)
    assert_told(named(program, where))


def test_apart_of_a_program_that_kept_its_symbols(program: Path, require: Require) -> None:
    where = handled(program, require)
    debug = program.parent / ".debug" / "hot.debug"
    debug.parent.mkdir()
    run(require, "objcopy", "--only-keep-debug", program, debug)
    run(require, "objcopy", "--strip-debug", f"--add-gnu-debuglink={debug}", program)
    assert_told(named(program, where))


def test_apart_of_another_build_is_refused(program: Path, require: Require) -> None:
    where = handled(program, require)
    run(require, "objcopy", "--strip-debug", program)
    other = built(
        "gcc", "inlined.c", program.parent / "other", require, "-O1", "-g", "-Wl,--build-id"
    )
    debug = program.parent / ".debug" / "hot.debug"
    debug.parent.mkdir()
    run(require, "objcopy", "--only-keep-debug", other, debug)
    run(require, "objcopy", f"--add-gnu-debuglink={debug}", program)
    assert_symbols_only(named(program, where, is_told=False))


def test_compressed(program: Path, require: Require) -> None:
    where = handled(program, require)
    run(require, "objcopy", "--compress-debug-sections=zlib", program)
    assert_told(named(program, where))


@pytest.mark.parametrize("link", ["beside", "whole", "up"])
def test_shared_with_other_files(link: str, program: Path, require: Require) -> None:
    """dwz puts what several files have in common into one that they name."""
    where = handled(program, require)
    debug = parted(program, require)
    other = debug.parent / "other.debug"
    shutil.copy(debug, other)
    shared = debug.parent / "shared.debug"
    named_as = {"beside": "shared.debug", "whole": str(shared), "up": "../.debug/shared.debug"}
    run(require, "dwz", "-m", shared, "-M", named_as[link], debug, other)
    assert ".gnu_debugaltlink" in run(require, "readelf", "-SW", debug)
    assert_told(named(program, where))


def test_what_is_shared_is_not_there(program: Path, require: Require) -> None:
    """Names and lines that were in it are not known, and no other ones told."""
    where = handled(program, require)
    debug = parted(program, require)
    other = debug.parent / "other.debug"
    shutil.copy(debug, other)
    run(require, "dwz", "-m", debug.parent / "shared.debug", debug, other)
    (debug.parent / "shared.debug").unlink()
    for frames in named(program, where):
        assert {each.function for each in frames} <= {*STACK, None}
        assert {each.file for each in frames} <= {SOURCE, None}


def test_split_has_symbols_only(tmp_path: Path, require: Require) -> None:
    """What is in a .dwo is not read."""
    options = ("-O2", "-g", "-gsplit-dwarf", "-dumpdir", f"{tmp_path}/")
    program = built("gcc", "inlined.c", tmp_path / "hot", require, *options)
    assert_symbols_only(named(program, handled(program, require), is_told=False))


def test_the_c_library_is_named_by_its_symbols(program: Path) -> None:
    images = TargetImages(MACHINES[platform.machine()])
    with spinning(program) as pid:
        names = ProcessNames(pid, images)
        found = {each.name: images.of(pid, each) for each in names.mapped if each.is_file}
    assert found[b"hot"].debug is not None
    assert [image.debug for name, image in found.items() if name != b"hot"] == [None, None]
    images.close()


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((each, True) for each in ("libc.so.6", "ld-linux-x86-64.so.2", "libstdc++.so.6.0.30")),
        *((each, True) for each in ("node", "python3.12", "libpython3.12.so.1.0", "php-fpm8.2")),
        *((each, True) for each in ("java", "libjvm.so", "ruby3.1", "libc-2.31.so (deleted)")),
        *((each, False) for each in ("nginx", "redis-server", "libcrypto.so.3", "phpx", "ldap")),
        *((each, False) for each in ("_speedups.cpython-312-x86_64-linux-gnu.so", "nodes", "mix")),
    ],
)
def test_what_is_a_library_or_an_interpreter(name: str, is_one: bool) -> None:
    assert is_library(f"/usr/lib/{name}".encode()) is is_one
