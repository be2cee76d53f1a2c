"""A stack of the interpreter's C functions, with the functions of Python that they execute."""

from __future__ import annotations

import re
from typing import List, Optional, Sequence, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.python_frames import PythonFrame, PythonLayout
from udsprobe.symbols.cpython.functions import PythonFunctions
from udsprobe.symbols.cpython.interpreter import Interpreter, interpreter_of
from udsprobe.symbols.cpython.tasks.stacks import TaskStacks
from udsprobe.symbols.mappings import Mapping
from udsprobe.symbols.process_names import CodeFrame, ParkedStack
from udsprobe.symbols.target_images import TargetImages

# Python/ceval.c, also the parts that a compiler takes out of it; the second are the functions that
# take the place of its loop where clang built it (3.14 and later).
_EVALUATES = re.compile(r"_PyEval_EvalFrameDefault(\..*)?|_TAIL_CALL_\w+")


class PythonStacks:
    """Of one process.

    Attributes:
        has_named: it had frames of Python.
    """

    def __init__(self, pid: int, images: TargetImages, memory: ProcessMemory) -> None:
        self._pid, self._images, self._memory = pid, images, memory
        self._functions: Optional[PythonFunctions] = None
        self._tasks: Optional[TaskStacks] = None
        self._interpreter: Optional[Interpreter] = None
        self.has_named = False

    @property
    def layout(self) -> Optional[PythonLayout]:
        """How its frames are followed; None: it runs no CPython, or none that is known."""
        return None if self._interpreter is None else self._interpreter.layout.frames

    def look(self, mapped: Sequence[Mapping]) -> None:
        """Find its interpreter, as soon as that is there.

        Args:
            mapped: the executable memory of the process, which has changed.
        """
        found = interpreter_of(self._pid, mapped, self._images, self._memory)
        if found != self._interpreter:
            self._interpreter = found
            self._functions = PythonFunctions(found.layout.names, self._memory) if found else None
            self._tasks = None

    def begin_round(self) -> None:
        """Other code may be where code was."""
        if self._functions is not None:
            self._functions.begin_round()

    def waiting_tasks(self) -> List[ParkedStack]:
        """Where tasks of asyncio wait at this moment; none of a process without any."""
        if self._interpreter is None or self._functions is None:
            return []
        if self._tasks is None:
            self._tasks = TaskStacks(self._interpreter, self._functions, self._memory)
        found = self._tasks.waiting()
        self.has_named = self.has_named or bool(found)
        return found

    def merged(self, native: Sequence[CodeFrame], python: Sequence[PythonFrame]) -> List[CodeFrame]:
        """Both, the innermost first."""
        if not python or self._interpreter is None:
            return list(native)
        self.has_named = True
        return merged(native, self._calls(python), self._interpreter.module)

    def _calls(self, frames: Sequence[PythonFrame]) -> List[List[CodeFrame]]:
        """For each call of the interpreter's C function the frames that it executes."""
        calls: List[List[CodeFrame]] = [[]]
        for frame in frames:
            if frame.code:
                calls[-1].append(self._named(frame))
            if frame.ends_call:
                calls.append([])
        return calls if calls[-1] else calls[:-1]

    def _named(self, frame: PythonFrame) -> CodeFrame:
        assert self._functions is not None and self._interpreter is not None
        module, found = self._interpreter.module, self._functions.of(frame)
        if found is None:
            return CodeFrame(None, module)
        return CodeFrame(found.name, module, found.file, found.line)


def merged(
    native: Sequence[CodeFrame], calls: Sequence[Sequence[CodeFrame]], module: str
) -> List[CodeFrame]:
    """In the place of each function that evaluates frames, the frames that it does.

    Where their number is another than that of the calls (callers were not found, or a part of the
    function has no name), all frames of Python are in the place of the first one and of what is
    between it and the last. Where none has a name, in that of the interpreter's functions, from the
    innermost one without a name on.

    Args:
        native: the innermost first, as are `calls`.
        module: of the interpreter.
    """
    places = [at for at, frame in enumerate(native) if _evaluates(frame)]
    if len(places) == len(calls):
        waiting = iter(calls)
        return [
            found for frame in native for found in (next(waiting) if _evaluates(frame) else [frame])
        ]
    python = [frame for call in calls for frame in call]
    first, last = (places[0], places[-1]) if places else _interpreters(native, module)
    return [*native[:first], *python, *native[last + 1 :]]


def _interpreters(native: Sequence[CodeFrame], module: str) -> Tuple[int, int]:
    """Of the innermost of its functions without a name, and of the outermost of all."""
    of_it = [at for at, frame in enumerate(native) if frame.module == module]
    nameless = [at for at in of_it if native[at].function is None]
    return (nameless[0], of_it[-1]) if nameless else (len(native), len(native))


def _evaluates(frame: CodeFrame) -> bool:
    return _EVALUATES.fullmatch(frame.function or "") is not None
