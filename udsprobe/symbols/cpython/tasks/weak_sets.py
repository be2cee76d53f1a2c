"""Tasks by the sets that asyncio keeps of them, until CPython 3.13.

Source: `Lib/asyncio/tasks.py` and `Modules/_asynciomodule.c` of CPython 3.8 to 3.13: each task of
the module in C is in a `WeakSet`, `_all_tasks` (until 3.11) or `_scheduled_tasks`, whatever loop it
has.
"""

from __future__ import annotations

from contextlib import suppress
from typing import List, Tuple

from udsprobe.kernel.stacks.python_frames import PythonLayout
from udsprobe.symbols.cpython.tasks.interpreters import interpreters
from udsprobe.symbols.cpython.tasks.layouts import TasksLayout
from udsprobe.symbols.cpython.tasks.objects import Objects

_SETS = ("_scheduled_tasks", "_all_tasks")
_MODULE, _ALWAYS_THERE = "asyncio.tasks", ("sys", "builtins")
# Its dictionary of modules is in the first part of an interpreter.
_INTERPRETER_WORDS = 2048
_WEAK_SET, _MODULE_DICT, _REFERENT = "WeakSet", 16, 16


class WeakSets:
    """Of one process."""

    def __init__(self, objects: Objects, frames: PythonLayout, layout: TasksLayout) -> None:
        self._objects, self._frames = objects, frames
        self._sets: List[int] = []
        self._sought_in: List[Tuple[int, ...]] = []
        self._modules_at, self._was_sought = layout.modules, False

    def members(self) -> List[int]:
        """Weak references to all tasks.

        Raises:
            OSError: the process's memory cannot be read.
        """
        self._seek()
        return [one for at in self._sets for one in self._members(at)]

    def task(self, member: int) -> int:
        """Address of the task that a reference is to; OSError as `members`."""
        return self._objects.word(member + _REFERENT)

    def _members(self, weak_set: int) -> List[int]:
        with suppress(OSError):
            return self._objects.members(self._objects.first_attribute(weak_set))
        return []

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
        found = map(self._modules_of, interpreters(self._objects, self._frames))
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
