"""What an ELF file with Ruby in it says of itself."""

from __future__ import annotations

import struct
from typing import List, NamedTuple, Optional

from udsprobe.symbols.elf_file import ElfFile

DATA_BYTES_MAX = 4 << 20
"""Of its variables that are looked through; libruby 3.3 has 145 KB."""

_RELOCATIONS_BYTES_MAX = 32 << 20
_RELOCATION = struct.Struct("<QQq")
# x86-64 ABI, 4.4: the number of the module that a thread-local variable is in.
_MODULE_NUMBER = 16


class RubyImage(NamedTuple):
    """Addresses in the file's own numbers.

    Attributes:
        data: where its variables begin.
        data_bytes: how many there are, at most `DATA_BYTES_MAX`.
        module_at: of a word that has the number of its thread-local words' module; None: it has
            none, as the program itself, whose number is 1.
    """

    data: int
    data_bytes: int
    module_at: Optional[int]


def ruby_image(elf: ElfFile) -> Optional[RubyImage]:
    """None where it has no variables."""
    parts = [each for each in elf.segments if each.is_writable and each.memory_bytes]
    if not parts:
        return None
    size_bytes = min(parts[-1].memory_bytes, DATA_BYTES_MAX)
    return RubyImage(parts[-1].address, size_bytes, next(iter(_module_words(elf)), None))


def _module_words(elf: ElfFile) -> List[int]:
    """Those for its own variables: no symbol is named for them."""
    section = elf.section(b".rela.dyn")
    if section is None or not section.is_raw or section.size_bytes > _RELOCATIONS_BYTES_MAX:
        return []
    raw = elf.data(section)
    whole = raw[: len(raw) - len(raw) % _RELOCATION.size]
    return [at for at, info, _ in _RELOCATION.iter_unpack(whole) if info == _MODULE_NUMBER]
