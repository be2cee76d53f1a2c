"""Functions of an ELF file: its symbol tables, those of its debug file, and where it is loaded."""

from __future__ import annotations

import lzma
import struct
from io import BytesIO
from typing import IO, Iterator, List, NamedTuple, Optional, Tuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from udsprobe.symbols.function_table import Function, FunctionTable
from udsprobe.symbols.go_functions import go_functions

TABLE_BYTES_MAX = 128 << 20
"""Of one symbol table with its names: several times those of a browser."""

SECTIONS_MAX = 20_000
SEGMENTS_MAX = 1_000
NAME_BYTES_MAX = 4096
EXPANDED_BYTES_MAX = 64 << 20
_SYMBOL = struct.Struct("<IBBHQQ")
_FUNCTION, _INDIRECT, _UNDEFINED = 2, 10, 0
_LOADED, _EXECUTABLE = "PT_LOAD", 1
# What the reader raises for lies that it was not written for, too.
_DAMAGE = (
    *(ELFError, ValueError, KeyError, IndexError, struct.error, UnicodeError, OverflowError),
    *(AttributeError, TypeError, AssertionError, MemoryError, RecursionError, ZeroDivisionError),
)


class Segment(NamedTuple):
    """A loadable part: `size_bytes` at `offset` of the file go to `address`."""

    offset: int
    size_bytes: int
    address: int


class ElfImage:
    """One file.

    Args:
        file: open to read; read here, and not kept.

    Attributes:
        segments: executable ones.
        build_id: hexadecimal; empty when it has none.
        debug_link: name of the file with its symbols; empty when it names none.
        functions: of its own tables.
        is_stripped: it has no symbols but those that it exports; of Go, no symbols at all.

    Raises:
        ValueError: it is no 64-bit little-endian ELF file, or is damaged.
    """

    def __init__(self, file: IO[bytes]) -> None:
        try:
            elf = ELFFile(file)
            if elf.elfclass != 64 or not elf.little_endian:
                raise ValueError("not a 64-bit little-endian file")
            if elf.num_sections() > SECTIONS_MAX or elf.num_segments() > SEGMENTS_MAX:
                raise ValueError("more sections than any program has")
            self.segments = list(_segments(elf))
            self.build_id = _build_id(elf)
            self.debug_link = _debug_link(elf)
            self.functions = FunctionTable(_functions(elf, ".symtab"))
            self.is_stripped = not len(self.functions)
            if self.is_stripped:
                exported = _functions(elf, ".dynsym")
                self.functions = FunctionTable([*exported, *_mini(elf), *go_functions(elf)])
        except _DAMAGE as error:
            raise ValueError(f"damaged ELF file: {error}") from error

    def address_of(self, offset: int) -> Optional[int]:
        """Of a place in the file: its address in the symbol tables."""
        for segment in self.segments:
            if segment.offset <= offset < segment.offset + segment.size_bytes:
                return offset - segment.offset + segment.address
        return None


def _segments(elf: ELFFile) -> Iterator[Segment]:
    for each in elf.iter_segments(_LOADED):
        if each["p_flags"] & _EXECUTABLE:
            yield Segment(each["p_offset"], each["p_filesz"], each["p_vaddr"])


def _functions(elf: ELFFile, name: str) -> Iterator[Function]:
    table = elf.get_section_by_name(name)
    if table is None or table["sh_entsize"] != _SYMBOL.size or table["sh_type"] == "SHT_NOBITS":
        return
    names = elf.get_section(table["sh_link"])
    # What is compressed could expand without end.
    if table.compressed or names.compressed:
        return
    if table["sh_size"] + names["sh_size"] > TABLE_BYTES_MAX:
        return
    raw, texts = table.data(), names.data()
    whole = len(raw) - len(raw) % _SYMBOL.size
    for at, info, _, section, start, size_bytes in _SYMBOL.iter_unpack(raw[:whole]):
        if info & 0xF in (_FUNCTION, _INDIRECT) and section != _UNDEFINED and at < len(texts):
            end = texts.find(b"\0", at, at + NAME_BYTES_MAX)
            text = texts[at : end if end >= 0 else at + NAME_BYTES_MAX]
            if text:
                yield Function(start, size_bytes, text)


def _mini(elf: ELFFile) -> List[Function]:
    """Of `.gnu_debugdata`, where Fedora keeps the names of what is not exported."""
    section = elf.get_section_by_name(".gnu_debugdata")
    if section is None or section.compressed or section["sh_size"] > EXPANDED_BYTES_MAX:
        return []
    try:
        expanded = lzma.LZMADecompressor().decompress(section.data(), EXPANDED_BYTES_MAX)
    except lzma.LZMAError:
        return []
    return list(_functions(ELFFile(BytesIO(expanded)), ".symtab"))


def _build_id(elf: ELFFile) -> str:
    section = elf.get_section_by_name(".note.gnu.build-id")
    if section is None or section.compressed or section["sh_size"] > NAME_BYTES_MAX:
        return ""
    raw: bytes = section.data()
    return raw[16:].hex()


def _debug_link(elf: ELFFile) -> str:
    section = elf.get_section_by_name(".gnu_debuglink")
    if section is None or section.compressed or section["sh_size"] > NAME_BYTES_MAX:
        return ""
    name: bytes = section.data().split(b"\0", 1)[0]
    text = name.decode("ascii", "replace")
    return "" if "/" in text or text in (".", "..") else text


def debug_names(image: ElfImage, path: bytes) -> Tuple[str, ...]:
    """Where distributions put the file with an image's symbols, the surest first."""
    found = []
    if len(image.build_id) > 2:
        found.append(f"/usr/lib/debug/.build-id/{image.build_id[:2]}/{image.build_id[2:]}.debug")
    if image.debug_link:
        place = path.decode("utf-8", "surrogateescape").rpartition("/")[0]
        found += [f"{place}/.debug/{image.debug_link}", f"/usr/lib/debug{place}/{image.debug_link}"]
    return tuple(found)
