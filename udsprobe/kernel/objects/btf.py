"""Layouts and constants out of BTF, the type information the built object carries.

Knows the BTF encoding (Linux `include/uapi/linux/btf.h`) and nothing of
udsprobe's own types; needs no root. Bit-fields and unions are not decoded:
`bpf/udsprobe.h` has none.
"""

from __future__ import annotations

import ctypes
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Dict, Iterator, List, Tuple, Type

MAGIC = 0xEB9F
# Magic, version, flags, own length; then where types begin and how long they are, strings too.
HEADER = struct.Struct("<HBBIIIII")
KIND_INT, KIND_ARRAY, KIND_STRUCT = 1, 3, 4
KIND_ENUM, KIND_TYPEDEF = 6, 8
KIND_VOLATILE, KIND_CONST, KIND_RESTRICT = 9, 10, 11
KIND_DATASEC, KIND_TYPE_TAG = 15, 18
ALIASES = (KIND_TYPEDEF, KIND_VOLATILE, KIND_CONST, KIND_RESTRICT, KIND_TYPE_TAG)
# Bytes behind the 12-byte header: for each of the `vlen` members, or once.
BYTES_PER_MEMBER = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
BYTES_ONCE = {1: 4, 3: 12, 14: 4, 17: 4}


def names(raw: bytes) -> bytes:
    """The string section: every name, between NULs; all of it when it does not say where."""
    if len(raw) < HEADER.size:
        return raw
    magic, _, _, header, _, _, string_at, string_len = HEADER.unpack_from(raw)
    found = raw[header + string_at : header + string_at + string_len]
    return found if magic == MAGIC and found else raw


_DAMAGE = (
    *(struct.error, LookupError, ValueError, TypeError),
    *(ArithmeticError, AttributeError, RecursionError),
)


class BtfError(ValueError):
    """The bytes are not the BTF this reader understands."""


@contextmanager
def _damage_refused() -> Iterator[None]:
    # References to nowhere, names that are no text, types that contain themselves.
    try:
        yield
    except BtfError:
        raise
    except _DAMAGE as error:
        raise BtfError(f"damaged BTF: {error}") from error


@dataclass(frozen=True)
class Variable:
    """A global: where it lies in its section (bytes) and how large it is."""

    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class _Type:
    kind: int
    vlen: int
    name: str
    size_or_type: int
    tail: bytes


class Btf:
    """The types of one object.

    Args:
        raw: the content of a `.BTF` section.

    Raises:
        BtfError: bad magic, or a type that runs past the end.
    """

    def __init__(self, raw: bytes) -> None:
        self._types: List[_Type] = [_Type(0, 0, "void", 0, b"")]
        with _damage_refused():
            self._read(raw)
        self._structs: Dict[str, Type[ctypes.Structure]] = {}

    def structure(self, name: str) -> Type[ctypes.Structure]:
        """The ctypes twin of `struct name`, offsets and size checked.

        Raises:
            BtfError: no such structure, or one with bit-fields or padding ctypes places elsewhere.
        """
        if name not in self._structs:
            with _damage_refused():
                self._structs[name] = self._build(self._named(name, KIND_STRUCT))
        return self._structs[name]

    def enum(self, name: str) -> Dict[str, int]:
        """Enumerator name → value, in the order of the source.

        Raises:
            BtfError: no such enum.
        """
        found = self._named(name, KIND_ENUM)
        pairs = struct.iter_unpack("<Ii", found.tail)
        with _damage_refused():
            return {self._string(offset): value for offset, value in pairs}

    def variables(self, section: str) -> Dict[str, Variable]:
        """The globals of `section` (`.bss`, `.rodata`) by name.

        Raises:
            BtfError: no such section.
        """
        found = self._named(section, KIND_DATASEC)
        with _damage_refused():
            return {
                self._types[type_id].name: Variable(offset, size)
                for type_id, offset, size in struct.iter_unpack("<III", found.tail)
            }

    def _read(self, raw: bytes) -> None:
        magic, _, _, header, type_at, type_len, string_at, string_len = HEADER.unpack_from(raw)
        if magic != MAGIC:
            raise BtfError(f"not little-endian BTF (magic {magic:#x})")
        self._strings = raw[header + string_at : header + string_at + string_len]
        at, end = header + type_at, header + type_at + type_len
        if end > len(raw):
            raise BtfError("damaged BTF: types run past the end")
        while at < end:
            at = self._read_type(raw, at, end)

    def _read_type(self, raw: bytes, at: int, end: int) -> int:
        name, info, size = struct.unpack_from("<III", raw, at)
        kind, vlen = (info >> 24) & 0x1F, info & 0xFFFF
        tail = BYTES_PER_MEMBER.get(kind, 0) * vlen or BYTES_ONCE.get(kind, 0)
        if kind == 13:  # a function prototype has 8 bytes for each parameter
            tail = 8 * vlen
        stop = at + 12 + tail
        if stop > end:
            raise BtfError("damaged BTF: a type runs past the end")
        self._types.append(_Type(kind, vlen, self._string(name), size, raw[at + 12 : stop]))
        return stop

    def _string(self, offset: int) -> str:
        return self._strings[offset : self._strings.index(b"\0", offset)].decode()

    def _named(self, name: str, kind: int) -> _Type:
        for found in self._types:
            if found.kind == kind and found.name == name:
                return found
        raise BtfError(f"no {name!r} of BTF kind {kind}")

    def _build(self, found: _Type) -> Type[ctypes.Structure]:
        fields: List[Tuple[str, type]] = []
        offsets: List[int] = []
        for name, type_id, bits in struct.iter_unpack("<III", found.tail):
            fields.append((self._string(name), self._ctype(type_id)))
            offsets.append(bits // 8)
        twin = type(found.name, (ctypes.Structure,), {"_fields_": fields})
        for (name_, _), offset in zip(fields, offsets):
            if getattr(twin, name_).offset != offset:
                raise BtfError(f"{found.name}.{name_} is not where ctypes puts it")
        if ctypes.sizeof(twin) != found.size_or_type:
            raise BtfError(f"{found.name} has not the size ctypes gives it")
        return twin

    def _ctype(self, type_id: int) -> type:
        found = self._types[type_id]
        if found.kind in ALIASES:
            return self._ctype(found.size_or_type)
        if found.kind == KIND_STRUCT:
            return self.structure(found.name)
        if found.kind == KIND_ARRAY:
            element, _, length = struct.unpack("<III", found.tail)
            array: type = self._ctype(element) * length
            return array
        if found.kind == KIND_INT:
            return _integer(found)
        raise BtfError(f"cannot decode BTF kind {found.kind} ({found.name!r})")


_INTEGERS: Dict[int, Tuple[type, type]] = {
    1: (ctypes.c_uint8, ctypes.c_int8),
    2: (ctypes.c_uint16, ctypes.c_int16),
    4: (ctypes.c_uint32, ctypes.c_int32),
    8: (ctypes.c_uint64, ctypes.c_int64),
}


def _integer(found: _Type) -> type:
    if found.name == "char":
        return ctypes.c_char
    encoding: int = struct.unpack("<I", found.tail)[0]
    return _INTEGERS[found.size_or_type][encoding >> 24 & 1]
