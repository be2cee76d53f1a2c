"""The Ruby that a process runs: in which file it is, its version, its layout."""

from __future__ import annotations

import platform
import re
import struct
from contextlib import suppress
from typing import List, NamedTuple, Optional, Sequence

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.printable import printable
from udsprobe.symbols.elf_image import RUBY_VERSION
from udsprobe.symbols.mappings import Mapping
from udsprobe.symbols.ruby.image import RubyImage
from udsprobe.symbols.ruby.layouts import Layout, Version, layout_of
from udsprobe.symbols.target_images import Image, TargetImages

_NAME, _LIBRARY, _MODULES = b"ruby", b".so", re.compile(rb"/ruby/|\.gem/|/gems/")
_VERSION = re.compile(rb"(\d{1,2})\.(\d{1,2})\.")
_IS_X86 = platform.machine() == "x86_64"
_PAGE_BYTES = 4096
_MODULE_MAX = 1 << 16
_OF_PROGRAM = 1


class Interpreter(NamedTuple):
    """Of one process.

    Attributes:
        module: name of the file with its code.
    """

    layout: Layout
    module: str


def has_interpreter(pid: int, mapped: Sequence[Mapping], images: TargetImages) -> bool:
    """It runs Ruby, or is about to."""
    return any(_image(images.of(pid, each)) for each in _candidates(mapped))


def interpreter_of(
    pid: int, mapped: Sequence[Mapping], images: TargetImages, memory: ProcessMemory
) -> Optional[Interpreter]:
    """None where there is none, or none whose layout is known."""
    for mapping in _candidates(mapped):
        with suppress(OSError, struct.error):
            layout = _layout(images.of(pid, mapping), mapping, memory)
            if layout is not None:
                return Interpreter(layout, printable(mapping.name))
    return None


def _candidates(mapped: Sequence[Mapping]) -> List[Mapping]:
    """What is called like it; or any program that has modules of it loaded."""
    files = [each for each in mapped if each.is_file] if _IS_X86 else []
    has_modules = any(_MODULES.search(each.path) for each in files)
    return [
        each for each in files if _NAME in each.name or (has_modules and _LIBRARY not in each.name)
    ]


def _image(image: Image) -> Optional[RubyImage]:
    return None if image.elf is None else image.elf.ruby


def _layout(image: Image, mapping: Mapping, memory: ProcessMemory) -> Optional[Layout]:
    version_at, ruby = image.objects_at(mapping).get(RUBY_VERSION), _image(image)
    loaded_at = None if image.elf is None else image.elf.loaded_at(mapping)
    if version_at is None or ruby is None or loaded_at is None:
        return None
    version, module = _version(version_at, memory), _module(ruby, loaded_at, memory)
    if version is None or not 0 < module < _MODULE_MAX:
        return None
    begin = -(-(ruby.data + loaded_at) // 8) * 8
    data = _there(begin, ruby.data_bytes, memory)
    return layout_of(version, module, begin, data, memory)


def _version(address: int, memory: ProcessMemory) -> Optional[Version]:
    found = _VERSION.match(memory.read(address, 6))
    return None if found is None else (int(found[1]), int(found[2]))


def _module(ruby: RubyImage, loaded_at: int, memory: ProcessMemory) -> int:
    if ruby.module_at is None:
        return _OF_PROGRAM
    return memory.word(ruby.module_at + loaded_at)


def _there(begin: int, size_bytes: int, memory: ProcessMemory) -> bytes:
    """By pages, up to the first that is not there."""
    found, at, end = bytearray(), begin, begin + size_bytes
    while at < end:
        size = min(_PAGE_BYTES - at % _PAGE_BYTES, end - at)
        try:
            found += memory.read(at, size)
        except OSError:
            break
        at += size
    return bytes(found)
