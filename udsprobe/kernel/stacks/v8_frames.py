"""Frames of V8 on the stack of a thread, as the sampler's programs follow them."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Callable, List, NamedTuple, Tuple

from udsprobe.kernel.stacks.python_frames import Reader

FRAMES_MAX = 128
SCANNED_WORDS = 256
STACK_BYTES_MAX = 1 << 20
_WORD, _TYPE = struct.Struct("<Q"), struct.Struct("<H")


class V8Layout(NamedTuple):
    """`struct v8_layout` of bpf/stacks.h: offsets in bytes, and the type of a function."""

    frame_context: int
    frame_function: int
    map_type: int
    function_type: int
    function_shared: int


class V8Frame(NamedTuple):
    """The frame at a frame pointer.

    Attributes:
        shared: address of its function's shared part; 0: it has none.
        caller: the address that it returns to.
    """

    fp: int
    shared: int
    caller: int


class StackTop(NamedTuple):
    """Registers of a thread, and its stack from `sp` on."""

    sp: int
    fp: int
    words: Tuple[int, ...]


def v8_frames(layout: V8Layout, top: StackTop, read: Reader) -> Tuple[V8Frame, ...]:
    """Of a thread that sleeps, the innermost first.

    As in bpf/v8_frames.bpf.h: where its register is no frame pointer (the C library keeps none),
    those that callers have saved; what is in no use any more may look like a few of them, but ends.

    What cannot be read is 0.
    """

    def word(address: int) -> int:
        return _read(read, address, _WORD)

    is_kept = _is_chain(top.fp, top.sp, word)
    found: List[V8Frame] = []
    for fp in (top.fp,) if is_kept else top.words[:SCANNED_WORDS]:
        known = found[-1].fp if found else top.sp
        if fp > known and (is_kept or _is_chain(fp, top.sp, word)):
            _follow(layout, fp, read, found)
    return tuple(found)


def _read(read: Reader, address: int, kind: struct.Struct) -> int:
    with suppress(OSError, OverflowError, struct.error):
        return int(kind.unpack(read(address, kind.size))[0])
    return 0


def _follow(layout: V8Layout, fp: int, read: Reader, found: List[V8Frame]) -> None:
    def word(address: int) -> int:
        return _read(read, address, _WORD)

    while fp and len(found) < FRAMES_MAX:
        context, function = word(fp + layout.frame_context), word(fp + layout.frame_function)
        shared = 0
        if _is_object(context) and _is_object(function):
            kind = _read(read, word(function - 1) - 1 + layout.map_type, _TYPE)
            found_there = word(function - 1 + layout.function_shared)
            if kind == layout.function_type and _is_object(found_there):
                shared = found_there - 1
        found.append(V8Frame(fp, shared, word(fp + _WORD.size)))
        before, fp = fp, word(fp)
        if fp <= before:
            break


def _is_chain(fp: int, sp: int, word: Callable[[int], int]) -> bool:
    def is_in_stack(address: int) -> bool:
        return sp < address <= sp + STACK_BYTES_MAX

    if not is_in_stack(fp) or fp & 15:
        return False
    following = word(fp)
    if following <= fp or not is_in_stack(following):
        return False
    last = word(following)
    return last > following and is_in_stack(last)


def _is_object(word: int) -> bool:
    """src/common/globals.h: a pointer to one has 1 in its lowest two bits."""
    return word & 3 == 1
