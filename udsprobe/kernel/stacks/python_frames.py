"""Frames of CPython in the memory of a process, as the sampler's programs follow them."""

from __future__ import annotations

import struct
from typing import Callable, List, NamedTuple, Tuple

THREADS_MAX = 256
FRAMES_MAX = 128
EACH_FRAME, IS_ENTRY, OWNER = 0, 1, 2
"""`enum python_mark` of bpf/stacks.h."""

_OWNED_BY_C = 3
_WORD = struct.Struct("<Q")


class PythonLayout(NamedTuple):
    """`struct python_layout` of bpf/stacks.h: an address, and offsets in bytes."""

    interpreters: int
    interpreter_next: int
    interpreter_threads: int
    thread_next: int
    thread_id: int
    thread_frame: int
    has_c_frame: int
    c_frame_frame: int
    frame_code: int
    frame_previous: int
    frame_mark: int
    mark: int
    code_name: int


class PythonFrame(NamedTuple):
    """One of a stack.

    Attributes:
        code: address of its code object; 0: it has none.
        name: address of the function's name.
        ends_call: the interpreter's C function was called for it.
    """

    code: int
    name: int
    ends_call: bool


Reader = Callable[[int, int], bytes]
"""(address, size in bytes) → memory of the process; raises OSError where there is none."""


def python_frames(layout: PythonLayout, pthread: int, read: Reader) -> Tuple[PythonFrame, ...]:
    """Of a thread that sleeps, the innermost first.

    Args:
        pthread: what pthread_self() returns in it.

    Raises:
        OSError: the process's memory cannot be read.
        OverflowError: what was read there is no address.
    """

    def word(address: int) -> int:
        return int(_WORD.unpack(read(address, _WORD.size))[0])

    thread = _thread(layout, pthread, word) if pthread else 0
    frame = word(thread + layout.thread_frame) if thread else 0
    if frame and layout.has_c_frame:
        frame = word(frame + layout.c_frame_frame)
    found: List[PythonFrame] = []
    while frame and len(found) < FRAMES_MAX:
        found.append(_frame(layout, frame, word))
        frame = word(frame + layout.frame_previous)
    return tuple(found)


def _thread(layout: PythonLayout, pthread: int, word: Callable[[int], int]) -> int:
    """0: the thread is none of Python's."""
    interpreter, thread = word(layout.interpreters), 0
    for _ in range(THREADS_MAX):
        if thread:
            if word(thread + layout.thread_id) == pthread:
                return thread
            thread = word(thread + layout.thread_next)
        elif interpreter:
            thread = word(interpreter + layout.interpreter_threads)
            interpreter = word(interpreter + layout.interpreter_next)
        else:
            break
    return 0


def _frame(layout: PythonLayout, frame: int, word: Callable[[int], int]) -> PythonFrame:
    mark = word(frame + layout.frame_mark) & 0xFF
    ends_call = {EACH_FRAME: True, IS_ENTRY: bool(mark)}.get(layout.mark, mark >= _OWNED_BY_C)
    if layout.mark == OWNER and ends_call:
        return PythonFrame(0, 0, True)
    # As in bpf/python_frames.bpf.h: the lowest bits are marks.
    code = word(frame + layout.frame_code) & ~7
    return PythonFrame(code, word(code + layout.code_name) if code else 0, ends_call)
