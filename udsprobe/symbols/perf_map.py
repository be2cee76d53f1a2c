"""Functions of compilers at run time, by the map file that a runtime writes for perf."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional

from udsprobe.symbols.demangled import function_name
from udsprobe.symbols.function_table import Function, FunctionTable

MAP_BYTES_MAX = 64 << 20
"""Of one file; the rest of a larger one is not read."""

ENTRIES_MAX = 300_000
_LAST = 1 << 64
# V8: kind, optimisation mark, function, file, line and column.
_JAVASCRIPT = re.compile(
    r"(?:JS|LazyCompile|Function|Script|Eval|RegExp):[*~^+']{0,2}(?P<function>\S*) "
    r"(?:file://)?(?P<file>\S*?):(?P<line>\d{1,9})(?::\d{1,9})?$"
)
_PYTHON = re.compile(r"py::(?P<function>[^:]*):(?P<file>.*)$")
# Zend/zend_jit: what has a second $ is its own, no function of the program.
_PHP = re.compile(r"JIT\$(?P<function>[^$].*)$")


class CodeName(NamedTuple):
    """A function, and where it is written as far as the name tells."""

    function: str
    file: Optional[str] = None
    line: Optional[int] = None


class _Entry(NamedTuple):
    line: int
    function: Function

    @property
    def end(self) -> int:
        return self.function.start + self.function.size_bytes


def entries(text: bytes) -> FunctionTable:
    """`START SIZE name` on each line, in hexadecimal; of one place the last line holds.

    Lines that are none are passed over.
    """
    found: Dict[int, _Entry] = {}
    # Not all lines at once: an empty one is a byte in the file, and many in memory.
    for number, line in enumerate(text.split(b"\n", ENTRIES_MAX)[:ENTRIES_MAX]):
        fields = line.split(b" ", 2)
        if len(fields) < 3:
            continue
        try:
            start, size_bytes = int(fields[0], 16), int(fields[1], 16)
        except ValueError:
            continue
        if 0 <= start < _LAST and 0 < size_bytes < _LAST:
            found[start] = _Entry(number, Function(start, size_bytes, fields[2]))
    return FunctionTable(each.function for each in _alive(found))


def _alive(entries: Dict[int, _Entry]) -> List[_Entry]:
    """Without those in whose place a later one was made: a runtime uses memory again, and says
    nothing of what it drops.
    """
    kept: List[_Entry] = []
    for start in sorted(entries):
        entry = entries[start]
        last = kept[-1] if kept else None
        if last is None or last.end <= start:
            kept.append(entry)
        elif entry.line > last.line:
            kept[-1] = entry
    return kept


def code_name(raw: bytes) -> CodeName:
    """What a runtime calls a function, taken apart where we know how."""
    text = function_name(raw)
    known = _JAVASCRIPT.match(text)
    if known is not None:
        return CodeName(known["function"] or "(anonymous)", known["file"], int(known["line"]))
    known = _PYTHON.match(text)
    if known is not None:
        return CodeName(known["function"], known["file"])
    known = _PHP.match(text)
    return CodeName(text if known is None else known["function"])
