"""Objects of Python in the memory of a process: their types, dictionaries, sets and attributes.

All that is read may be anything by then: sizes are bounded, and what is no object raises OSError.
Source: `Include/object.h`, `cpython/dictobject.h`, `setobject.h`, `weakrefobject.h`, and
`pycore_dict.h`, `Objects/dict-common.h`.
"""

from __future__ import annotations

import struct
from typing import Dict, Iterator, List, Sequence, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.cpython.layouts import NamesLayout
from udsprobe.symbols.cpython.tasks.layouts import (
    BEHIND_MARKED_POINTER,
    BEHIND_POINTER,
    IN_DICT,
    TasksLayout,
)

ENTRIES_MAX, SET_ENTRIES_MAX = 1 << 17, 1 << 18
"""Of a dictionary, of a set: one with more is not read."""

TUPLE_MAX = 32
_WORD = struct.Struct("<Q")
_PAGE_BYTES, _TYPE_NAME_BYTES, _BASES_MAX = 4096, 48, 8
# PyTypeObject.
_SIZE, _BASE, _DICT_OFFSET = 32, 256, 288
# PyDictObject, PyDictKeysObject.
_KEYS, _VALUES, _KEYS_BYTES = 32, 40, 40
_GENERAL, _GENERAL_ENTRY, _UNICODE_ENTRY = 0, struct.Struct("<QQQ"), struct.Struct("<QQ")
# PySetObject.
_SET, _SET_ENTRY = struct.Struct("<16xQQQQ"), struct.Struct("<QQ")
_TUPLE = struct.Struct("<16xQ")
# Before an object: `_PyObject_ManagedDictPointer`, `_PyObject_ValuesPointer`.
_MANAGED_DICT, _VALUES_POINTER, _IS_VALID = -24, -32, 3


