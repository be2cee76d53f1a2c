"""Functions that lock and return: a program's own `lock()`, with what it counts beside it."""

from __future__ import annotations

import re
import struct
from typing import Callable, Dict, Iterator, Optional, Tuple

FUNCTION_BYTES_MAX = 8192
KNOWN_MAX = 10_000

LOCKS = re.compile(
    r"(internal/)?sync\.\(\*(Mutex|RWMutex)\)\.(Try|R|TryR)?[lL]ock(Slow)?"
    r"|(internal/)?sync\.runtime_Semacquire\w+"
)
UNLOCKS = re.compile(r"(internal/)?sync\.\(\*(Mutex|RWMutex)\)\.([rR]U|[uU])nlock(Slow)?")
_RUNTIMES = ("runtime.", "sync.", "internal/sync.")
# `call`, and `lea` relative to the instruction: what is deferred is a closure.
_REFERS = re.compile(rb"(?=\xe8|[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d])")
_CALL_BYTES, _LEA_BYTES = 5, 7
_CALL = 0xE8


class Wrappers:
    """Of one process.

    Args:
        read: address, size in bytes → memory; raises OSError.
        function_at: the name of the function that an instruction is of.
        bounds_of: where that function begins, and its size in bytes.
    """

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        function_at: Callable[[int], Optional[str]],
        bounds_of: Callable[[int], Optional[Tuple[int, int]]],
    ) -> None:
        self._read, self._function_at, self._bounds_of = read, function_at, bounds_of
        self._known: Dict[int, bool] = {}

    def locks(self, address: int) -> bool:
        """The function there locks something that it does not unlock, or that is not known."""
        if address not in self._known:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[address] = self._seen(address)
        return self._known[address]

    def _seen(self, address: int) -> bool:
        name = self._function_at(address) or ""
        if name.startswith(_RUNTIMES):
            return False
        called = [self._function_at(each) or "" for each in self._referred_to(address)]
        if not any(map(LOCKS.fullmatch, called)):
            return False
        return not any(UNLOCKS.fullmatch(each) or each.startswith(f"{name}.") for each in called)

    def _referred_to(self, address: int) -> Iterator[int]:
        bounds = self._bounds_of(address)
        if bounds is None:
            return
        begin, size_bytes = bounds
        try:
            code = self._read(begin, min(size_bytes, FUNCTION_BYTES_MAX))
        except OSError:
            return
        for found in _REFERS.finditer(code):
            at = found.start()
            end = at + (_CALL_BYTES if code[at] == _CALL else _LEA_BYTES)
            if end <= len(code):
                yield begin + end + struct.unpack_from("<i", code, end - 4)[0]
