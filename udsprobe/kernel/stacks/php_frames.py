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
CLASS_NAME = 8
"""Offset of `name` in `struct _zend_class_entry`, Zend/zend.h."""

_WORD = struct.Struct("<Q")
STRING = struct.Struct("<IIQQ")
"""What a `zend_string` begins with: references, type and flags, hash, length; behind it are the
letters and a NUL (Zend/zend_types.h)."""

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
        marked = mark_of(layout, function, read) if function else 0
        found.append(PhpFrame(function, marked, bool(info & _IS_TOP)))
    return tuple(found)


def mark_of(layout: PhpLayout, function: int, read: Reader) -> int:
    """What tells a function from another one in its place.

    Raises:
        OSError, struct.error, OverflowError: as `php_frames`.
    """

    def of_string(string: int) -> int:
        return _print_at(string, read) if string else 0

    kind, name, scope = HEAD.unpack(read(function, HEAD.size))
    (class_name,) = _WORD.unpack(read(scope + CLASS_NAME, _WORD.size)) if scope else (0,)
    if kind == INTERNAL:
        return mark(of_string(name), of_string(class_name))
    file, *lines = TEXT.unpack(read(function + layout.function_file, TEXT.size))
    return mark(of_string(name), of_string(class_name), of_string(file), *lines)


def _print_at(string: int, read: Reader) -> int:
    _, _, known, length = STRING.unpack(read(string, STRING.size))
    if known or length < _WORD.size:
        return int(known or length)
    end = string + STRING.size + length
    return print_of(known, length, read(end - _WORD.size, _WORD.size))


def print_of(known: int, length: int, end: bytes) -> int:
    """Of a string: PHP's hash of it; where PHP has not needed that so far, its length and end.

    Args:
        known: the hash, or 0.
        end: its last letters, eight at least where it has as many.

    Raises:
        struct.error: they are fewer.
    """
    if known or length < _WORD.size:
        return known or length
    return (length * _FACTOR + int(_WORD.unpack(end[-_WORD.size :])[0])) & _MASK


def mark(name: int, of_class: int, file: int = 0, first_line: int = 0, last_line: int = 0) -> int:
    """Of a function, by what `print_of` has of its strings; 0 where there is none."""
    found = (name * _FACTOR + of_class) * _FACTOR + file
    return (found * _FACTOR + (last_line << 32 | first_line)) & _MASK