class Objects:
    """Of one process.

    Attributes:
        word, words, number, read: of its memory, as `ProcessMemory` reads them; OSError where it
            cannot be read.
    """

    def __init__(self, memory: ProcessMemory, names: NamesLayout, layout: TasksLayout) -> None:
        self._memory, self._names, self._layout = memory, names, layout
        self.word, self.words, self.number = memory.word, memory.words, memory.number
        self.read = memory.read
        self._type_names: Dict[int, str] = {}

    def begin_round(self) -> None:
        """Another type may be where one was."""
        self._type_names.clear()

    def read_some(self, address: int, size_bytes: int, min_bytes: int) -> bytes:
        """So much, or where memory ends before that the least of it; OSError as `word`."""
        try:
            return self._memory.read(address, max(size_bytes, min_bytes))
        except OSError:
            return self._memory.read(address, min_bytes)

    def byte(self, address: int) -> int:
        """One, as `word`."""
        return self._memory.read(address, 1)[0]

    def kind(self, address: int) -> str:
        """Name of an object's type, as `_asyncio.Task`; OSError as `word`."""
        return self._type_name(self.word(address + self._names.type))

    def is_a(self, address: int, kind: str) -> bool:
        """It is of that type, or of one that is made of it; OSError as `word`."""
        type_ = self.word(address + self._names.type)
        for _ in range(_BASES_MAX):
            if self._type_name(type_) == kind:
                return True
            type_ = self.word(type_ + _BASE)
            if not type_:
                break
        return False

    def items(self, dictionary: int) -> Iterator[Tuple[int, int]]:
        """Addresses of keys and values, by the order in which they came; OSError as `word`."""
        keys, values = self.words(dictionary + _KEYS, 2)
        entry, begin, count = self._entries(keys)
        raw = self._memory.read(begin, entry.size * count)
        found = [each[-2:] for each in entry.iter_unpack(raw)]
        held = self.words(values, count) if values and count else ()
        for at, (key, value) in enumerate(found):
            yield key, held[at] if held else value

    def named(self, dictionary: int, name: str) -> int:
        """The value of a key of ASCII letters; 0: it has none. OSError as `word`."""
        wanted = name.encode()
        found = (value for key, value in self.items(dictionary) if value and self._is(key, wanted))
        return next(found, 0)

    def members(self, address: int) -> List[int]:
        """Of a `set`; OSError as `word`."""
        if self.kind(address) != "set":
            raise OSError("no set")
        _, _, mask, table = _SET.unpack(self._memory.read(address, _SET.size))
        if not 0 < mask < SET_ENTRIES_MAX:
            raise OSError("no size of a set")
        raw = self._memory.read(table, _SET_ENTRY.size * (mask + 1))
        return [key for key, _ in _SET_ENTRY.iter_unpack(raw) if key]

    def tuple(self, address: int) -> Sequence[int]:
        """The first `TUPLE_MAX` of its items; none where it is no tuple. OSError as `word`."""
        if not address or self.kind(address) != "tuple":
            return ()
        (count,) = _TUPLE.unpack(self._memory.read(address, _TUPLE.size))
        return self.words(address + self._layout.tuple_items, min(count, TUPLE_MAX))

    def first_attribute(self, address: int) -> int:
        """What was assigned first to an attribute of an object whose class is made in Python; 0:
        not known. OSError as `word`.
        """
        how = self._layout.attributes
        if how == IN_DICT:
            type_ = self.word(address + self._names.type)
            return self._first_value(self.word(address + self.word(type_ + _DICT_OFFSET)))
        values = self._values(address, how)
        return self.word(values) if values else self._first_value(self._managed(address))

    def _managed(self, address: int) -> int:
        return self.word(address + _MANAGED_DICT)

    def _values(self, address: int, how: int) -> int:
        """Address of the first; 0: it has a dictionary."""
        if how == BEHIND_POINTER:
            return self.word(address + _VALUES_POINTER)
        if how == BEHIND_MARKED_POINTER:
            marked = self._managed(address)
            return marked + 1 if marked & 1 else 0
        size = self.word(self.word(address + self._names.type) + _SIZE)
        head = address + size
        return head + _WORD.size if self.byte(head + _IS_VALID) == 1 else 0

    def _first_value(self, dictionary: int) -> int:
        if not dictionary or self.kind(dictionary) != "dict":
            return 0
        return next((value for _, value in self.items(dictionary)), 0)

    def _entries(self, keys: int) -> Tuple[struct.Struct, int, int]:
        """How one is written, where the first is, and how many are used."""
        head = self._memory.read(keys, _KEYS_BYTES)
        if self._layout.has_log_sizes:
            log_bytes, kind, count = head[9], head[10], int.from_bytes(head[24:32], "little")
            entry = _GENERAL_ENTRY if kind == _GENERAL else _UNICODE_ENTRY
            begin, indices_bytes = keys + 32, 1 << min(log_bytes, 32)
        else:
            (size, _, _, count) = struct.unpack("<8xQQQQ", head)
            width = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4
            entry, begin, indices_bytes = _GENERAL_ENTRY, keys + _KEYS_BYTES, size * width
        if not 0 <= count <= ENTRIES_MAX:
            raise OSError("no size of a dictionary")
        return entry, begin + indices_bytes, count

    def _is(self, text: int, wanted: bytes) -> bool:
        """Letters of a `str` of ASCII alone."""
        names = self._names
        try:
            if self.word(text + names.length) != len(wanted):
                return False
            return self._memory.read(text + names.ascii_bytes, len(wanted)) == wanted
        except OSError:
            return False

    def _type_name(self, type_: int) -> str:
        if type_ not in self._type_names:
            at = self.word(type_ + self._names.type_name)
            size = min(_TYPE_NAME_BYTES, _PAGE_BYTES - at % _PAGE_BYTES)
            raw = self._memory.read(at, size)
            if b"\0" not in raw and size < _TYPE_NAME_BYTES:
                raw += self._memory.read(at + size, _TYPE_NAME_BYTES - size)
            self._type_names[type_] = raw.partition(b"\0")[0].decode("latin-1")
        return self._type_names[type_]
