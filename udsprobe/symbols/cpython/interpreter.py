"""The CPython that a process runs: in which file it is, its version, its layout."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import List, NamedTuple, Optional, Sequence

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.printable import printable
from udsprobe.symbols.cpython.layouts import RUNTIME_BYTES, Layout, Version, layout_of
from udsprobe.symbols.cpython.tasks.layouts import ASYNCIO_BYTES
from udsprobe.symbols.elf_image import ASYNCIO_OFFSETS, PYTHON_RUNTIME, PYTHON_VERSION
from udsprobe.symbols.mappings import Mapping
from udsprobe.symbols.target_images import Image, TargetImages

_FILE = re.compile(rb"(?:lib)?python3\.(\d{1,2})(?!\d)")
# An extension module's file, as its suffix says.
_MODULE, _ASYNCIO = b".cpython-3", b"_asyncio."


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
            asyncio = _asyncio(pid, [mapping, *mapped], images, memory)
            layout = _layout(image, mapping, memory, asyncio)
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


def _asyncio(
    pid: int, files: Sequence[Mapping], images: TargetImages, memory: ProcessMemory
) -> bytes:
    """What asyncio tells debuggers of its tasks; empty where it does not, or is not imported.

    Args:
        files: the first is the interpreter's, which may have that module built in.
    """
    modules = (each for each in files[1:] if each.name.startswith(_ASYNCIO))
    for each in (files[0], *modules):
        at = images.of(pid, each).objects_at(each).get(ASYNCIO_OFFSETS)
        if at is not None:
            with suppress(OSError):
                return memory.read(at, ASYNCIO_BYTES)
    return b""


def _layout(
    image: Image, mapping: Mapping, memory: ProcessMemory, asyncio: bytes
) -> Optional[Layout]:
    objects = image.objects_at(mapping)
    at = objects.get(PYTHON_RUNTIME)
    if at is None:
        return None
    version = _by_symbol(objects.get(PYTHON_VERSION), memory)
    version = version or _by_name(mapping.name)
    return layout_of(version, at, memory.read(at, RUNTIME_BYTES), asyncio)


def _by_symbol(address: Optional[int], memory: ProcessMemory) -> Optional[Version]:
    """`Py_Version` is there from 3.11 on."""
    if address is None:
        return None
    number = memory.word(address)
    return number >> 24 & 0xFF, number >> 16 & 0xFF


def _by_name(name: bytes) -> Optional[Version]:
    found = _FILE.match(name)
    return None if found is None else (3, int(found[1]))
