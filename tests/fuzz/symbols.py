"""What names code, from targets: ELF files, perf maps, lists of mappings."""

from __future__ import annotations

import platform
from io import BytesIO
from pathlib import Path
from typing import List, Tuple

import udsprobe
from tests.fuzz.target import Target
from tests.visible import invisible
from udsprobe.symbols.dwarf.answers import read
from udsprobe.symbols.dwarf.debug_files import debug_names
from udsprobe.symbols.elf_image import ElfImage
from udsprobe.symbols.mappings import AddressSpace, mappings
from udsprobe.symbols.perf_map import code_name, entries

OBJECT = Path(udsprobe.__file__).parent / "_bpf" / f"stacks.{platform.machine()}.bpf.o"
PERF_MAP = (
    b"7f00 40 LazyCompile:*hash /srv/a b.js:12:3\n7f40 10 py::verify:/srv/a.py\n0 0 x\n9 z y\n"
)
DEBUG_ANSWER = (
    b'{"places":[["own","/a.c",1],["_ZN1a1bEv","/b.cpp",20],[null,null,null]],"spans":[[16,64]],'
    b'"calls":[[1,-1],[2,0]],"stretches":[[18,20,0],[20,28,1]]}'
)
MAPS = (
    b"5000-6000 r-xp 00001000 fe:01 77 /usr/bin/a b\n7000-8000 r-xp 0 00:00 0 [vdso]\nq-r x 1 2 3\n"
)
ADDRESSES = (0, 1, 19, 24, 0x5000, 0x7F00, 0x7F41, (1 << 64) - 1)


def _elf(data: bytes) -> None:
    image = ElfImage(BytesIO(data))
    for address in ADDRESSES:
        image.address_of(address)
        image.functions.at(address)
    assert all(".." not in name.split("/") for name in debug_names(image, b"/usr/bin/x"))


def _perf_map(data: bytes) -> None:
    table = entries(data)
    for address in ADDRESSES:
        found = table.at(address)
        if found is not None:
            name = code_name(found.name)
            assert not invisible(name.function) and not invisible(name.file or "")


def _maps(data: bytes) -> None:
    space = AddressSpace(mappings(data))
    for address in ADDRESSES:
        found = space.at(address)
        assert found is None or found.start <= address < found.end


def _debug_answer(data: bytes) -> None:
    told = read(data)
    for address in ADDRESSES:
        for each in told.calls_at(address):
            assert not invisible(f"{each.name}{each.file}")


def _objects() -> List[bytes]:
    return [OBJECT.read_bytes()] if OBJECT.exists() else []


TARGETS: Tuple[Target, ...] = (
    Target("elf", _objects, _elf, (ValueError,)),
    Target("debug-answer", lambda: [DEBUG_ANSWER], _debug_answer, (ValueError,)),
    Target("perf-map", lambda: [PERF_MAP], _perf_map),
    Target("mappings", lambda: [MAPS], _maps),
)
