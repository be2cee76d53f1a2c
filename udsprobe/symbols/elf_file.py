"""Sections and segments of an ELF file, by elfutils' libelf, which libbpf needs, too."""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from io import BytesIO
from typing import IO, Any, Iterator, List, NamedTuple, Optional

LIBRARY = "libelf.so.1"
SECTIONS_MAX = 20_000
SEGMENTS_MAX = 1_000

# libelf.h and elf.h. Not mapped: who cuts a file off that is mapped here would end udsprobe.
_EV_CURRENT, _READ, _ELF = 1, 1, 3
_CLASS, _BYTE_ORDER, _64_BITS, _LITTLE = 4, 5, 2, 1
_LOADED, _EXECUTABLE, _WRITABLE, _NO_BITS, _COMPRESSED = 1, 1, 2, 8, 0x800
# Elf64_Chdr: type, expanded size, alignment.
_COMPRESSION = struct.Struct("<I4xQQ")
_pointer, _int, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_half, _word, _long = ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64


class _Header(ctypes.Structure):
    """The beginning of `Elf64_Ehdr`."""

    _fields_ = [
        *(("ident", ctypes.c_uint8 * 16), ("type", _half), ("machine", _half)),
        *(("version", _word), ("entry", _long)),
    ]


class _ProgramHeader(ctypes.Structure):
    """`Elf64_Phdr`."""

    _fields_ = [
        *(("type", _word), ("flags", _word), ("offset", _long), ("address", _long)),
        *(("physical", _long), ("file_bytes", _long), ("memory_bytes", _long), ("align", _long)),
    ]


class _SectionHeader(ctypes.Structure):
    """`Elf64_Shdr`."""

    _fields_ = [
        *(("name", _word), ("type", _word), ("flags", _long), ("address", _long)),
        *(("offset", _long), ("size_bytes", _long), ("link", _word), ("info", _word)),
        *(("align", _long), ("entry_bytes", _long)),
    ]


class Segment(NamedTuple):
    """A loadable part: `size_bytes` at `offset` of the file go to `address`, where it has
    `memory_bytes`: those behind are 0 at first.
    """

    offset: int
    size_bytes: int
    address: int
    is_executable: bool
    is_writable: bool = False
    memory_bytes: int = 0


class Section(NamedTuple):
    """A part with a name.

    Attributes:
        link: number of the section with its names.
        is_raw: its bytes are in the file as they are.
        is_compressed: they are there, but smaller.
        address: where it is loaded; 0: it is not.
    """

    name: bytes
    offset: int
    size_bytes: int
    entry_bytes: int
    link: int
    is_raw: bool
    is_compressed: bool = False
    address: int = 0


