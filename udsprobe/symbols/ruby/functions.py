"""Functions of Ruby, by what their process keeps of them.

Source: iseq.h (`rb_iseq_location_t`), method.h (`rb_method_entry_t`, `rb_method_definition_t`) of
Ruby 3.0 to 4.0.
"""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from typing import Dict, NamedTuple, Optional

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.ruby_frames import METHOD_DEFINITION, SEQUENCE_BODY, RubyFrame
from udsprobe.printable import printable
from udsprobe.symbols.ruby.layouts import NamesLayout
from udsprobe.symbols.ruby.objects import STRING, RubyClasses, RubyObjects, RubySymbols

READ_MAX = 2000
"""Functions that are read in one round."""

_OWNER, _ORIGINAL_NAME = 32, 32
_LOCATION = struct.Struct("<QQQQ")
_LINE_MASK, _LINE_MAX = 0xFFFFFFFF, 1 << 30
# Of no method: `<main>`, `<class:Auth>`, `<top (required)>`.
_STATEMENTS = re.compile(rb"<[a-z].*>", re.DOTALL)


class RubyFunction(NamedTuple):
    """`name`: with its class, as Ruby 3.4 has it in backtraces. `line`: where it begins.

    Attributes:
        file: None: it is in C.
    """

    name: str
    file: Optional[str]
    line: Optional[int]


class RubyFunctions:
    """Of one process. One is read once in each round: its place may be another's by then."""

    def __init__(self, layout: NamesLayout, memory: ProcessMemory) -> None:
        self._layout = layout
        self._objects = RubyObjects(memory, is_old=layout.is_old)
        self._symbols = RubySymbols(self._objects, layout.symbols)
        self._classes = RubyClasses(self._objects, self._symbols, layout.classes)
        self._known: Dict[RubyFrame, Optional[RubyFunction]] = {}

    def begin_round(self) -> None:
        """Read them again."""
        self._known.clear()

    def of(self, frame: RubyFrame) -> Optional[RubyFunction]:
        """None where it is not there any more, or is none."""
        if frame not in self._known:
            if len(self._known) >= READ_MAX:
                return None
            self._known[frame] = None
            with suppress(OSError, struct.error):
                self._known[frame] = self._unchanged(frame)
        return self._known[frame]

    def _unchanged(self, frame: RubyFrame) -> Optional[RubyFunction]:
        at = METHOD_DEFINITION if frame.is_c else SEQUENCE_BODY
        found = None
        if self._objects.word(frame.function + at) == frame.mark:
            found = self._in_c(frame) if frame.is_c else self._in_ruby(frame)
        return found if self._objects.word(frame.function + at) == frame.mark else None

    def _in_c(self, frame: RubyFrame) -> RubyFunction:
        name = self._symbols.name(self._objects.word(frame.mark + _ORIGINAL_NAME))
        return RubyFunction(printable(self._owner(frame.function) + name), None, None)

    def _in_ruby(self, frame: RubyFrame) -> Optional[RubyFunction]:
        raw = self._objects.raw(frame.mark + self._layout.location, _LOCATION.size)
        path, plain, label, line = _LOCATION.unpack(raw)
        line = line >> 1 if self._layout.is_old else line & _LINE_MASK
        names = self._objects.string(plain), self._objects.string(label)
        file = printable(self._path(path))
        if not all(names) or not file:
            return None
        name = printable(self._named(frame.method, *names))
        return RubyFunction(name, file, line if 0 < line < _LINE_MAX else None)

    def _path(self, value: int) -> bytes:
        """As Ruby was told it; behind it, its real one."""
        is_text = self._objects.type_of(value) == STRING
        return self._objects.string(value if is_text else self._objects.item(value, 0))

    def _named(self, method: int, plain: bytes, label: bytes) -> bytes:
        """Its class goes before the method's name: `block in Auth#verify`."""
        if not method or _STATEMENTS.fullmatch(plain) or not label.endswith(plain):
            return label
        return label[: len(label) - len(plain)] + self._owner(method) + plain

    def _owner(self, method: int) -> bytes:
        with suppress(OSError):
            return self._classes.begins(self._objects.word(method + _OWNER))
        return b""
