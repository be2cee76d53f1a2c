"""Where each version of CPython keeps its threads, frames and names, on 64-bit machines.

Until 3.12 these are the offsets that the headers of that version give (`pycore_runtime.h`,
`pycore_interp.h` and `pycore_frame.h` in `Include/internal`, `Include/cpython/code.h`); releases of
one version keep them. From 3.13 on the process itself holds a table of them at the beginning of
`_PyRuntime`, `struct _Py_DebugOffsets`: its order is that of each version's `pycore_runtime.h`
(3.13) or `pycore_debug_offsets.h`.
"""

from __future__ import annotations

import struct
from typing import Dict, NamedTuple, Optional, Sequence, Tuple

from udsprobe.kernel.stacks.python_frames import EACH_FRAME, IS_ENTRY, OWNER, PythonLayout
from udsprobe.symbols.cpython.tasks.layouts import TasksLayout, tasks_layout_of

RUNTIME_BYTES = 1024
"""Of `_PyRuntime` that `layout_of` needs."""

Version = Tuple[int, int]


class NamesLayout(NamedTuple):
    """Offsets in bytes: in a code object, in a type, in a `str`.

    Attributes:
        qualified_name: `Class.method`; where there is none, of the plain name.
        ascii_bytes: size of the header of a `str` of ASCII alone.
        compact_bytes: of that of another.
    """

    type: int
    type_name: int
    file: int
    qualified_name: int
    first_line: int
    length: int
    state: int
    ascii_bytes: int
    compact_bytes: int


class Layout(NamedTuple):
    """Of one process."""

    frames: PythonLayout
    names: NamesLayout
    tasks: Optional[TasksLayout] = None


_UNTIL_3_10 = Layout(
    PythonLayout(
        interpreters=32,
        interpreter_next=0,
        interpreter_threads=8,
        thread_next=8,
        thread_id=176,
        thread_frame=24,
        has_c_frame=0,
        c_frame_frame=0,
        frame_code=32,
        frame_previous=24,
        frame_mark=0,
        mark=EACH_FRAME,
        code_name=112,
    ),
    NamesLayout(8, 24, 104, 112, 40, 16, 32, 48, 72),
)
_3_11 = Layout(
    PythonLayout(
        interpreters=40,
        interpreter_next=0,
        interpreter_threads=16,
        thread_next=8,
        thread_id=152,
        thread_frame=56,
        has_c_frame=1,
        c_frame_frame=8,
        frame_code=32,
        frame_previous=48,
        frame_mark=68,
        mark=IS_ENTRY,
        code_name=128,
    ),
    NamesLayout(8, 24, 112, 128, 72, 16, 32, 48, 72),
)
_3_12 = Layout(
    PythonLayout(
        interpreters=40,
        interpreter_next=0,
        interpreter_threads=72,
        thread_next=8,
        thread_id=136,
        thread_frame=56,
        has_c_frame=1,
        c_frame_frame=0,
        frame_code=0,
        frame_previous=8,
        frame_mark=70,
        mark=OWNER,
        code_name=128,
    ),
    NamesLayout(8, 24, 112, 128, 68, 16, 32, 40, 56),
)
_FIXED: Dict[Version, Layout] = {
    **{(3, minor): _UNTIL_3_10 for minor in (8, 9, 10)},
    (3, 11): _3_11,
    (3, 12): _3_12,
}

# Which numbers of `struct _Py_DebugOffsets` are, in this order: interpreters_head; of an
# interpreter next, threads_head; of a thread next, thread_id, current_frame; of a frame executable,
# previous, owner; of code filename, qualname, firstlineno; ob_type; tp_name; of str length, state,
# asciiobject_size.
_TOLD: Dict[Version, Sequence[int]] = {
    (3, 13): (5, 8, 9, 21, 24, 23, 30, 29, 33, 35, 37, 39, 45, 47, 69, 68, 70),
    (3, 14): (5, 8, 9, 24, 27, 26, 33, 32, 36, 40, 42, 44, 51, 53, 79, 78, 80),
    (3, 15): (5, 8, 9, 24, 30, 26, 41, 40, 44, 48, 50, 52, 59, 61, 91, 90, 92),
}
_COOKIE, _FREE_THREADED = b"xdebugpy", 2
_OFFSET_MAX = 1 << 20


def layout_of(
    version: Optional[Version], address: int, runtime: bytes, asyncio: bytes = b""
) -> Optional[Layout]:
    """Of a process with that CPython; None where it is not known.

    Args:
        version: from elsewhere; None: not known. What `_PyRuntime` says itself goes before it.
        address: of `_PyRuntime`.
        runtime: its first bytes, as many as there are up to `RUNTIME_BYTES`.
        asyncio: `ASYNCIO_BYTES` of what asyncio tells of its tasks; empty: nothing.
    """
    if runtime.startswith(_COOKIE):
        return _told(address, runtime, asyncio)
    found = None if version is None else _FIXED.get(version)
    if version is None or found is None:
        return None
    return _at(address, found._replace(tasks=tasks_layout_of(version)))


def _at(address: int, layout: Layout) -> Layout:
    frames = layout.frames
    return layout._replace(frames=frames._replace(interpreters=address + frames.interpreters))


def _told(address: int, runtime: bytes, asyncio: bytes) -> Optional[Layout]:
    numbers = struct.unpack_from(f"<{len(runtime) // 8}Q", runtime)
    version = numbers[1] >> 24 & 0xFF, numbers[1] >> 16 & 0xFF
    places = _TOLD.get(version)
    # Without the interpreter lock objects have another header.
    if places is None or numbers[_FREE_THREADED] or max(places) >= len(numbers):
        return None
    offsets = [numbers[place] for place in places]
    if max(offsets) > _OFFSET_MAX:
        return None
    (head, next_, threads, thread_next, thread_id, frame, code, previous, owner) = offsets[:9]
    (file, name, line, type_, type_name, length, state, ascii_bytes) = offsets[9:]
    frames = PythonLayout(
        head,
        next_,
        threads,
        thread_next,
        thread_id,
        frame,
        0,
        0,
        code,
        previous,
        owner,
        OWNER,
        name,
    )
    # `PyCompactUnicodeObject` has two words more: utf8_length, utf8.
    sizes = ascii_bytes, ascii_bytes + 16
    return _at(
        address,
        Layout(
            frames,
            NamesLayout(type_, type_name, file, name, line, length, state, *sizes),
            tasks_layout_of(version, numbers, asyncio),
        ),
    )
