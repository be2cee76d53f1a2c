"""Functions of PHP, by what their process keeps of them.

Source: Zend/zend_compile.h (`zend_function`, `zend_op_array`), Zend/zend_types.h (`zend_string`),
Zend/zend.h (`zend_class_entry`) of PHP 7.4 to 8.5.
"""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from typing import Dict, NamedTuple, Optional, Set

from udsprobe.kernel.proc.process_memory import OBJECTS_MAX, ProcessMemory
from udsprobe.kernel.stacks.php_frames import (
    CLASS_NAME,
    HEAD,
    INTERNAL,
    STRING,
    TEXT,
    PhpFrame,
    PhpLayout,
    mark,
    php_frames,
    print_of,
)
from udsprobe.printable import printable

LETTERS_MAX = 1024
"""Of a name or a path; what is longer is none."""

READ_MAX = 500
"""Functions that are read in one round."""

_USER, _EVAL = 2, 4
_KIND_MASK, _IS_STRING = 0xF, 6
_HASH_FIRST, _HASH_FACTOR, _HASH_MASK, _HASH_SET = 5381, 33, (1 << 64) - 1, 1 << 63
_LINE_MAX = 1 << 30
# From 8.4 on they have their place in their name, too.
_CLOSURE = re.compile(rb"\{closure(:.*)?\}$", re.DOTALL)
_CLOSURE_NAME = b"{closure}"
_EVALUATED = " : eval()'d code"


class PhpFunction(NamedTuple):
    """`name`: with its class; None: the code of a file, or of eval(). `line`: where it begins.

    Attributes:
        is_internal: it is in C.
    """

    name: Optional[str]
    file: Optional[str]
    line: Optional[int]
    is_internal: bool

    @property
    def is_evaluated(self) -> bool:
        """It is the code of an eval()."""
        return self.name is None and (self.file or "").endswith(_EVALUATED)


class _String(NamedTuple):
    """`mark`: see `print_of`."""

    text: bytes
    mark: int


_NOTHING = _String(b"", 0)


class PhpFunctions:
    """Of one process. A request makes its functions anew where no opcache keeps them, in the place
    of others: one that was read is known by its mark from then on, wherever it was.
    """

    def __init__(self, layout: PhpLayout, memory: ProcessMemory) -> None:
        self._layout = layout
        self._memory = memory
        self._known: Dict[int, PhpFunction] = {}
        self._tried: Set[int] = set()

    def begin_round(self) -> None:
        """Other functions may be where functions were: those that it is in now are read."""
        self._tried.clear()
        with suppress(OSError, OverflowError, struct.error):
            for frame in php_frames(self._layout, self._memory.read):
                self.of(frame)

    def of(self, frame: PhpFrame) -> Optional[PhpFunction]:
        """None where its function is not there any more, or is none."""
        if frame.mark not in self._known and self._is_to_be_read(frame.function):
            if len(self._known) >= OBJECTS_MAX:
                self._known.clear()
            with suppress(OSError, OverflowError, struct.error):
                self._read(frame.function)
        return self._known.get(frame.mark)

    def _is_to_be_read(self, address: int) -> bool:
        if address in self._tried or len(self._tried) >= READ_MAX:
            return False
        self._tried.add(address)
        return True

    def _read(self, address: int) -> None:
        """As its mark is by what was read, and not by what was there a moment before."""
        kind, name_at, scope = HEAD.unpack(self._memory.read(address, HEAD.size))
        name = self._string(name_at) if name_at else _NOTHING
        of_class = self._class(scope) if scope else _NOTHING
        if kind == INTERNAL:
            found = PhpFunction(_named(name, of_class), None, None, True)
            self._known[mark(name.mark, of_class.mark)] = found
        elif kind in (_USER, _EVAL):
            self._read_own(address, name, of_class)

    def _read_own(self, address: int, name: _String, of_class: _String) -> None:
        """Of the program; its lines tell, too, whether it is one."""
        at = address + self._layout.function_file
        file_at, first, last = TEXT.unpack(self._memory.read(at, TEXT.size))
        file = self._string(file_at)
        if first <= last < _LINE_MAX:
            named = _named(name, of_class)
            found = PhpFunction(named, printable(file.text), first or None, False)
            self._known[mark(name.mark, of_class.mark, file.mark, first, last)] = found

    def _class(self, address: int) -> _String:
        return self._string(self._memory.word(address + CLASS_NAME))

    def _string(self, address: int) -> _String:
        """A `zend_string`; what it is proved by: its type, its end, its hash where it has one.

        Raises:
            OSError: it is none.
        """
        _, kind, known, length = STRING.unpack(self._memory.read(address, STRING.size))
        if kind & _KIND_MASK != _IS_STRING or not 0 < length <= LETTERS_MAX:
            raise OSError("no string")
        raw = self._memory.read(address + STRING.size, length + 1)
        if raw[-1] or known not in (0, _hash(raw[:-1])):
            raise OSError("no string")
        return _String(raw[:-1], print_of(known, length, raw[:-1]))


def _named(name: _String, of_class: _String) -> Optional[str]:
    if not name.text:
        return None
    # What an anonymous class is called by has a NUL and its place behind that.
    owner = of_class.text.partition(b"\0")[0]
    plain = _CLOSURE.sub(_CLOSURE_NAME, name.text)
    return printable(owner + b"::" + plain if owner else plain)


def _hash(text: bytes) -> int:
    """zend_inline_hash_func of Zend/zend_string.h: DJBX33A, where letters have a sign (x86-64)."""
    found = _HASH_FIRST
    for letter in memoryview(text).cast("b"):
        found = (found * _HASH_FACTOR + letter) & _HASH_MASK
    return found | _HASH_SET
