"""Where each version of CPython keeps the tasks of asyncio and the frames of coroutines.

On 64-bit machines, builds with the interpreter lock. Until 3.13, what headers of that version give:
`pycore_interp.h` (`modules`), `genobject.h`, `frameobject.h` or `pycore_frame.h`, `dictobject.h`,
`pycore_dict.h`; and of `Modules/_asynciomodule.c` `FutureObj_HEAD` and `TaskObj`.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Sequence, Tuple

# Modules imported, of an interpreter: number in `struct _Py_DebugOffsets` of 3.13.
_MODULES_TOLD = {(3, 13): 11}

IN_DICT, BEHIND_POINTER, BEHIND_MARKED_POINTER, INLINE = range(4)
"""Where an object of a class has its attributes: in a dictionary of its own (until 3.10), in values
that a pointer before it leads to (3.11), one that is marked as such (3.12), or behind it (3.13)."""


class FrameLayout(NamedTuple):
    """Offsets in bytes of what a coroutine, or a generator, goes on in.

    Attributes:
        at: in the coroutine, of its frame or of the pointer to that. is_inside: it is the frame.
        state: of the byte with its state, in the coroutine where the frame is in it, else in the
            frame. suspended: what that is while it waits.
        code: in the frame. top: in the frame, of the pointer behind the last value on its stack, or
            of the number of values. values: of the pointer to the first of these, where there is
            one. first: of its arguments and variables.
        variables: in a code object, of their number; 0: values have a pointer.
        is_top_pointer: `top` is a pointer.
        qualified_name: in the coroutine; 0: code has one.
    """

    at: int
    is_inside: bool
    state: int
    suspended: Sequence[int]
    code: int
    top: int
    values: int
    first: int
    variables: int
    is_top_pointer: bool
    qualified_name: int


class TasksLayout(NamedTuple):
    """Of one version.

    Attributes:
        modules: in an interpreter. waits_for, coroutine, state: in a task.
        has_log_sizes: keys of a dictionary tell the logarithms of their sizes (3.11).
        attributes: `IN_DICT` or another of these.
        closure: in a function.
    """

    modules: int
    waits_for: int
    coroutine: int
    state: int
    has_log_sizes: bool
    attributes: int
    closure: int
    frame: FrameLayout


_3_8 = FrameLayout(16, False, 116, (0,), 32, 72, 64, 360, 0, True, 56)
_3_10 = FrameLayout(16, False, 108, (0xFF,), 32, 80, 64, 352, 0, False, 48)
_3_11 = FrameLayout(80, True, 75, (0xFF,), 32, 64, 0, 72, 76, False, 0)
_3_12 = FrameLayout(72, True, 67, (0xFF,), 0, 64, 0, 72, 72, False, 0)
_3_13 = _3_12._replace(suspended=(0xFF, 0xFE))
_BY_VERSION: Dict[Tuple[int, int], TasksLayout] = {
    (3, 8): TasksLayout(56, 104, 112, 72, False, IN_DICT, 48, _3_8),
    (3, 9): TasksLayout(856, 144, 152, 80, False, IN_DICT, 48, _3_8),
    (3, 10): TasksLayout(856, 152, 160, 88, False, IN_DICT, 72, _3_10),
    (3, 11): TasksLayout(888, 128, 136, 88, True, BEHIND_POINTER, 72, _3_11),
    (3, 12): TasksLayout(944, 128, 136, 88, True, BEHIND_MARKED_POINTER, 72, _3_12),
    (3, 13): TasksLayout(0, 112, 120, 96, True, INLINE, 72, _3_13),
}


def tasks_layout_of(version: Tuple[int, int], told: Sequence[int] = ()) -> Optional[TasksLayout]:
    """None where it is not known.

    Args:
        told: numbers of `struct _Py_DebugOffsets`, where the process has one.
    """
    found, number = _BY_VERSION.get(version), _MODULES_TOLD.get(version)
    if found is None or number is None:
        return found
    return found._replace(modules=told[number]) if number < len(told) else None
