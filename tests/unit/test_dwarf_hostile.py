"""Debug information that lies: the child that reads it may break, udsprobe goes on with symbols."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import List

import pytest
from elftools.elf.elffile import ELFFile

from tests.conftest import Require
from tests.patience import PATIENCE_S
from tests.unit.debug_programs import built, code_of
from tests.unit.test_dwarf_files import assert_symbols_only, handled, named
from tests.visible import invisible
from udsprobe.symbols.dwarf.answers import read
from udsprobe.symbols.dwarf.child import Answer, ask
from udsprobe.symbols.dwarf.functions import (
    FIRST_S,
    ONCE_S_MAX,
    TOLD_BYTES_MAX,
    Allowance,
    DebugFunctions,
)

SECTIONS = (".debug_info", ".debug_abbrev", ".debug_str", ".debug_line", ".debug_rnglists")
DAMAGED = 24


@pytest.fixture
def program(tmp_path: Path, require: Require) -> Path:
    return built("gcc", "inlined.c", tmp_path / "hot", require, "-O2", "-g", "-Wl,--build-id")


def assert_harmless(file: Path, addresses: List[int]) -> None:
    began_s = time.monotonic()
    with file.open("rb") as opened:
        functions = DebugFunctions(os.dup(opened.fileno()), None, Allowance())
    for address in addresses:
        functions.want(address)
    functions.look()
    for address in addresses:
        told = functions.at(address)
        for each in [] if told is None else [told.own, *told.inlined_at(address)]:
            assert not invisible(f"{each.name}{each.file}")
    functions.close()
    assert time.monotonic() - began_s < ONCE_S_MAX + PATIENCE_S
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize("section", SECTIONS)
def test_damaged(section: str, program: Path, tmp_path: Path, require: Require) -> None:
    with program.open("rb") as file:
        found = ELFFile(file).get_section_by_name(section)
        if found is None:
            pytest.skip(f"this compiler writes no {section}")
        start, size_bytes = found["sh_offset"], found["sh_size"]
    whole, code = program.read_bytes(), code_of(program, require)
    addresses = list(range(code.start, code.start + code.size_bytes, 3))
    chance = random.Random(section)
    for _ in range(DAMAGED):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 4, 40))):
            damaged[start + chance.randrange(size_bytes)] = chance.randrange(256)
        (tmp_path / "damaged").write_bytes(damaged)
        assert_harmless(tmp_path / "damaged", addresses)


def test_cut_off(program: Path, tmp_path: Path, require: Require) -> None:
    whole, code = program.read_bytes(), code_of(program, require)
    for part in (0, 1, 64, 1000, *(len(whole) * each // 10 for each in range(1, 10))):
        (tmp_path / "cut").write_bytes(whole[:part])
        assert_harmless(tmp_path / "cut", [code.start])


def test_what_would_expand_without_end_is_not_expanded(program: Path, require: Require) -> None:
    where = handled(program, require)
    argv = [require("objcopy")["objcopy"], "--compress-debug-sections=zlib", str(program)]
    subprocess.run(argv, check=True)
    with program.open("rb") as file:
        start = ELFFile(file).get_section_by_name(".debug_info")["sh_offset"]
    whole = bytearray(program.read_bytes())
    # Elf64_Chdr.ch_size
    struct.pack_into("<Q", whole, start + 8, 1 << 34)
    program.write_bytes(whole)
    assert_symbols_only(named(program, where, is_told=False))


def test_a_child_that_does_not_end_is_ended(program: Path, require: Require) -> None:
    with program.open("rb") as file:
        answer = ask(file.fileno(), None, [code_of(program, require).start], 0.0)
    assert (answer.lines, answer.is_whole) == ([], False)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has what is given up")
def test_the_child_has_no_privileges() -> None:
    script = "from udsprobe.symbols.dwarf.confined import confine; confine(3)\n"
    script += "for each in ('status', 'limits', 'oom_score_adj', 'comm'):\n"
    script += "    print(open(f'/proc/self/{each}').read())\n"
    argv = [sys.executable, "-c", script]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    rows = {line.split(":")[0]: line.split()[1:] for line in said.splitlines() if ":" in line}
    assert rows["Uid"] == rows["Gid"] == ["65534"] * 4 and rows["Groups"] == []
    assert {rows[each][0] for each in ("CapPrm", "CapEff", "CapInh")} == {"0" * 16}
    assert rows["NoNewPrivs"] == ["1"]
    for limit in ("data size  268435456", "cpu time  3", "core file size  0", "file size  0"):
        name, most = limit.split("  ")
        (row,) = [line for line in said.splitlines() if line.startswith(f"Max {name}")]
        assert row.split()[len(name.split()) + 1] == most
    assert said.endswith("1000\n\nudsprobe-names\n\n")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"places":[],"spans":[],"calls":[],"stretches":[]}',
        b'{"places":[["a",null,1]],"spans":[[0]],"calls":[],"stretches":[]}',
        b'{"places":[["a","b.c",-5]],"spans":[],"calls":[],"stretches":[]}',
        b'{"places":[["a",7,1]],"spans":[],"calls":[],"stretches":[]}',
        b'{"places":[["a",null,1]],"spans":[],"calls":[[0,0]],"stretches":[]}',
        b'{"places":[["a",null,1]],"spans":[],"calls":[[0,-1]],"stretches":[[1,2,1]]}',
        b'{"places":[["a",null,1]],"spans":[],"calls":[[-1,-1]],"stretches":[[1,2,0,0]]}',
        '{"places":[["\u20ac",null,1]],"spans":[],"calls":[],"stretches":[]}'.encode(),
    ],
)
def test_an_answer_of_another_kind_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        read(line)


def test_time_and_memory_run_out() -> None:
    half = Answer([], is_whole=True, cpu_ns=int(1e9 * FIRST_S / 2))
    allowance = Allowance()
    allowance.add(PATIENCE_S, half)
    assert allowance.seconds() == ONCE_S_MAX
    allowance.add(PATIENCE_S, half._replace(cpu_ns=half.cpu_ns + int(1e9 * PATIENCE_S)))
    assert allowance.seconds() == 0
    assert allowance.cpu_ns == int(1e9 * FIRST_S) + int(1e9 * PATIENCE_S)


def test_what_was_ended_counts_with_all_its_time() -> None:
    allowance = Allowance()
    allowance.add(PATIENCE_S, Answer([], is_whole=False, cpu_ns=0))
    assert allowance.seconds() == 0


def test_what_is_told_is_bounded() -> None:
    allowance = Allowance()
    allowance.add(0, Answer([b"x" * TOLD_BYTES_MAX, b"y"], is_whole=True, cpu_ns=0))
    assert allowance.seconds() == 0


def test_cpu_time_of_a_child_is_known(program: Path, require: Require) -> None:
    with program.open("rb") as file:
        answer = ask(file.fileno(), None, [code_of(program, require).start], PATIENCE_S)
    assert answer.is_whole and answer.cpu_ns > 1_000_000
