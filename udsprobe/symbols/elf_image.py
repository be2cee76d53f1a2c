"""Functions of an ELF file: its symbol tables, those of its debug file, and where it is loaded."""

from __future__ import annotations

import lzma
import struct
from contextlib import closing
from io import BytesIO
from itertools import chain
from typing import IO, Iterator, List, Optional, Tuple

from udsprobe.symbols.elf_file import ElfFile, Section, numbered
from udsprobe.symbols.function_table import Function, FunctionTable
from udsprobe.symbols.go.functions import GoFrames, go_program
from udsprobe.symbols.mappings import Mapping
from udsprobe.symbols.ruby.image import RubyImage, ruby_image

TABLE_BYTES_MAX = 128 << 20
"""Of one symbol table with its names: several times those of a browser."""

NAME_BYTES_MAX = 4096
EXPANDED_BYTES_MAX = 64 << 20
DEBUG_BYTES_MAX = 192 << 20
"""Of debug information that is compressed: what is not, is read where it is."""

PYTHON_RUNTIME, PYTHON_VERSION = b"_PyRuntime", b"Py_Version"
"""Data of CPython that is looked for by name."""

ASYNCIO_OFFSETS = b".AsyncioDebug"
"""A section, from CPython 3.14 on: data without a symbol where those of the file were taken out."""

V8_PREFIX = b"v8dbg_"
PHP_GLOBALS = b"executor_globals"
RUBY_VERSION = b"ruby_version"
HOTSPOT_PREFIX = b"gHotSpotVM"

_WHOLE_NAMES = (PYTHON_RUNTIME, PYTHON_VERSION, PHP_GLOBALS, RUBY_VERSION)
_SYMBOL = struct.Struct("<IBBHQQ")
# With z: compressed, as it was done before sections had a mark for that.
_DEBUG_INFO = (b".debug_info", b".zdebug_info")
_FUNCTION, _INDIRECT, _UNDEFINED = 2, 10, 0


class ElfImage:
    """One file.

    Args:
        file: open to read; read here, and not kept.

    Attributes:
        segments: executable ones.
        build_id: hexadecimal; empty when it has none.
        debug_link: name of the file with its symbols; empty when it names none.
        shared_link, shared_build_id: of the file that it shares debug information with (dwz's
            `.gnu_debugaltlink`); empty when it does not.
        has_debug_info: about its functions, which takes at most `DEBUG_BYTES_MAX` to expand.
        functions: of its own tables.
        objects: addresses of `PYTHON_RUNTIME`, `PYTHON_VERSION`, `PHP_GLOBALS`, `RUBY_VERSION`,
            of what V8 and HotSpot export for debuggers (`V8_PREFIX`, `HOTSPOT_PREFIX`), and of the
            section `ASYNCIO_OFFSETS`, as far as they are in it.
        go_frames: of Go's functions; None: it has none.
        ruby: where the variables of Ruby are; None: it is not in it.
        is_stripped: it has no symbols but those that it exports; of Go, no symbols at all.

    Raises:
        ValueError: it is no 64-bit little-endian ELF file, or is damaged.
    """

    def __init__(self, file: IO[bytes]) -> None:
        try:
            with closing(ElfFile(file)) as elf:
                self._read(elf)
        except (struct.error, MemoryError, OverflowError, OSError) as error:
            raise ValueError(f"damaged ELF file: {error}") from error

    def _read(self, elf: ElfFile) -> None:
        self.segments = [each for each in elf.segments if each.is_executable]
        self.build_id = _build_id(elf)
        self.debug_link = _debug_link(elf)
        self.shared_link, self.shared_build_id = _shared_link(elf)
        self.has_debug_info = _has_debug_info(elf)
        self.functions = FunctionTable(_functions(elf, b".symtab"))
        self.objects = dict(chain(*(_objects(elf, table) for table in (b".symtab", b".dynsym"))))
        asyncio = elf.section(ASYNCIO_OFFSETS)
        if asyncio is not None and asyncio.address:
            self.objects[ASYNCIO_OFFSETS] = asyncio.address
        self.ruby: Optional[RubyImage] = ruby_image(elf) if RUBY_VERSION in self.objects else None
        self.is_stripped = not len(self.functions)
        go = go_program(elf)
        self.go_frames: Optional[GoFrames] = None if go is None else go.frames
        if self.is_stripped:
            exported = _functions(elf, b".dynsym")
            own = [] if go is None else go.functions()
            self.functions = FunctionTable([*exported, *_mini(elf), *own])

    def loaded_at(self, mapping: Mapping) -> Optional[int]:
        """What to add to its addresses where an executable part of it is mapped."""
        for segment in self.segments:
            inside = segment.offset - mapping.offset
            if 0 <= inside < mapping.end - mapping.start:
                return mapping.start + inside - segment.address
        return None

    def address_of(self, offset: int) -> Optional[int]:
        """Of a place in the file: its address in the symbol tables."""
        for segment in self.segments:
            if segment.offset <= offset < segment.offset + segment.size_bytes:
                return offset - segment.offset + segment.address
        return None


