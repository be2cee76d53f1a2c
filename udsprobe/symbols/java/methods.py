"""Methods of Java, by HotSpot's objects in the memory of their process.

Source: src/hotspot/share/oops/method.hpp, constMethod.hpp, constantPool.hpp, symbol.hpp,
and share/code/compressedStream.hpp.
"""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from typing import Dict, NamedTuple, Optional

from udsprobe.kernel.proc.process_memory import OBJECTS_MAX, ObjectsSeen, ProcessMemory
from udsprobe.printable import printable
from udsprobe.symbols.java.compressed import compressed, skipped_of
from udsprobe.symbols.java.layouts import NOT_TOLD, Layout
from udsprobe.symbols.varints import signed

LETTERS_MAX = 1024
"""Of a name; of a longer one nothing is said."""

# Behind the name of a hidden class, of a lambda say, is its address: each run has another.
_HIDDEN = re.compile(r"[+/]0x[0-9a-f]+$")
_UTF8, _HAS_LINES, _LINE_MAX = 1, 1, 1 << 16
_LINE_BYTES, _LINE_ESCAPE = 16, 0xFF
_WORD, _SHORT = struct.Struct("<Q"), struct.Struct("<H")


class JavaMethod(NamedTuple):
    """`name` with its class, `line`: of its first statement; None: not known."""

    name: str
    file: Optional[str]
    line: Optional[int]


class _Held(NamedTuple):
    """What a method holds: it stays so as long as it is there.

    Attributes:
        unchanging: address of the part of it that does not change.
        raw: that part.
    """

    unchanging: int
    raw: bytes


class JavaMethods:
    """Of one process. A method is read once, and looked at again in each round: its place in
    memory may be another's by then.
    """

    def __init__(self, layout: Layout, memory: ProcessMemory) -> None:
        self._layout, self._memory = layout, memory
        self._known: Dict[_Held, Optional[JavaMethod]] = {}
        self._methods = ObjectsSeen(self._look)
        self._held_bytes = 8 + max(
            *(layout.constants, layout.code_bytes, layout.method_name, layout.method_flags),
        )

    def begin_round(self) -> None:
        """Look at methods again."""
        self._methods.begin_round()

    def of(self, method: int) -> Optional[JavaMethod]:
        """By the address of it; None where it is none, or not there any more."""
        held = self._methods.at(method) if method else None
        if held is None:
            return None
        if held not in self._known:
            if len(self._known) >= OBJECTS_MAX:
                self._known.clear()
            self._known[held] = self._read(held)
        return self._known[held]

    def _look(self, method: int) -> Optional[_Held]:
        with suppress(OSError):
            unchanging = self._memory.word(method + self._layout.const_method)
            return _Held(unchanging, self._memory.read(unchanging, self._held_bytes))
        return None

    def _read(self, held: _Held) -> Optional[JavaMethod]:
        layout = self._layout
        with suppress(OSError):
            pool = int(_WORD.unpack_from(held.raw, layout.constants)[0])
            holder = self._memory.word(pool + layout.pool_holder)
            class_name = self._text(self._memory.word(holder + layout.class_name))
            (number,) = _SHORT.unpack_from(held.raw, layout.method_name)
            name = self._of_pool(pool, number)
            full = f"{_HIDDEN.sub('', class_name).replace('/', '.')}.{name}"
            return JavaMethod(full, self._file(pool, holder), self._line(held))
        return None

    def _file(self, pool: int, holder: int) -> Optional[str]:
        layout = self._layout
        with suppress(OSError):
            at = pool + layout.pool_file if layout.pool_file != NOT_TOLD else 0
            if not at and layout.class_file != NOT_TOLD:
                at = holder + layout.class_file
            (number,) = _SHORT.unpack(self._memory.read(at, _SHORT.size))
            return self._of_pool(pool, number)
        return None

    def _of_pool(self, pool: int, number: int) -> str:
        """The text of that number among the constants of a class."""
        layout = self._layout
        place = pool + layout.pool_length
        length = self._memory.number(place)
        tags = self._memory.word(pool + layout.pool_tags) + layout.tags_data
        if not 0 < number < length or self._memory.read(tags + number, 1)[0] != _UTF8:
            raise OSError("no text")
        # Its lowest bit is a mark of JDK 8.
        return self._text(self._memory.word(pool + layout.pool_size + 8 * number) & ~1)

    def _text(self, symbol: int) -> str:
        layout = self._layout
        raw = self._memory.read(symbol + layout.symbol_length, _SHORT.size)
        (length,) = _SHORT.unpack(raw)
        if not 0 < length <= LETTERS_MAX:
            raise OSError("no name")
        return printable(self._memory.read(symbol + layout.symbol_body, length))

    def _line(self, held: _Held) -> Optional[int]:
        """The first of its table, which is behind its code of bytes."""
        layout = self._layout
        if not held.raw[layout.method_flags] & _HAS_LINES:
            return None
        (code_bytes,) = _SHORT.unpack_from(held.raw, layout.code_bytes)
        with suppress(OSError, StopIteration):
            at = held.unchanging + layout.const_method_size + code_bytes
            line = first_line(self._memory.read(at, _LINE_BYTES), skipped_of(layout, self._memory))
            return line if 0 < line < _LINE_MAX else None
        return None


def first_line(table: bytes, skipped: int) -> int:
    """Of a method's compressed table of lines; 0: it has none.

    Args:
        skipped: how much a byte of a number is above what it means.
    """
    if table[0] != _LINE_ESCAPE:
        return table[0] & 7
    numbers = compressed(table[1:], skipped)
    next(numbers)
    return signed(next(numbers))
