"""Instructions of x86-64 that call, in a piece of code whose boundaries are not known."""

from __future__ import annotations

import struct
from typing import Callable

_CALL, _CALL_BYTES = 0xE8, 5
_INDIRECT, _OF_CALL = 0xFF, 2
_HAS_SIB, _RELATIVE = 4, 5


def has_call(code: bytes, start: int, begins: Callable[[int], bool]) -> bool:
    """Whether anything before its last instruction may be one; where in doubt, it is.

    Args:
        code: from the beginning of an instruction to the end of one.
        start: its address.
        begins: whether a function may begin at an address.
    """
    return any(_is_call(code, at, start, begins) for at in range(len(code) - 1))


def _is_call(code: bytes, at: int, start: int, begins: Callable[[int], bool]) -> bool:
    """One that another instruction follows."""
    if code[at] == _CALL and at + _CALL_BYTES < len(code):
        return begins(start + at + _CALL_BYTES + struct.unpack_from("<i", code, at + 1)[0])
    if code[at] == _INDIRECT and code[at + 1] >> 3 & 7 == _OF_CALL:
        return at + _indirect_bytes(code[at + 1], code[at + 2 : at + 3]) < len(code)
    return False


def _indirect_bytes(mode: int, following: bytes) -> int:
    """Of a call through a register or memory (Intel's manual, volume 2, table 2-2)."""
    kind, base, size_bytes = mode >> 6, mode & 7, 2
    if kind == 3:
        return size_bytes
    if base == _HAS_SIB:
        size_bytes += 1
        base = (following or b"\0")[0] & 7
    return size_bytes + (4 if kind == 2 or (kind == 0 and base == _RELATIVE) else kind)
