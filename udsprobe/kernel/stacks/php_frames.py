"""Frames of PHP in the memory of a process, as the sampler's programs follow them."""

from __future__ import annotations

import struct
from typing import List, NamedTuple, Tuple

from udsprobe.kernel.stacks.python_frames import Reader

FRAMES_MAX = 128
INTERNAL = 1
"""`type` of a function that is in C: ZEND_INTERNAL_FUNCTION, Zend/zend_compile.h."""

HEAD = struct.Struct("<B7xQQ")
"""What a `zend_function` begins with: its type, name and class; strings by their addresses."""

TEXT = struct.Struct("<QII")
"""Of one of PHP's own: its file, first and last line."""

CALL_FUNCTION = 24
"""Offset of `func` in `struct _zend_execute_data`: PHP 7.0 to 8.5, as `CALL_PREVIOUS`."""

CALL_PREVIOUS = 48
# func, This (with the flags of the call in This.u1.type_info), prev_execute_data
_CALL = struct.Struct("<Q8xI4xQ")
_WORD = struct.Struct("<Q")
_STRING_HASH = 8
_IS_TOP = 1 << 17
_FACTOR, _MASK = 31, (1 << 64) - 1


class PhpLayout(NamedTuple):
    """`struct php_layout` of bpf/stacks.h.

    Attributes:
        current_call: address of the pointer to the newest call.
        function_file: offset in bytes, in a function, of its file and lines.
    """

    current_call: int
    function_file: int


class PhpFrame(NamedTuple):
    """One of a stack.

    Attributes:
        function: address of its `zend_function`; 0: it has none.
        mark: see `mark_of`.
        is_top: it was called by C, not by a function of PHP (ZEND_CALL_TOP).
    """

    function: int
    mark: int
    is_top: bool


def php_frames(layout: PhpLayout, read: Reader) -> Tuple[PhpFrame, ...]:
    """Of the main thread, which sleeps, the innermost first.

    Raises:
        OSError, struct.error: the process's memory cannot be read.
        OverflowError: what was read there is no address.
    """
    (at,) = _WORD.unpack(read(layout.current_call, _WORD.size))
    found: List[PhpFrame] = []
    while at and len(found) < FRAMES_MAX:
        function, info, at = _CALL.unpack(read(at + CALL_FUNCTION, _CALL.size))
        function &= ~7
        mark = mark_of(layout, function, read) if function else 0
        found.append(PhpFrame(function, mark, bool(info & _IS_TOP)))
    return tuple(found)


def mark_of(layout: PhpLayout, function: int, read: Reader) -> int:
    """What tells a function from another one in its place: of its name, file and lines.

    Raises:
        OSError, struct.error, OverflowError: as `php_frames`.
    """
    kind, name, _ = HEAD.unpack(read(function, HEAD.size))
    mark = _hash(name, read)
    if kind == INTERNAL:
        return mark
    file, first, last = TEXT.unpack(read(function + layout.function_file, TEXT.size))
    mark = mark * _FACTOR + _hash(file, read)
    lines = int(last << 32 | first)
    return (mark * _FACTOR + lines) & _MASK


def _hash(string: int, read: Reader) -> int:
    if not string:
        return 0
    return int(_WORD.unpack(read(string + _STRING_HASH, _WORD.size))[0])
