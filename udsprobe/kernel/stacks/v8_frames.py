"""Frames of V8 on the stack of a thread, as the sampler's programs follow them."""

from __future__ import annotations

import struct
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
    """The frame at a frame pointer: address of its function's shared part; 0: it has none."""

    fp: int
    shared: int


class StackTop(NamedTuple):
    """Registers of a thread, and its stack from `sp` on."""

    sp: int
    fp: int
    words: Tuple[int, ...]


def v8_frames(layout: V8Layout, top: StackTop, read: Reader) -> Tuple[V8Frame, ...]:
    """Of a thread that sleeps, the innermost first.

    Raises:
        OSError: the process's memory cannot be read.
        OverflowError: what was read there is no address.
    """

    def word(address: int) -> int:
        return int(_WORD.unpack(read(address, _WORD.size))[0])

    found: List[V8Frame] = []
    fp = _first_frame(top, word)
    while fp and len(found) < FRAMES_MAX:
        context, function = word(fp + layout.frame_context), word(fp + layout.frame_function)
        shared = 0
        if _is_object(context) and _is_object(function):
            (kind,) = _TYPE.unpack(read(word(function - 1) - 1 + layout.map_type, _TYPE.size))
            is_function = kind == layout.function_type
            shared = word(function - 1 + layout.function_shared) - 1 if is_function else 0
        found.append(V8Frame(fp, shared))
        before, fp = fp, word(fp)
        if fp <= before:
            break
    return tuple(found)


def _first_frame(top: StackTop, word: Callable[[int], int]) -> int:
    """As in bpf/v8_frames.bpf.h: the C library keeps no frame pointer. 0: there is none."""
    candidates = (top.fp, *top.words[:SCANNED_WORDS])
    return next((each for each in candidates if _is_chain(each, top.sp, word)), 0)


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
