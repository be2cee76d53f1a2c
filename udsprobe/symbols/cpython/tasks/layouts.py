"""Where each version of CPython keeps the tasks of asyncio and the frames of coroutines.

On 64-bit machines, builds with the interpreter lock. Until 3.13, what headers of that version give:
`pycore_interp.h` (`modules`), `genobject.h`, `frameobject.h` or `pycore_frame.h`, `dictobject.h`,
`pycore_dict.h`; and of `Modules/_asynciomodule.c` `FutureObj_HEAD` and `TaskObj`. From 3.14 on the
process tells most of it, in `struct _Py_DebugOffsets` (`pycore_debug_offsets.h`), and of tasks in
`struct Py_AsyncioModuleDebugOffsets` (`_asynciomodule.c`); of `TaskObj` it does not tell two fields
that are beside others: the future is before the coroutine, the state behind `awaited_by`. Of
`pycore_interpframe_structs.h`, `pycore_frame.h` (`PyFrameState`) and `cpython/code.h` is the rest.
"""

from __future__ import annotations

import struct
from typing import Dict, NamedTuple, Optional, Sequence, Tuple

ASYNCIO_BYTES = 104
"""`sizeof(struct Py_AsyncioModuleDebugOffsets)`."""

# Modules imported, of an interpreter: number in `struct _Py_DebugOffsets` of 3.13.
_MODULES_TOLD = {(3, 13): 11}
# There as well: items of a tuple; frame and state of a generator; stackpointer, localsplus and
# executable of a frame; interp of a thread.
_TOLD = {(3, 14): (57, 85, 86, 37, 35, 33, 25), (3, 15): (69, 101, 102, 45, 43, 41, 25)}
# Numbers in the other one: task_awaited_by, task_coro, task_node; asyncio_tasks_head of an
# interpreter and of a thread.
_ASYNCIO_TOLD, _ASYNCIO = (2, 5, 6, 8, 12), struct.Struct("<13Q")
_OFFSET_MAX, _IN_OBJECT_MAX = 1 << 20, 4096
# Of what `PY_VERSION_HEX` says: before the first candidate structures still change.
_VERSION, _CANDIDATE = 1, 0xC

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
        delegating: of `suspended`, in which it awaits what is on its stack. depth: that is so many
            values below its end.
        is_tagged: values and code are tagged pointers.
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
    delegating: Sequence[int]
    depth: int = 1
    is_tagged: bool = False


class ListsLayout(NamedTuple):
    """Offsets in bytes of `struct llist_node`, of lists of tasks: in a task, in an interpreter and
    in a thread. interpreter: of the pointer to its interpreter, in a thread.
    """

    in_task: int
    in_interpreter: int
    in_thread: int
    interpreter: int


class TasksLayout(NamedTuple):
    """Of one version.

    Attributes:
        modules: in an interpreter. waits_for, coroutine, state: in a task.
        has_log_sizes: keys of a dictionary tell the logarithms of their sizes (3.11).
        attributes: `IN_DICT` or another of these.
        closure: in a function. tuple_items: in a tuple.
        lists: of tasks; None: they are in sets.
    """

    modules: int
    waits_for: int
    coroutine: int
    state: int
    has_log_sizes: bool
    attributes: int
    closure: int
    frame: FrameLayout
    tuple_items: int = 24
    lists: Optional[ListsLayout] = None


_3_8 = FrameLayout(16, False, 116, (0,), 32, 72, 64, 360, 0, True, 56, (0,))
_3_10 = FrameLayout(16, False, 108, (0xFF,), 32, 80, 64, 352, 0, False, 48, (0xFF,))
_3_11 = FrameLayout(80, True, 75, (0xFF,), 32, 64, 0, 72, 76, False, 0, (0xFF,))
_3_12 = FrameLayout(72, True, 67, (0xFF,), 0, 64, 0, 72, 72, False, 0, (0xFF,))
_3_13 = _3_12._replace(suspended=(0xFF, 0xFE))
_3_14 = _3_13._replace(is_top_pointer=True, is_tagged=True)
_3_15 = _3_14._replace(suspended=(1, 2), delegating=(2,), depth=2)
_BY_VERSION: Dict[Tuple[int, int], TasksLayout] = {
    (3, 8): TasksLayout(56, 104, 112, 72, False, IN_DICT, 48, _3_8),
    (3, 9): TasksLayout(856, 144, 152, 80, False, IN_DICT, 48, _3_8),
    (3, 10): TasksLayout(856, 152, 160, 88, False, IN_DICT, 72, _3_10),
    (3, 11): TasksLayout(888, 128, 136, 88, True, BEHIND_POINTER, 72, _3_11),
    (3, 12): TasksLayout(944, 128, 136, 88, True, BEHIND_MARKED_POINTER, 72, _3_12),
    (3, 13): TasksLayout(0, 112, 120, 96, True, INLINE, 72, _3_13),
}
_LISTED = {(3, 14): _3_14, (3, 15): _3_15}


def tasks_layout_of(
    version: Tuple[int, int], told: Sequence[int] = (), asyncio: bytes = b""
) -> Optional[TasksLayout]:
    """None where it is not known.

    Args:
        told: numbers of `struct _Py_DebugOffsets`, where the process has one.
        asyncio: `ASYNCIO_BYTES` of what it has of `struct Py_AsyncioModuleDebugOffsets`.
    """
    if version in _LISTED:
        return _listed(version, told, asyncio)
    found, number = _BY_VERSION.get(version), _MODULES_TOLD.get(version)
    if found is None or number is None:
        return found
    return found._replace(modules=told[number]) if number < len(told) else None


def _listed(version: Tuple[int, int], told: Sequence[int], asyncio: bytes) -> Optional[TasksLayout]:
    """Where tasks are in lists; whatever is told may be anything."""
    places = _TOLD[version]
    if max(places) >= len(told) or len(asyncio) != _ASYNCIO.size:
        return None
    if told[_VERSION] >> 4 & 0xF < _CANDIDATE:
        return None
    items, at, state, top, first, code, interpreter = (told[place] for place in places)
    numbers = _ASYNCIO.unpack(asyncio)
    by, coroutine, node, of_interpreter, of_thread = (numbers[place] for place in _ASYNCIO_TOLD)
    in_objects = items, at, state, top, first, code, interpreter, by, coroutine, node
    in_order = state < at and max(top, code) + 8 <= first and coroutine >= 8
    if not in_order or max(in_objects) > _IN_OBJECT_MAX or max(numbers) > _OFFSET_MAX:
        return None
    frame = _LISTED[version]._replace(at=at, state=state, top=top, first=first, code=code)
    lists = ListsLayout(node, of_interpreter, of_thread, interpreter)
    places_ = (coroutine - 8, coroutine, by + 8)
    return TasksLayout(0, *places_, True, INLINE, 72, frame, items, lists)
