"""Names of a stripped Go program, against the symbols that the same program has."""

from __future__ import annotations

import os
import struct
import subprocess
from io import BytesIO
from pathlib import Path
from typing import IO, Dict, List, Optional, Sequence

import pytest
from elftools.elf.elffile import ELFFile

from tests.conftest import Require
from udsprobe.symbols.elf_file import ElfFile, Segment
from udsprobe.symbols.elf_image import ElfImage
from udsprobe.symbols.function_table import Function
from udsprobe.symbols.go.code_base import code_base
from udsprobe.symbols.go.functions import go_program
from udsprobe.symbols.go.table import GoTable

CODE = Path(__file__).parent.parent / "workloads" / "code"
FUNCTION = "STT_FUNC"
# The linker's name for what is written in assembly; the runtime's table has none.
ASSEMBLY = (".abi0", ".abiinternal")


def built(folder: Path, require: Require, *options: str) -> Path:
    made = folder / "hot"
    argv = [require("go")["go"], "build", *options, "-o", str(made), str(CODE / "hot.go")]
    cgo = "1" if EXTERNAL in options else "0"
    environment = {**os.environ, "CGO_ENABLED": cgo, "GOFLAGS": "", "GOTOOLCHAIN": "local"}
    subprocess.run(argv, check=True, env=environment)
    return made


def symbols(elf: ELFFile) -> Dict[int, Sequence[str]]:
    """Address → names."""
    found: Dict[int, Sequence[str]] = {}
    for each in elf.get_section_by_name(".symtab").iter_symbols():
        if each["st_info"]["type"] == FUNCTION and each["st_size"]:
            found.setdefault(each["st_value"], []).append(each.name)  # type: ignore[attr-defined]
    return found


def functions(file: IO[bytes]) -> List[Function]:
    program = go_program(ElfFile(file))
    return [] if program is None else program.functions()


def plain(name: str) -> str:
    for ending in ASSEMBLY:
        name = name[: -len(ending)] if name.endswith(ending) else name
    return name


EXTERNAL = "-ldflags=-linkmode=external"


@pytest.mark.parametrize(
    "options",
    [(), ("-buildmode=pie",), (EXTERNAL,), ("-buildmode=pie", EXTERNAL)],
    ids=["exe", "pie", "exe-linked-with-c", "pie-linked-with-c"],
)
def test_each_is_where_its_symbol_is(
    options: Sequence[str], tmp_path: Path, require: Require
) -> None:
    with built(tmp_path, require, *options).open("rb") as file:
        elf = ELFFile(file)
        by_symbol, found = symbols(elf), functions(file)
    assert len(found) > 1000
    known = [each for each in found if each.start in by_symbol]
    assert len(known) > 0.95 * len(found)
    for each in known:
        # The linker writes the middle dot of names that no source has as a dot.
        assert each.name.decode().replace("·", ".") in [
            plain(name) for name in by_symbol[each.start]
        ]


@pytest.mark.parametrize("how", ["-ldflags=-s", "strip"])
def test_a_stripped_program_has_them(how: str, tmp_path: Path, require: Require) -> None:
    whole = built(tmp_path, require)
    with whole.open("rb") as file:
        (planted,) = (each for each in functions(file) if each.name == b"main.plantedDigest")
    if how == "strip":
        subprocess.run([require("strip")["strip"], str(whole)], check=True)
    else:
        built(tmp_path, require, how)
    with whole.open("rb") as file:
        image = ElfImage(file)
    assert image.is_stripped
    found = image.functions.at(planted.start)
    assert found is not None and found.name == planted.name


def test_caddy_as_it_is_packaged(require: Require) -> None:
    """With C code, by Go 1.19."""
    with Path(require("caddy")["caddy"]).open("rb") as file:
        names = {each.name for each in functions(file)}
    assert {b"runtime.mallocgc", b"net/http.(*conn).serve"} <= names


def test_a_table_that_lies_has_no_wrong_names(tmp_path: Path, require: Require) -> None:
    """One that says that the code begins elsewhere, where it is proved, and one with too many."""
    raw = built(tmp_path, require).read_bytes()
    section = ELFFile(BytesIO(raw)).get_section_by_name(".gopclntab")["sh_offset"]
    truth = functions(BytesIO(raw))
    for place, value in ((8 + 16, 0x1234), (8, 1 << 40), (8 + 24, 1 << 40)):
        lying = bytearray(raw)
        struct.pack_into("<Q", lying, section + place, value)
        assert functions(BytesIO(bytes(lying))) == (truth if value == 0x1234 else [])


class Program:
    """Of functions that save the frame pointer first; its code begins where its segment does."""

    def __init__(self, begins: int, functions: int) -> None:
        self.image = (b"\x55" + bytes(15)) * functions
        self.segments = [Segment(0, len(self.image), begins, True)]

        self._file = BytesIO(self.image)

    code = ElfFile.code

    def section(self, name: bytes) -> None:
        """None of any name."""


def table_of(functions: int, text: int) -> GoTable:
    entries_bytes = 8 * functions + 4
    entries = b"".join(struct.pack("<II", 16 * at, entries_bytes) for at in range(functions))
    told = (
        entries + struct.pack("<I", 16 * functions) + bytes(16) + struct.pack("<I", 0) + bytes(24)
    )
    # No depth for a byte, then 8 to the end.
    return GoTable(bytes([2, 1, 16, 15, 0]) + told, 0, 1, functions, text, 0, 0, 5, 0, 0, 41)


@pytest.mark.parametrize(("text", "expected"), [(0x1000, 0x1000), (0x1008, None)])
def test_the_first_instruction_of_a_program_proves_where_its_code_begins(
    text: int, expected: Optional[int]
) -> None:
    assert code_base(Program(0x1000, 40), table_of(40, text)) == expected  # type: ignore[arg-type]
