"""The CPython that a process runs: in which file it is, its version, its layout."""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from typing import List, NamedTuple, Optional, Sequence

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.printable import printable
from udsprobe.symbols.cpython.layouts import RUNTIME_BYTES, Layout, Version, layout_of
from udsprobe.symbols.elf_image import PYTHON_RUNTIME, PYTHON_VERSION
from udsprobe.symbols.mappings import Mapping
from udsprobe.symbols.target_images import Image, TargetImages

_FILE = re.compile(rb"(?:lib)?python3\.(\d{1,2})(?!\d)")
# An extension module's file, as its suffix says.
_MODULE = b".cpython-3"


class Interpreter(NamedTuple):
    """Of one process.

    Attributes:
        module: name of the file with its code.
    """

    layout: Layout
    module: str


def interpreter_of(
    pid: int, mapped: Sequence[Mapping], images: TargetImages, memory: ProcessMemory
) -> Optional[Interpreter]:
    """None where there is none, or none whose layout is known."""
    for mapping in _candidates(mapped):
        image = images.of(pid, mapping)
        with suppress(OSError):
            layout = _layout(image, mapping, memory)
            if layout is not None:
                return Interpreter(layout, printable(mapping.name))
    return None


def _candidates(mapped: Sequence[Mapping]) -> List[Mapping]:
    """Its library, or what is called like its program; or any that has modules of it loaded."""
    files = [each for each in mapped if each.is_file]
    has_modules = any(_MODULE in each.path for each in files)
    return [
        each
        for each in files
        if _FILE.match(each.name) or (has_modules and b".so" not in each.path)
    ]


def _layout(image: Image, mapping: Mapping, memory: ProcessMemory) -> Optional[Layout]:
    objects = image.objects_at(mapping)
    at = objects.get(PYTHON_RUNTIME)
    if at is None:
        return None
    version = _by_symbol(objects.get(PYTHON_VERSION), memory)
    return layout_of(version or _by_name(mapping.name), at, memory.read(at, RUNTIME_BYTES))


def _by_symbol(address: Optional[int], memory: ProcessMemory) -> Optional[Version]:
    """`Py_Version` is there from 3.11 on."""
    if address is None:
        return None
    (number,) = struct.unpack("<Q", memory.read(address, 8))
    return number >> 24 & 0xFF, number >> 16 & 0xFF


def _by_name(name: bytes) -> Optional[Version]:
    found = _FILE.match(name)
    return None if found is None else (3, int(found[1]))
