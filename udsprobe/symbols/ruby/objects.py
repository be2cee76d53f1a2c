"""Objects of Ruby in the memory of a process: strings, arrays, classes, symbols.

Source: include/ruby/internal/core/rstring.h and rarray.h, internal/class.h, symbol.h and symbol.c
(`rb_symbols_t`, ID_ENTRY_UNIT), id.h of Ruby 3.0 to 3.4.
"""

from __future__ import annotations

import struct
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

from udsprobe.kernel.proc.process_memory import OBJECTS_MAX, ProcessMemory
from udsprobe.kernel.stacks.ruby_frames import TYPE_MASK

LETTERS_MAX = 1024
"""Of a name or a path; what is longer is none."""

CLASS, MODULE, STRING, ARRAY, DATA = 2, 3, 5, 7, 0xC
"""Of an object's flags, `ruby_value_type`."""

WORD = struct.Struct("<Q")
CLASS_AT = 8
"""Of an object: its class."""

_ADDRESS_MIN, _ADDRESS_MAX = 1 << 16, 1 << 47
# FL_USER1: of a string that its letters are elsewhere, of an array that its items are in it.
_USER1 = 1 << 13
_TEXT = struct.Struct("<QQQQ")
_ITEMS = struct.Struct("<QQQQQ")
# Until 3.1 the flags have the length of a string whose letters are in it.
_OLD_LENGTH_SHIFT, _OLD_LENGTH_MASK = 14, 31
_OLD_EXTENSION, _OLD_VARIABLES = 24, 8
_TABLE = struct.Struct("<16xQ8xQQQ")
_TABLE_ENTRY = struct.Struct("<8xQQ")
_TABLE_ENTRIES_MAX = 64
_CLASS_PATH, _ATTACHED = b"__classpath__", b"__attached__"
# Operators have numbers below 256, others theirs above their kind (tLAST_OP_ID, ID_SCOPE_SHIFT).
_OPERATORS_MAX, _SCOPE_SHIFT = 1024, 4
_IDS_OF_PART, _ENTRIES_OF_ID = 512, 2


class ClassLayout(NamedTuple):
    """Offsets in bytes.

    Attributes:
        pointer: in a class, of the pointer to what has the others; None: it has them itself.
        path: of the name with those of the modules around it.
        attached: of a singleton class, the one object that it is of; None: not known.
    """

    pointer: Optional[int]
    path: int
    attached: Optional[int]


class RubyObjects:
    """Of one process. All methods raise OSError where there is no such thing.

    Args:
        is_old: as until Ruby 3.1.

    Attributes:
        word, words, raw: of memory, as `ProcessMemory` reads them.
    """

    def __init__(self, memory: ProcessMemory, *, is_old: bool) -> None:
        self._memory = memory
        self.word, self.words, self.raw = memory.word, memory.words, memory.read
        self.is_old = is_old

    def type_of(self, value: int) -> int:
        """Of its flags."""
        if not is_address(value):
            raise OSError("no object")
        return self.word(value) & TYPE_MASK

    def string(self, value: int) -> bytes:
        """Its letters."""
        if self.type_of(value) != STRING:
            raise OSError("no string")
        flags, _, length, letters = _TEXT.unpack(self._memory.read(value, _TEXT.size))
        if not flags & _USER1:
            letters = value + (16 if self.is_old else 24)
            if self.is_old:
                length = flags >> _OLD_LENGTH_SHIFT & _OLD_LENGTH_MASK
        if length > LETTERS_MAX:
            raise OSError("no name")
        return self._memory.read(letters, length) if length else b""

    def item(self, value: int, place: int) -> int:
        """Of an array."""
        if self.type_of(value) != ARRAY:
            raise OSError("no array")
        flags, _, length, _, items = _ITEMS.unpack(self._memory.read(value, _ITEMS.size))
        if flags & _USER1:
            # How many are in it, the version decides; who asks for one knows that it is there.
            return self.word(value + 16 + place * WORD.size)
        if place >= length:
            raise OSError("no item")
        return self.word(items + place * WORD.size)


