"""A stack of the interpreter's C functions, with the functions of PHP that they execute."""

from __future__ import annotations

import re
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.php_frames import FRAMES_MAX, PhpFrame, PhpLayout
from udsprobe.symbols.mappings import Mapping
from udsprobe.symbols.php.engine import Engine, engine_of
from udsprobe.symbols.php.functions import PhpFunction, PhpFunctions
from udsprobe.symbols.process_names import JIT, CodeFrame
from udsprobe.symbols.target_images import TargetImages
from udsprobe.symbols.unwinding import Activation

MAIN, INCLUDE, EVAL = "{main}", "include", "eval"
"""What PHP's own traces call the code of the script, of a file that it includes, of an eval()."""

INTERNAL_FILE = "php:internal"
"""In the place of the file of a function that PHP has in C."""

# Zend/zend_vm_execute.h, also the parts that a compiler takes out of it; and what it is made of
# where each instruction has a function of its own.
_EXECUTES = re.compile(r"execute_ex(\..*)?")
_INSTRUCTION = re.compile(r"(ZEND_\w+_HANDLER|zend_\w+_helper_SPEC\w*)(\..*)?")
_CALLS = "zend_call_function"
# ZEND_FUNCTION, ZEND_METHOD: how C calls what PHP knows by its name.
_OF_PHP = re.compile(r"zi[fm]_\w+")


MADE = CodeFrame("execute_ex", JIT)
"""Code that PHP has made at run time: it does what `execute_ex` would do."""


class Call(NamedTuple):
    """What C has called at once.

    Attributes:
        frames: the innermost first.
        is_internal: the outermost of them is a function in C.
        begins_internal: the innermost is.
    """

    frames: List[CodeFrame]
    is_internal: bool
    begins_internal: bool


class PhpStacks:
    """Of one process.

    Args:
        is_of_no_file: whether the executable memory at an address is. PHP shares the code that it
            makes among its processes; that of PCRE, say, is of no file.

    Attributes:
        has_named: it had frames of PHP.
    """

    def __init__(
        self,
        pid: int,
        images: TargetImages,
        memory: ProcessMemory,
        is_of_no_file: Callable[[int], bool],
    ) -> None:
        self._pid, self._images, self._memory = pid, images, memory
        self._is_of_no_file = is_of_no_file
        self._functions: Optional[PhpFunctions] = None
        self._engine: Optional[Engine] = None
        self.has_named = False

    @property
    def layout(self) -> Optional[PhpLayout]:
        """How its frames are followed; None: it runs no PHP, or none that is known."""
        return None if self._engine is None else self._engine.layout

    def look(self, mapped: Sequence[Mapping]) -> None:
        """Find its interpreter, as soon as that is there.

        Args:
            mapped: the executable memory of the process, which has changed.
        """
        found = engine_of(self._pid, mapped, self._images, self._memory)
        if found != self._engine:
            self._engine = found
            self._functions = PhpFunctions(found.layout, self._memory) if found else None

    def is_whole(self, frames: Sequence[PhpFrame]) -> bool:
        """They reach the script's own code, which C has called."""
        return self.layout is not None and 0 < len(frames) < FRAMES_MAX and frames[-1].is_top

    def begin_round(self) -> None:
        """Other functions may be where functions were."""
        if self._functions is not None:
            self._functions.begin_round()

    def merged(
        self,
        activations: Sequence[Activation],
        native: Sequence[CodeFrame],
        frames: Sequence[PhpFrame],
    ) -> List[CodeFrame]:
        """Both, the innermost first.

        Args:
            native: names of the activations, one for each.
        """
        calls = self._calls(frames) if self._engine is not None else []
        if not calls or self._engine is None:
            return list(native)
        self.has_named = True
        of_c = [
            MADE if frame.module == JIT and not self._is_of_no_file(each.address) else frame
            for each, frame in zip(activations, native)
        ]
        return merged(of_c, calls, self._engine.module)

    def _calls(self, frames: Sequence[PhpFrame]) -> List[Call]:
        found: List[Call] = []
        waiting: List[Tuple[CodeFrame, bool]] = []
        with_function = [each for each in frames if each.function]
        for frame in with_function:
            is_last = frame is with_function[-1]
            named = self._named(frame, is_last and len(frames) < FRAMES_MAX)
            if named is not None:
                waiting.append(named)
            if waiting and (frame.is_top or is_last):
                found.append(Call([each for each, _ in waiting], waiting[-1][1], waiting[0][1]))
                waiting = []
        return found

    def _named(self, frame: PhpFrame, is_outermost: bool) -> Optional[Tuple[CodeFrame, bool]]:
        """And whether it is in C; None: PHP itself does not count it."""
        assert self._functions is not None and self._engine is not None
        found = self._functions.of(frame)
        module = self._engine.module
        if found is None:
            return CodeFrame(None, module), False
        if found.is_internal:
            # Without a name: what PHP's own machinery for fibers has there.
            return (CodeFrame(found.name, module, INTERNAL_FILE), True) if found.name else None
        name = found.name or _code_of(found, is_outermost)
        return CodeFrame(name, module, found.file, found.line), False


