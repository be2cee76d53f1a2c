"""Functions of Python, by the code objects in the memory of their process."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Dict, NamedTuple, Optional, Set

from udsprobe.kernel.proc.process_memory import OBJECTS_MAX, ObjectsSeen, ProcessMemory
from udsprobe.kernel.stacks.python_frames import PythonFrame
from udsprobe.printable import printable
from udsprobe.symbols.cpython.layouts import NamesLayout

LETTERS_MAX = 1024
"""Of a name; the rest of a longer one is left out."""

_CODE_TYPE = b"code\0"
_WIDTHS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_LINE_MAX = 1 << 30


class PythonFunction(NamedTuple):
    """`line`: where it begins; None: not known."""

    name: str
    file: Optional[str]
    line: Optional[int]


class _Code(NamedTuple):
    """What a code object holds: it stays so as long as the object is there."""

    type: int
    file: int
    name: int
    line: int


class PythonFunctions:
    """Of one process. A code object is read once, and looked at again in each round: its place in
    memory may be another's by then.
    """

    def __init__(self, layout: NamesLayout, memory: ProcessMemory) -> None:
        self._layout = layout
        self._memory = memory
        self._known: Dict[_Code, Optional[PythonFunction]] = {}
        self._codes = ObjectsSeen(self._look)
        self._code_types: Set[int] = set()
        self._bytes = 8 + max(layout.type, layout.file, layout.qualified_name, layout.first_line)

    def begin_round(self) -> None:
        """Look at code objects again."""
        self._codes.begin_round()

    def of(self, frame: PythonFrame) -> Optional[PythonFunction]:
        """None where its code object is not there any more, or is none."""
        code = self._codes.at(frame.code)
        if code is None or code.name != frame.name:
            return None
        if code not in self._known:
            if len(self._known) >= OBJECTS_MAX:
                self._known.clear()
            self._known[code] = self._read(code)
        return self._known[code]

    def _look(self, address: int) -> Optional[_Code]:
        layout = self._layout
        with suppress(OSError):
            raw = self._memory.read(address, self._bytes)
            places = layout.type, layout.file, layout.qualified_name
            kind, file, name = (struct.unpack_from("<Q", raw, place)[0] for place in places)
            (line,) = struct.unpack_from("<i", raw, layout.first_line)
            return _Code(kind, file, name, line)
        return None

    def _read(self, code: _Code) -> Optional[PythonFunction]:
        with suppress(OSError):
            if not self._is_code(code.type):
                return None
            name, file = self.text(code.name), self.text(code.file)
            line = code.line if 0 < code.line < _LINE_MAX else None
            return PythonFunction(name, file or None, line) if name else None
        return None

    def _is_code(self, type_: int) -> bool:
        if type_ not in self._code_types:
            at = self._memory.word(type_ + self._layout.type_name)
            if self._memory.read(at, len(_CODE_TYPE)) != _CODE_TYPE:
                return False
            self._code_types.add(type_)
        return True

    def text(self, address: int) -> str:
        """Of a `str`, Include/cpython/unicodeobject.h: flags are interned:2, kind:3, compact:1,
        ascii:1, from the lowest bit on.

        Raises:
            OSError: there is none.
        """
        layout = self._layout
        header = self._memory.read(address, layout.ascii_bytes)
        (length,) = struct.unpack_from("<q", header, layout.length)
        (flags,) = struct.unpack_from("<I", header, layout.state)
        width, is_compact, is_ascii = flags >> 2 & 7, flags >> 5 & 1, flags >> 6 & 1
        if length < 0 or not is_compact or width not in _WIDTHS:
            raise OSError("no str")
        start = address + (layout.ascii_bytes if is_ascii else layout.compact_bytes)
        raw = self._memory.read(start, min(length, LETTERS_MAX) * width)
        return printable(raw.decode(_WIDTHS[width], "replace").encode("utf-8", "surrogatepass"))