@cache
def libelf() -> Any:
    """The library, with types of its functions.

    Raises:
        OSError: it is not installed.
    """
    library = ctypes.CDLL(LIBRARY)
    library.elf_version(_EV_CURRENT)
    for name, result, arguments in (
        ("elf_begin", _pointer, [_int, _int, _pointer]),
        ("elf_memory", _pointer, [_pointer, _size]),
        ("elf_end", _int, [_pointer]),
        ("elf_kind", _int, [_pointer]),
        ("elf64_getehdr", ctypes.POINTER(_Header), [_pointer]),
        ("elf64_getphdr", ctypes.POINTER(_ProgramHeader), [_pointer]),
        ("elf64_getshdr", ctypes.POINTER(_SectionHeader), [_pointer]),
        ("elf_getphdrnum", _int, [_pointer, ctypes.POINTER(_size)]),
        ("elf_getshdrnum", _int, [_pointer, ctypes.POINTER(_size)]),
        ("elf_getshdrstrndx", _int, [_pointer, ctypes.POINTER(_size)]),
        ("elf_nextscn", _pointer, [_pointer, _pointer]),
        ("elf_strptr", ctypes.c_char_p, [_pointer, _size, _size]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class ElfFile:
    """Of 64 bits and little-endian. Its own numbers are believed as far as libelf does.

    Args:
        file: stays the caller's; open to read as long as this is used.

    Attributes:
        entry: address where the program starts.
        segments: loadable ones.
        sections: by their numbers, from 1 on at place 1.

    Raises:
        ValueError: it is no such file, or is damaged.
        OSError: there is no libelf.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._library = file, libelf()
        self._image = file.getvalue() if isinstance(file, BytesIO) else b""
        self._elf = (
            self._library.elf_memory(self._image, len(self._image))
            if self._image
            else self._library.elf_begin(file.fileno(), _READ, None)
        )
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give its memory back. May be called twice."""
        if self._elf:
            self._library.elf_end(self._elf)
        self._elf = None

    def section(self, name: bytes) -> Optional[Section]:
        """The first of that name."""
        return next((each for each in self.sections if each.name == name), None)

    def data(self, section: Section) -> bytes:
        """Its bytes, fewer where the file ends before; expanded by nobody."""
        self._file.seek(section.offset)
        return self._file.read(section.size_bytes)

    def part(self, offset: int, size_bytes: int) -> bytes:
        """Bytes of the file, as many as there are."""
        self._file.seek(offset)
        return self._file.read(size_bytes)

    def expanded_bytes(self, section: Section) -> int:
        """The size that a section says it has once it is expanded; 0 where that is cut off."""
        if not section.is_compressed:
            return section.size_bytes
        raw = self.part(section.offset, _COMPRESSION.size)
        return int(_COMPRESSION.unpack(raw)[1]) if len(raw) == _COMPRESSION.size else 0

    def code(self, address: int, size_bytes: int) -> bytes:
        """What is executed from an address on, as far as it is in one part of the file."""
        for each in self.segments:
            inside = address - each.address
            if each.is_executable and 0 <= inside < each.size_bytes:
                self._file.seek(each.offset + inside)
                return self._file.read(min(size_bytes, each.size_bytes - inside))
        return b""

    def _read(self) -> None:
        if not self._elf or self._library.elf_kind(self._elf) != _ELF:
            raise ValueError("not an ELF file, or damaged")
        header = self._library.elf64_getehdr(self._elf)
        ident = header.contents.ident if header else b"\0" * 16
        if (ident[_CLASS], ident[_BYTE_ORDER]) != (_64_BITS, _LITTLE):
            raise ValueError("not a 64-bit little-endian file")
        self.entry = int(header.contents.entry)
        self.segments = list(self._segments())
        self.sections = list(self._sections())

    def _count(self, of: str, most: int) -> int:
        found = _size()
        if getattr(self._library, of)(self._elf, ctypes.byref(found)) or found.value > most:
            raise ValueError("more sections or segments than any program has")
        return found.value

    def _segments(self) -> Iterator[Segment]:
        count = self._count("elf_getphdrnum", SEGMENTS_MAX)
        headers = self._library.elf64_getphdr(self._elf) if count else None
        for each in headers[:count] if headers else ():
            if each.type == _LOADED:
                yield Segment(
                    *(each.offset, each.file_bytes, each.address),
                    is_executable=bool(each.flags & _EXECUTABLE),
                    is_writable=bool(each.flags & _WRITABLE),
                    memory_bytes=each.memory_bytes,
                )

    def _sections(self) -> Iterator[Section]:
        if not self._count("elf_getshdrnum", SECTIONS_MAX):
            return
        names = self._count("elf_getshdrstrndx", SECTIONS_MAX)
        yield Section(b"", 0, 0, 0, 0, False)
        section = self._library.elf_nextscn(self._elf, None)
        while section:
            yield self._section(self._library.elf64_getshdr(section), names)
            section = self._library.elf_nextscn(self._elf, section)

    def _section(self, header: Any, names: int) -> Section:
        if not header:
            raise ValueError("damaged section")
        found = header.contents
        is_there = found.type != _NO_BITS
        is_compressed = is_there and bool(found.flags & _COMPRESSED)
        name = self._library.elf_strptr(self._elf, names, found.name) or b""
        return Section(
            *(name, found.offset, found.size_bytes, found.entry_bytes, found.link),
            is_raw=is_there and not is_compressed,
            is_compressed=is_compressed,
            address=found.address,
        )


def numbered(sections: List[Section], number: int) -> Optional[Section]:
    """None where a file names a section that it does not have."""
    return sections[number] if 0 < number < len(sections) else None