def is_address(value: int) -> bool:
    """It may be one of an object."""
    return _ADDRESS_MIN <= value < _ADDRESS_MAX and not value & 7


class RubySymbols:
    """Names by their numbers (ID).

    Args:
        at: where `ruby_global_symbols` is; None: not known, and no name is.
    """

    def __init__(self, objects: RubyObjects, at: Optional[int]) -> None:
        self._objects, self._at = objects, at
        self._known: Dict[int, bytes] = {}

    def name(self, number: int) -> bytes:
        """Raises OSError where it is none."""
        if number not in self._known:
            if len(self._known) >= OBJECTS_MAX:
                self._known.clear()
            self._known[number] = self._read(number)
        return self._known[number]

    def _read(self, number: int) -> bytes:
        if self._at is None:
            raise OSError("no symbols")
        serial = number >> _SCOPE_SHIFT if number > _OPERATORS_MAX else number
        part, place = divmod(serial, _IDS_OF_PART)
        ids = self._objects.item(self._objects.word(self._at + 2 * WORD.size), part)
        return self._objects.string(self._objects.item(ids, place * _ENTRIES_OF_ID))


class RubyClasses:
    """Their names.

    Args:
        layout: None: it is as until Ruby 3.1, where they are among a class's variables.
    """

    def __init__(
        self, objects: RubyObjects, symbols: RubySymbols, layout: Optional[ClassLayout]
    ) -> None:
        self._objects, self._symbols, self._layout = objects, symbols, layout

    def begins(self, owner: int) -> bytes:
        """What goes before a method's name: `Auth::Token#`, of its own ones `Auth.`; or nothing.

        As rb_gen_method_name of Ruby 3.4 (vm_backtrace.c).
        """
        attached = self._attached(owner)
        name = self.path(attached or owner)
        return name + (b"." if attached else b"#") if name else b""

    def path(self, of: int) -> bytes:
        """Nothing where it has none of its own, but one made up by Ruby."""
        if self._objects.type_of(of) not in (CLASS, MODULE):
            return b""
        found = self._field(of, _CLASS_PATH)
        name = self._objects.string(found) if found else b""
        return b"" if name.startswith(b"#<") else name

    def _attached(self, owner: int) -> int:
        """The class or module that this is the singleton class of; 0: it is none."""
        found = self._field(owner, _ATTACHED)
        if not is_address(found) or self._objects.type_of(found) not in (CLASS, MODULE):
            return 0
        return found if self._objects.word(found + CLASS_AT) == owner else 0

    def _field(self, of: int, name: bytes) -> int:
        if self._layout is None:
            return self._variable(of, name) if self._objects.is_old else 0
        offset = self._layout.path if name == _CLASS_PATH else self._layout.attached
        if offset is None:
            return 0
        pointer = self._layout.pointer
        base = of if pointer is None else self._objects.word(of + pointer)
        return self._objects.word(base + offset)

    def _variable(self, of: int, name: bytes) -> int:
        """RCLASS_IV_TBL, an `st_table`."""
        extension = self._objects.word(of + _OLD_EXTENSION)
        table = self._objects.word(extension + _OLD_VARIABLES)
        for key, value in self._entries(table) if table else ():
            if self._name(key) == name:
                return value
        return 0

    def _entries(self, table: int) -> Iterator[Tuple[int, int]]:
        """Of st.c: a hash, a key, a value each; those that were deleted have no key."""
        _, begin, end, entries = _TABLE.unpack(self._objects.raw(table, _TABLE.size))
        if not begin <= end <= begin + _TABLE_ENTRIES_MAX:
            raise OSError("no table")
        size = (end - begin) * _TABLE_ENTRY.size
        raw = self._objects.raw(entries + begin * _TABLE_ENTRY.size, size) if size else b""
        yield from _TABLE_ENTRY.iter_unpack(raw)

    def _name(self, number: int) -> bytes:
        try:
            return self._symbols.name(number)
        except OSError:
            return b""
