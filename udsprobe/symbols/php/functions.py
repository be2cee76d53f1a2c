"""Functions of PHP, by what their process keeps of them.

Source: Zend/zend_compile.h (`zend_function`, `zend_op_array`), Zend/zend_types.h (`zend_string`),
Zend/zend.h (`zend_class_entry`) of PHP 7.4 to 8.5.
"""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from typing import Dict, NamedTuple, Optional

from udsprobe.kernel.proc.process_memory import OBJECTS_MAX, ObjectsSeen, ProcessMemory
from udsprobe.kernel.stacks.php_frames import HEAD, INTERNAL, TEXT, PhpFrame, PhpLayout, mark_of
from udsprobe.printable import printable

LETTERS_MAX = 4096
"""Of a name or a path; what is longer is none."""

_USER, _EVAL = 2, 4
_CLASS_NAME = 8
# refcount, type and flags, hash, length; behind that are the letters and a NUL.
_STRING, _LETTERS = struct.Struct("<IIQQ"), 24
_KIND_MASK, _IS_STRING = 0xF, 6
_HASH_FIRST, _HASH_FACTOR, _HASH_MASK, _HASH_SET = 5381, 33, (1 << 64) - 1, 1 << 63
_LINE_MAX = 1 << 30
# From 8.4 on they have their place in their name, too.
_CLOSURE = re.compile(rb"\{closure:.*\}$", re.DOTALL)
_CLOSURE_NAME = b"{closure}"
_EVALUATED = " : eval()'d code"


class PhpFunction(NamedTuple):
    """`name`: with its class; None: the code of a file, or of eval(). `line`: where it begins.
    `is_internal`: it is in C.
    """

    name: Optional[str]
    file: Optional[str]
    line: Optional[int]
    is_internal: bool

    @property
    def is_evaluated(self) -> bool:
        """It is the code of an eval()."""
        return self.name is None and (self.file or "").endswith(_EVALUATED)


class _Function(NamedTuple):
    """What a function holds: it stays so as long as it is there."""

    kind: int
    name: int
    scope: int
    file: int
    first_line: int
    last_line: int
    mark: int


class PhpFunctions:
    """Of one process. A function is read once, and looked at again in each round: its place in
    memory may be another's by then.
    """

    def __init__(self, layout: PhpLayout, memory: ProcessMemory) -> None:
        self._layout = layout
        self._memory = memory
        self._known: Dict[_Function, Optional[PhpFunction]] = {}
        self._functions = ObjectsSeen(self._look)

    def begin_round(self) -> None:
        """Look at functions again."""
        self._functions.begin_round()

    def of(self, frame: PhpFrame) -> Optional[PhpFunction]:
        """None where its function is not there any more, or is none."""
        function = self._functions.at(frame.function)
        if function is None or function.mark != frame.mark:
            return None
        if function not in self._known:
            if len(self._known) >= OBJECTS_MAX:
                self._known.clear()
            self._known[function] = self._read(function)
        return self._known[function]

    def _look(self, address: int) -> Optional[_Function]:
        with suppress(OSError, OverflowError):
            kind, name, scope = HEAD.unpack(self._memory.read(address, HEAD.size))
            text = (0, 0, 0)
            if kind != INTERNAL:
                at = address + self._layout.function_file
                text = TEXT.unpack(self._memory.read(at, TEXT.size))
            mark = mark_of(self._layout, address, self._memory.read)
            return _Function(kind, name, scope, *text, mark)
        return None

    def _read(self, function: _Function) -> Optional[PhpFunction]:
        with suppress(OSError):
            if function.kind == INTERNAL:
                name = self._name(function) if function.name else None
                return PhpFunction(name, None, None, True)
            if function.kind in (_USER, _EVAL):
                return self._own(function)
        return None

    def _own(self, function: _Function) -> Optional[PhpFunction]:
        """Of the program; its lines tell, too, whether it is one."""
        if not function.first_line <= function.last_line < _LINE_MAX:
            return None
        name = self._name(function) if function.name else None
        file = printable(self._text(function.file))
        return PhpFunction(name, file, function.first_line or None, False)

    def _name(self, function: _Function) -> str:
        name = _CLOSURE.sub(_CLOSURE_NAME, self._text(function.name))
        if not function.scope:
            return printable(name)
        (of_class,) = struct.unpack("<Q", self._memory.read(function.scope + _CLASS_NAME, 8))
        # What an anonymous class is called by has a NUL and its place behind that.
        owner = self._text(of_class).partition(b"\0")[0]
        return printable(owner + b"::" + name)

    def _text(self, address: int) -> bytes:
        """Of a `zend_string`; what it is proved by: its type, its end, and its hash.

        Raises:
            OSError: it is none.
        """
        header = self._memory.read(address, _STRING.size)
        _, kind, known, length = _STRING.unpack(header)
        if kind & _KIND_MASK != _IS_STRING or not 0 < length <= LETTERS_MAX:
            raise OSError("no string")
        raw = self._memory.read(address + _LETTERS, length + 1)
        if raw[-1] or known not in (0, _hash(raw[:-1])):
            raise OSError("no string")
        return raw[:-1]


def _hash(text: bytes) -> int:
    """zend_inline_hash_func of Zend/zend_string.h: DJBX33A, where letters have a sign (x86-64)."""
    found = _HASH_FIRST
    for letter in memoryview(text).cast("b"):
        found = (found * _HASH_FACTOR + letter) & _HASH_MASK
    return found | _HASH_SET
