"""The interpreters of a process: each has its modules, its threads and its tasks."""

from __future__ import annotations

from typing import List

from udsprobe.kernel.stacks.python_frames import PythonLayout
from udsprobe.symbols.cpython.tasks.objects import Objects

INTERPRETERS_MAX = 8


def interpreters(objects: Objects, frames: PythonLayout) -> List[int]:
    """Their addresses.

    Raises:
        OSError: the process's memory cannot be read.
    """
    found: List[int] = []
    at = objects.word(frames.interpreters)
    while at and len(found) < INTERPRETERS_MAX:
        found.append(at)
        at = objects.word(at + frames.interpreter_next)
    return found
