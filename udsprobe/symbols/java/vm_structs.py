"""What HotSpot tells of its own objects, for the tools that look at it from outside.

libjvm exports where the tables are, and how their entries look (src/hotspot/share/runtime/
vmStructs.cpp): the fields of its types with their offsets, or addresses where they are static; the
sizes of types; constants. JDK 8 to 28 have them.
"""

from __future__ import annotations

import struct
from typing import Collection, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.elf_image import HOTSPOT_PREFIX

ENTRIES_MAX, _ENTRY_BYTES_MAX = 20_000, 256
NAME_BYTES_MAX = 128
_WORD, _NUMBER = struct.Struct("<Q"), struct.Struct("<i")

Field = Tuple[bytes, bytes]
"""Names of a type and its field."""


class VmStructs(NamedTuple):
    """Of one process: what was asked for, as far as it is told.

    Attributes:
        places: offsets in bytes; of static fields, addresses.
        sizes: of types, in bytes.
    """

    places: Mapping[Field, int]
    sizes: Mapping[bytes, int]
    constants: Mapping[bytes, int]


class VmTables:
    """Reads them.

    Args:
        exported: where the process has the symbols that begin with `HOTSPOT_PREFIX`.
    """

    def __init__(self, exported: Mapping[bytes, int], memory: ProcessMemory) -> None:
        self._exported, self._memory = exported, memory
        self._names: Dict[int, bytes] = {}

    def read(
        self, fields: Collection[Field], types: Collection[bytes], constants: Collection[bytes]
    ) -> VmStructs:
        """What is told of these.

        Raises:
            OSError: a table is not there, cannot be read, or is none.
        """
        return VmStructs(
            dict(self._fields(frozenset(fields))),
            dict(self._sizes(frozenset(types))),
            dict(self._constants(frozenset(constants))),
        )

    def _fields(self, wanted: Collection[Field]) -> Iterator[Tuple[Field, int]]:
        types = {name for name, _ in wanted}
        entry = (b"TypeName", b"FieldName", b"Offset", b"Address")
        for kind, field, offset, address in self._entries(b"Struct", entry):
            if self._name(kind) in types:
                name = (self._name(kind), self._name(field))
                if name in wanted:
                    yield name, address or offset

    def _sizes(self, wanted: Collection[bytes]) -> Iterator[Tuple[bytes, int]]:
        for kind, size_bytes in self._entries(b"Type", (b"TypeName", b"Size")):
            if self._name(kind) in wanted:
                yield self._name(kind), size_bytes

    def _constants(self, wanted: Collection[bytes]) -> Iterator[Tuple[bytes, int]]:
        for name, value in self._entries(b"IntConstant", (b"Name", b"Value")):
            if self._name(name) in wanted:
                yield self._name(name), _NUMBER.unpack(_WORD.pack(value)[: _NUMBER.size])[0]

    def _entries(self, table: bytes, wanted: Sequence[bytes]) -> Iterator[List[int]]:
        """Words of each entry, up to the first whose name is 0."""
        stride = self._told(table + b"EntryArrayStride")
        offsets = [self._told(table + b"Entry" + name + b"Offset") for name in wanted]
        if not 0 < max(offsets) + _WORD.size <= stride <= _ENTRY_BYTES_MAX:
            raise OSError("no table of HotSpot")
        at = self._told(table + b"s")
        for _ in range(ENTRIES_MAX):
            raw = self._memory.read(at, stride)
            words = [int(_WORD.unpack_from(raw, offset)[0]) for offset in offsets]
            if not words[0]:
                return
            yield words
            at += stride

    def _told(self, name: bytes) -> int:
        address = self._exported.get(HOTSPOT_PREFIX + name)
        if address is None:
            raise OSError(f"not exported: {name!r}")
        return self._memory.word(address)

    def _name(self, address: int) -> bytes:
        if address not in self._names:
            self._names[address] = text_at(self._memory, address) if address else b""
        return self._names[address]


def text_at(memory: ProcessMemory, address: int) -> bytes:
    """A text of C, up to `NAME_BYTES_MAX` of it.

    Raises:
        OSError: it cannot be read.
    """
    try:
        raw = memory.read(address, NAME_BYTES_MAX)
    except OSError:
        # Its memory ends with the page.
        raw = memory.read(address, min(NAME_BYTES_MAX, -address % 4096 or NAME_BYTES_MAX))
    return raw.partition(b"\0")[0]
