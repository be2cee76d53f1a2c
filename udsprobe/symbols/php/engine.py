"""The PHP that a process runs: in which file it is, and where it keeps what it executes."""

from __future__ import annotations

import platform
import struct
from contextlib import suppress
from typing import List, NamedTuple, Optional, Sequence

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.php_frames import PhpLayout
from udsprobe.printable import printable
from udsprobe.symbols.elf_image import PHP_GLOBALS
from udsprobe.symbols.mappings import Mapping
from udsprobe.symbols.php.offsets import CODE_BYTES_MAX, Code, layout_of
from udsprobe.symbols.target_images import Image, TargetImages

_SCOPE, _FILENAME = b"zend_get_executed_scope", b"zend_get_executed_filename_ex"
_NAME, _LIBRARY = b"php", b".so"
_IS_X86 = platform.machine() == "x86_64"


class Engine(NamedTuple):
    """Of one process.

    Attributes:
        module: name of the file with its code.
    """

    layout: PhpLayout
    module: str


def engine_of(
    pid: int, mapped: Sequence[Mapping], images: TargetImages, memory: ProcessMemory
) -> Optional[Engine]:
    """None where there is none, or none that tells: with threads (ZTS) it has no such globals."""
    for mapping in _candidates(mapped) if _IS_X86 else ():
        with suppress(OSError, struct.error):
            layout = _layout(images.of(pid, mapping), mapping, memory)
            if layout is not None:
                return Engine(layout, printable(mapping.name))
    return None


def _candidates(mapped: Sequence[Mapping]) -> List[Mapping]:
    """What is called like it; or any program that has modules of it loaded."""
    files = [each for each in mapped if each.is_file]
    has_modules = any(b"/php" in each.path for each in files)
    return [
        each for each in files if _NAME in each.name or (has_modules and _LIBRARY not in each.name)
    ]


def _layout(image: Image, mapping: Mapping, memory: ProcessMemory) -> Optional[PhpLayout]:
    at = image.objects_at(mapping).get(PHP_GLOBALS)
    if at is None:
        return None
    scope, filename = (_code(image, mapping, name, memory) for name in (_SCOPE, _FILENAME))
    if scope is None or filename is None:
        return None

    return layout_of(at, scope, filename, memory.word)


def _code(image: Image, mapping: Mapping, name: bytes, memory: ProcessMemory) -> Optional[Code]:
    found = image.functions.named(name)
    loaded_at = None if image.elf is None else image.elf.loaded_at(mapping)
    if found is None or loaded_at is None:
        return None
    address = found.start + loaded_at
    return memory.read(address, min(found.size_bytes, CODE_BYTES_MAX)), address
