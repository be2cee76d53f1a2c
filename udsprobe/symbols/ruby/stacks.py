"""A stack of the interpreter's C functions, with the functions of Ruby that they execute."""

from __future__ import annotations

import re
from typing import List, Optional, Sequence

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.ruby_frames import FRAMES_MAX, NO_FRAME, RubyFrame, RubyLayout
from udsprobe.symbols.mappings import Mapping
from udsprobe.symbols.process_names import JIT, CodeFrame
from udsprobe.symbols.ruby.functions import RubyFunctions
from udsprobe.symbols.ruby.interpreter import Interpreter, has_interpreter, interpreter_of
from udsprobe.symbols.target_images import TargetImages

INTERNAL_FILE = "ruby:internal"
"""In the place of the file of a method that is in C."""

LOOKS_MAX = 60
"""Rounds in which a Ruby that does not tell is looked at again: it may be about to begin."""

# vm.c and vm_exec.c, also the parts that a compiler takes out of them.
_EXECUTES = re.compile(r"(rb_)?vm_exec(_core|_loop)?(\..*)?")
# By which the interpreter calls a function of C for a method.
_CALLS = re.compile(
    r"(rb_)?(vm|ec|iseq)_\w+(\..*)?|(ractor_safe_)?call_cfunc_\w+|invoke_\w+|rb_(call|yield)\w*"
    r"|rb_funcall\w*|rb_ensure|rb_protect|rb_rescue2?"
)


class RubyStacks:
    """Of one process.

    Attributes:
        has_named: it had frames of Ruby.
    """

    def __init__(self, pid: int, images: TargetImages, memory: ProcessMemory) -> None:
        self._pid, self._images, self._memory = pid, images, memory
        self._functions: Optional[RubyFunctions] = None
        self._interpreter: Optional[Interpreter] = None
        self._mapped: Sequence[Mapping] = ()
        self._looks_left = 0
        self.has_named = False

    @property
    def layout(self) -> Optional[RubyLayout]:
        """How its frames are followed; None: it runs no Ruby, or none that is known."""
        return None if self._interpreter is None else self._interpreter.layout.frames

    def look(self, mapped: Sequence[Mapping]) -> None:
        """Find its interpreter, as soon as that is there.

        Args:
            mapped: the executable memory of the process, which has changed.
        """
        self._mapped, self._looks_left = mapped, 0
        if has_interpreter(self._pid, mapped, self._images):
            self._looks_left = LOOKS_MAX
        self._find()

    def begin_round(self) -> None:
        """Other code may be where code was."""
        if self._interpreter is None and self._looks_left:
            self._find()
        if self._functions is not None:
            self._functions.begin_round()

    def is_whole(self, frames: Sequence[RubyFrame]) -> bool:
        """They reach the thread's or fiber's beginning."""
        return self.layout is not None and 0 < len(frames) < FRAMES_MAX and frames[-1] == NO_FRAME

    def merged(self, native: Sequence[CodeFrame], frames: Sequence[RubyFrame]) -> List[CodeFrame]:
        """Both, the innermost first."""
        with_function = [each for each in frames if each.function]
        if not with_function or self._interpreter is None:
            return list(native)
        self.has_named = True
        named = [self._named(each) for each in with_function]
        return merged(native, named, self._interpreter.module)

    def _find(self) -> None:
        self._looks_left = max(0, self._looks_left - 1)
        found = interpreter_of(self._pid, self._mapped, self._images, self._memory)
        if found != self._interpreter:
            self._interpreter = found
            self._functions = RubyFunctions(found.layout.names, self._memory) if found else None

    def _named(self, frame: RubyFrame) -> CodeFrame:
        assert self._functions is not None and self._interpreter is not None
        module, found = self._interpreter.module, self._functions.of(frame)
        if found is None:
            return CodeFrame(None, module, INTERNAL_FILE if frame.is_c else None)
        return CodeFrame(found.name, module, found.file or INTERNAL_FILE, found.line)


def merged(native: Sequence[CodeFrame], ruby: Sequence[CodeFrame], module: str) -> List[CodeFrame]:
    """All frames of Ruby in the place of the interpreter's, from the innermost that executes Ruby,
    or has no name, to the outermost. What that has called is kept before them.

    Args:
        native: the innermost first, as are those of Ruby, which are not none.
        module: of the interpreter.
    """
    of_it = [at for at, frame in enumerate(native) if _is_its(frame, module)]
    begins = [at for at in of_it if _executes(native[at])]
    if not begins:
        return [*native, *ruby]
    work = list(native[: begins[0]])
    is_in_c = ruby[0].file == INTERNAL_FILE
    while work and _has_no_name_of_its_own(work[-1], module, is_in_c=is_in_c):
        work.pop()
    return [*work, *ruby, *native[of_it[-1] + 1 :]]


def _is_its(frame: CodeFrame, module: str) -> bool:
    return frame.module in (module, JIT)


def _executes(frame: CodeFrame) -> bool:
    """Or may: its name is not known, or it was made at run time for that."""
    if frame.function is None or frame.module == JIT:
        return True
    return _EXECUTES.fullmatch(frame.function) is not None


def _has_no_name_of_its_own(frame: CodeFrame, module: str, *, is_in_c: bool) -> bool:
    if frame.function is None:
        return is_in_c
    return frame.module == module and _CALLS.fullmatch(frame.function) is not None
