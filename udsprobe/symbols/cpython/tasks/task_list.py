"""All tasks of asyncio that wait: no thread sleeps for one of them, so the kernel does not see it.

Source: `Lib/asyncio/tasks.py` and `Modules/_asynciomodule.c` of CPython 3.8 to 3.13: each task of
the module in C is in a `WeakSet`, `_all_tasks` (until 3.11) or `_scheduled_tasks`, whatever loop it
has. A task that waits has the future that it waits for; one that runs or is ready has none.
"""

from __future__ import annotations

from contextlib import suppress
from typing import List, NamedTuple, Optional, Tuple

from udsprobe.kernel.stacks.python_frames import PythonLayout
from udsprobe.symbols.cpython.tasks.awaits import AwaitChains, Chain
from udsprobe.symbols.cpython.tasks.layouts import TasksLayout
from udsprobe.symbols.cpython.tasks.objects import Objects

LOOKED_AT_MAX = 500
"""Tasks of a process, at one look; of more than these it is each second one, or third."""

FRAMES_MAX = 5000
"""Of all that are looked at; if they have more, the next look is at fewer tasks."""

INTERPRETERS_MAX = 8
TASK = "_asyncio.Task"
_SETS = ("_scheduled_tasks", "_all_tasks")
_MODULE, _ALWAYS_THERE = "asyncio.tasks", ("sys", "builtins")
# Its dictionary of modules is in the first part of an interpreter.
_INTERPRETER_WORDS = 2048
_WEAK_SET, _MODULE_DICT, _REFERENT = "WeakSet", 16, 16
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
        self._objects, self._frames, self._layout = objects, frames, layout
        self._chains = AwaitChains(objects, frames, layout.frame)
        self._sets: List[int] = []
        self._sought_in: List[Tuple[int, ...]] = []
        self._looks, self._frames_each = 0, 1
        self._modules_at, self._was_sought = layout.modules, False

    def waiting(self) -> Tuple[List[Waiting], int]:
        """Those that wait, and how many each of them stands for.

        Raises:
            OSError: the process's memory cannot be read.
        """
        self._chains.begin_round()
        self._seek()
        members = [one for at in self._sets for one in self._members(at)]
        most = max(1, min(LOOKED_AT_MAX, FRAMES_MAX // self._frames_each))
        each = -(-len(members) // most) or 1
        self._looks += 1
        chosen = members[self._looks % each :: each]
        found = [one for one in map(self._one, chosen) if one is not None]
        frames = sum(len(one.chain.frames) for one in found)
        self._frames_each = -(-frames // len(found)) if found else 1
        return found, each

    def _members(self, weak_set: int) -> List[int]:
        with suppress(OSError):
            return self._objects.members(self._objects.first_attribute(weak_set))
        return []

    def _one(self, reference: int) -> Optional[Waiting]:
        """None: it has ended, runs, or went on while it was looked at."""
        with suppress(OSError):
            task = self._objects.word(reference + _REFERENT)
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

    def _seek(self) -> None:
        """The sets, once the module is there; as long as no other modules come it need not be."""
        if self._sets and all(map(self._is_weak_set, self._sets)):
            return
        sought_in = [self._objects.words(each + 16, 3) for each in self._modules()]
        if self._sets or sought_in != self._sought_in:
            self._sets = [at for each in self._modules() for at in self._found(each)]
            self._sought_in = sought_in

    def _modules(self) -> List[int]:
        """The dictionary with its modules, of each interpreter."""
        found: List[int] = []
        interpreter = self._objects.word(self._frames.interpreters)
        while interpreter and len(found) < INTERPRETERS_MAX:
            found.append(self._modules_of(interpreter))
            interpreter = self._objects.word(interpreter + self._frames.interpreter_next)
        return [each for each in found if each]

    def _modules_of(self, interpreter: int) -> int:
        """0: it has none. A release may keep it elsewhere than the headers that are known."""
        at = self._objects.word(interpreter + self._modules_at)
        if self._is_modules(at):
            return at
        if self._was_sought:
            return 0
        self._was_sought = True
        for number in range(_INTERPRETER_WORDS):
            with suppress(OSError):
                at = self._objects.word(interpreter + 8 * number)
                if at % 8 == 0 and self._is_modules(at):
                    self._modules_at = 8 * number
                    return at
        return 0

    def _is_modules(self, address: int) -> bool:
        with suppress(OSError):
            objects = self._objects
            is_dict = bool(address) and objects.kind(address) == "dict"
            return is_dict and all(objects.named(address, name) for name in _ALWAYS_THERE)
        return False

    def _found(self, modules: int) -> List[int]:
        with suppress(OSError):
            module = self._objects.named(modules, _MODULE)
            names = self._objects.word(module + _MODULE_DICT) if module else 0
            sets = (self._objects.named(names, name) for name in _SETS) if names else ()
            return [at for at in sets if at and self._is_weak_set(at)]
        return []

    def _is_weak_set(self, address: int) -> bool:
        with suppress(OSError):
            return self._objects.kind(address) == _WEAK_SET
        return False