def _table(elf: ElfFile, name: bytes) -> Tuple[bytes, bytes]:
    """Entries of a symbol table, and their names; empty where it is none that can be read."""
    table = elf.section(name)
    if table is None or table.entry_bytes != _SYMBOL.size or not table.is_raw:
        return b"", b""
    names = numbered(elf.sections, table.link)
    # What is compressed could expand without end.
    if names is None or not names.is_raw or table.size_bytes + names.size_bytes > TABLE_BYTES_MAX:
        return b"", b""
    raw = elf.data(table)
    return raw[: len(raw) - len(raw) % _SYMBOL.size], elf.data(names)


def _objects(elf: ElfFile, name: bytes) -> Iterator[Tuple[bytes, int]]:
    raw, texts = _table(elf, name)
    wholes = (each + b"\0" for each in _WHOLE_NAMES)
    wanted = (*wholes, V8_PREFIX, HOTSPOT_PREFIX)
    if not any(each in texts for each in wanted):
        return
    for at, _, _, section, start, _ in _SYMBOL.iter_unpack(raw):
        if section != _UNDEFINED and texts.startswith(wanted, at):
            yield texts[at : texts.index(b"\0", at)], start


def _functions(elf: ElfFile, name: bytes) -> Iterator[Function]:
    raw, texts = _table(elf, name)
    for at, info, _, section, start, size_bytes in _SYMBOL.iter_unpack(raw):
        if info & 0xF in (_FUNCTION, _INDIRECT) and section != _UNDEFINED and at < len(texts):
            end = texts.find(b"\0", at, at + NAME_BYTES_MAX)
            text = texts[at : end if end >= 0 else at + NAME_BYTES_MAX]
            if text:
                yield Function(start, size_bytes, text)


def _mini(elf: ElfFile) -> List[Function]:
    """Of `.gnu_debugdata`, where Fedora keeps the names of what is not exported."""
    section = _small(elf, b".gnu_debugdata", EXPANDED_BYTES_MAX)
    if section is None:
        return []
    try:
        expanded = lzma.LZMADecompressor().decompress(elf.data(section), EXPANDED_BYTES_MAX)
        with closing(ElfFile(BytesIO(expanded))) as mini:
            return list(_functions(mini, b".symtab"))
    except (lzma.LZMAError, ValueError):
        return []


def _small(elf: ElfFile, name: bytes, most_bytes: int = NAME_BYTES_MAX) -> Optional[Section]:
    section = elf.section(name)
    if section is None or not section.is_raw or section.size_bytes > most_bytes:
        return None
    return section


def _build_id(elf: ElfFile) -> str:
    section = _small(elf, b".note.gnu.build-id")
    return "" if section is None else elf.data(section)[16:].hex()


def _debug_link(elf: ElfFile) -> str:
    section = _small(elf, b".gnu_debuglink")
    if section is None:
        return ""
    text = elf.data(section).split(b"\0", 1)[0].decode("ascii", "replace")
    return "" if "/" in text or text in (".", "..") else text


def _has_debug_info(elf: ElfFile) -> bool:
    is_there = any(elf.section(each) is not None for each in _DEBUG_INFO)
    packed = [each for each in elf.sections if each.is_compressed]
    return is_there and sum(map(elf.expanded_bytes, packed)) <= DEBUG_BYTES_MAX


def _shared_link(elf: ElfFile) -> Tuple[str, str]:
    section = _small(elf, b".gnu_debugaltlink")
    if section is None:
        return "", ""
    name, _, build_id = elf.data(section).partition(b"\0")
    return name.decode("utf-8", "surrogateescape"), build_id.hex()