def _code_of(found: PhpFunction, is_outermost: bool) -> str:
    if is_outermost:
        return MAIN
    return EVAL if found.is_evaluated else INCLUDE


class _Place(NamedTuple):
    """Of one call in the stack of C: what stands for it, `first` to `last`."""

    first: int
    last: int
    is_internal: bool


def merged(native: Sequence[CodeFrame], calls: Sequence[Call], module: str) -> List[CodeFrame]:
    """In the place of each function that executes PHP, the frames that it does.

    Where they are others than the calls (callers were not found), all frames of PHP are in the
    place of the first one and of what is between it and the last. What has no name in PHP's file
    and was called from there is of the function of PHP that it works for.

    Args:
        native: the innermost first, as are `calls`.
        module: of the interpreter.
    """
    places = _places(native, module)
    if [each.is_internal for each in places] != [each.is_internal for each in calls]:
        places = [_whole(native, places, module)]
        calls = [_joined(calls)]
    found: List[CodeFrame] = []
    done = 0
    for place, call in zip(places, calls):
        found += _work_for(call, native[done : place.first], module) + call.frames
        done = place.last + 1
    return [*found, *native[done:]]


def _joined(calls: Sequence[Call]) -> Call:
    frames = [frame for call in calls for frame in call.frames]
    return Call(frames, calls[-1].is_internal, calls[0].begins_internal)


def _places(native: Sequence[CodeFrame], module: str) -> List[_Place]:
    found: List[_Place] = []
    for at, frame in enumerate(native):
        before = found[-1] if found and found[-1].last == at - 1 else None
        if _executes(frame):
            is_part = before is not None and not _executes_alone(native[at - 1])
            first = before.first if before is not None and is_part else at
            if is_part:
                found.pop()
            found.append(_Place(first, at, False))
        elif frame.function == _CALLS and frame.module == module and before is None:
            # What C calls in C: it stays in the stack.
            found.append(_Place(at, at - 1, True))
    return found


def _executes(frame: CodeFrame) -> bool:
    """It is a part of the interpreter, or what PHP has made at run time instead."""
    function = frame.function or ""
    return any(each.fullmatch(function) is not None for each in (_EXECUTES, _INSTRUCTION))


def _executes_alone(frame: CodeFrame) -> bool:
    """The outermost part, which C has called."""
    return frame != MADE and _EXECUTES.fullmatch(frame.function or "") is not None


def _whole(native: Sequence[CodeFrame], places: Sequence[_Place], module: str) -> _Place:
    executing = [each for each in places if not each.is_internal]
    if executing:
        return _Place(executing[0].first, executing[-1].last, False)
    of_it = [at for at, frame in enumerate(native) if frame.module == module]
    nameless = [at for at in of_it if native[at].function is None]
    first, last = (nameless[0], of_it[-1]) if nameless else (len(native), len(native))
    return _Place(first, last, False)


def _work_for(call: Call, native: Sequence[CodeFrame], module: str) -> List[CodeFrame]:
    """Functions of C that the innermost one of a call has called."""
    end = len(native)
    while end and _has_no_name_of_its_own(native[end - 1], call, module):
        end -= 1
    return list(native[:end])


def _has_no_name_of_its_own(frame: CodeFrame, call: Call, module: str) -> bool:
    if frame.function is None:
        return frame.module == module or call.begins_internal
    return call.begins_internal and _OF_PHP.fullmatch(frame.function) is not None
