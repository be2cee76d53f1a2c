"""All tasks of asyncio that wait: no thread sleeps for one of them, so the kernel does not see it.

Source: `Lib/asyncio/tasks.py` and `Modules/_asynciomodule.c` of CPython 3.8 to 3.15. A task that
waits has the future that it waits for; one that runs or is ready has none.
"""

from __future__ import annotations

from contextlib import suppress
from typing import List, NamedTuple, Optional, Tuple, Union

from udsprobe.kernel.stacks.python_frames import PythonLayout
from udsprobe.symbols.cpython.tasks.awaits import AwaitChains, Chain
from udsprobe.symbols.cpython.tasks.layouts import TasksLayout
from udsprobe.symbols.cpython.tasks.linked_tasks import LinkedTasks
from udsprobe.symbols.cpython.tasks.objects import Objects
from udsprobe.symbols.cpython.tasks.weak_sets import WeakSets

LOOKED_AT_MAX = 500
"""Tasks of a process, at one look; of more than these it is each second one, or third."""

FRAMES_MAX = 5000
"""Of all that are looked at; if they have more, the next look is at fewer tasks."""

TASK = "_asyncio.Task"
# Of FutureObj.
_CALLBACK, _PENDING = 24, 0
_BOUND_TO, _CLOSURE_CELL, _PARTIAL_ARGUMENTS, _METHOD_SELF = 24, 16, 24, 24


class Waiting(NamedTuple):
    """A task that waits.

    Attributes:
        future: address of what it waits for. done: addresses of what is told first when it is done:
            a future that another task waits for, that task, or a group of tasks.
    """

    address: int
    future: int
    chain: Chain
    done: Tuple[int, ...]


class TaskList:
    """Of one process."""

    def __init__(self, objects: Objects, frames: PythonLayout, layout: TasksLayout) -> None:
        self._objects, self._layout = objects, layout
        self._all: Union[LinkedTasks, WeakSets] = (
            WeakSets(objects, frames, layout)
            if layout.lists is None
            else LinkedTasks(objects, frames, layout.lists)
        )
        self._chains = AwaitChains(objects, frames, layout.frame)
        self._looks, self._frames_each = 0, 1

    def waiting(self) -> Tuple[List[Waiting], int]:
        """Those that wait, and how many each of them stands for.

        Raises:
            OSError: the process's memory cannot be read.
        """
        self._chains.begin_round()
        members = self._all.members()
        most = max(1, min(LOOKED_AT_MAX, FRAMES_MAX // self._frames_each))
        each = -(-len(members) // most) or 1
        self._looks += 1
        chosen = members[self._looks % each :: each]
        found = [one for one in map(self._one, chosen) if one is not None]
        frames = sum(len(one.chain.frames) for one in found)
        self._frames_each = -(-frames // len(found)) if found else 1
        return found, each

    def _one(self, member: int) -> Optional[Waiting]:
        """None: it has ended, runs, or went on while it was looked at."""
        with suppress(OSError):
            task = self._all.task(member)
            if not self._objects.is_a(task, TASK):
                return None
            before = self._head(task)
            future, coroutine, is_pending = before
            if not (future and coroutine and is_pending):
                return None
            chain = self._chains.of(coroutine)
            if chain is None or chain.future not in (None, future):
                return None
            done = self._told_when_done(task)
            if self._chains.is_still(chain) and self._head(task) == before:
                return Waiting(task, future, chain, done)
        return None

    def _head(self, task: int) -> Tuple[int, int, bool]:
        layout, word = self._layout, self._objects.word
        is_pending = self._objects.number(task + layout.state) == _PENDING
        return word(task + layout.waits_for), word(task + layout.coroutine), is_pending

    def _told_when_done(self, task: int) -> Tuple[int, ...]:
        """By the first of its callbacks, which is that of who made it."""
        objects = self._objects
        callback = objects.word(task + _CALLBACK)
        kind = objects.kind(callback) if callback else ""
        if kind == "function":
            cells = objects.tuple(objects.word(callback + self._layout.closure))
            return tuple(objects.word(cell + _CLOSURE_CELL) for cell in cells)
        if kind == "functools.partial":
            return tuple(objects.tuple(objects.word(callback + _PARTIAL_ARGUMENTS)))
        if kind in ("builtin_function_or_method", "method"):
            return (objects.word(callback + _METHOD_SELF),)
        # Until 3.9.
        return (objects.word(callback + 16),) if kind == "TaskWakeupMethWrapper" else ()
