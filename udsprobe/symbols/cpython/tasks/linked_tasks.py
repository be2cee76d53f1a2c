"""Tasks by the lists that CPython 3.14 and later keep: of each thread, and of ended threads.

Source: `Modules/_asynciomodule.c` (`register_task`), `Python/pystate.c` (`tstate_delete_common`),
`Include/internal/pycore_llist.h` and `InternalDocs/asyncio.md`: the tasks of the module in C, and
of classes made of it, whatever loop they have. A list is a ring, and its head is in no task.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Dict, Iterable, List, Tuple

from udsprobe.kernel.stacks.python_frames import PythonLayout
from udsprobe.symbols.cpython.tasks.interpreters import interpreters
from udsprobe.symbols.cpython.tasks.layouts import ListsLayout
from udsprobe.symbols.cpython.tasks.objects import Objects

TASKS_MAX, THREADS_MAX = 100_000, 4096
"""Of a process, of an interpreter: none of those behind these, or of the list that they end in."""

LOOKS_MAX = 10
"""At the threads of an interpreter, if one ends while they are read."""

GOINGS_BACK_MAX = 200
"""In one list, to tasks before those that went away while it was read."""


class LinkedTasks:
    """Of one process."""

    def __init__(self, objects: Objects, frames: PythonLayout, layout: ListsLayout) -> None:
        self._objects, self._frames, self._layout = objects, frames, layout
        self._left = 0

    def members(self) -> List[int]:
        """Addresses of all tasks.

        Raises:
            OSError: the process's memory cannot be read.
        """
        found: Dict[int, None] = {}
        self._left = TASKS_MAX
        for interpreter in interpreters(self._objects, self._frames):
            heads = [at + self._layout.in_thread for at in self._threads(interpreter)]
            # Where tasks of a thread that ends meanwhile go is read last: so none is missed.
            for head in [*heads, interpreter + self._layout.in_interpreter]:
                found.update(dict.fromkeys(self._tasks(head)))
        return list(found)

    def task(self, member: int) -> int:
        """A member is the address of its task."""
        return member

    def _threads(self, interpreter: int) -> Iterable[int]:
        """Addresses of their states; where one goes away each time, of those before it."""
        found: Dict[int, None] = {}
        for _ in range(LOOKS_MAX):
            found.clear()
            with suppress(OSError):
                self._add_threads(interpreter, found)
                break
        return found

    def _add_threads(self, interpreter: int, found: Dict[int, None]) -> None:
        """OSError: what one of them leads to is none."""
        at = self._objects.word(interpreter + self._frames.interpreter_threads)
        while at and at not in found and len(found) < THREADS_MAX:
            if self._objects.word(at + self._layout.interpreter) != interpreter:
                raise OSError("no thread")
            found[at] = None
            at = self._objects.word(at + self._frames.thread_next)

    def _tasks(self, head: int) -> List[int]:
        """No one where it is no list, or where that cannot be read."""
        with suppress(OSError):
            return [node - self._layout.in_task for node in self._ring(head)]
        return []

    def _ring(self, head: int) -> List[int]:
        """Each node has both neighbours. Where one is not what the one before it says, that one
        is read again, and so on: they were taken out meanwhile, or are none.
        """
        nodes, at, goings_back = [head], self._objects.word(head), 0
        while at != head:
            self._left -= 1
            following, previous = self._links(at)
            if previous == nodes[-1]:
                nodes.append(at)
                at = following
            else:
                goings_back += 1
                at = nodes.pop() if len(nodes) > 1 else self._objects.word(head)
            if goings_back > GOINGS_BACK_MAX or self._left < 0:
                return []
        return nodes[1:]

    def _links(self, node: int) -> Tuple[int, ...]:
        """To the next node and to the one before."""
        with suppress(OSError):
            return self._objects.words(node, 2)
        return 0, 0
