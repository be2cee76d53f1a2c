"""A stack of V8's code, with the functions of JavaScript that it belongs to."""

from __future__ import annotations

import platform
import re
from contextlib import suppress
from typing import Callable, List, Optional, Sequence

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.v8_frames import V8Frame, V8Layout
from udsprobe.printable import printable
from udsprobe.symbols.mappings import Mapping
from udsprobe.symbols.process_names import JIT, MAPS_BYTES_MAX, CodeFrame, ParkedStack
from udsprobe.symbols.target_images import TargetImages
from udsprobe.symbols.unwinding import Activation
from udsprobe.symbols.v8.awaits.heap_pages import Pages, heap_pages
from udsprobe.symbols.v8.awaits.stacks import AwaitStacks
from udsprobe.symbols.v8.functions import V8Functions
from udsprobe.symbols.v8.layouts import Layout, layout_of

# Node's program, or its library.
_FILE = re.compile(rb"(lib)?node(js)?([-.\d].*)?")
_BUILTIN = "Builtins_"
# Which instructions call is known of x86-64 alone.
_IS_X86 = platform.machine() == "x86_64"
# Of these each belongs to what it interprets; other builtins are called by that.
_INTERPRETS = re.compile(r"Builtins_(Interpreter\w+|\w+Handler|Baseline\w*)")


class V8Stacks:
    """Of one process.

    Args:
        has_code: whether code is at an address.

    Attributes:
        module: name of the file with its code; empty: there is none.
        has_named: it had functions of JavaScript.
    """

    def __init__(
        self,
        pid: int,
        images: TargetImages,
        memory: ProcessMemory,
        has_code: Callable[[int], bool],
    ) -> None:
        self._pid, self._images, self._memory = pid, images, memory
        self._has_code = has_code
        self._layout: Optional[Layout] = None
        self._functions: Optional[V8Functions] = None
        self._awaits: Optional[AwaitStacks] = None
        self.module = ""
        self.has_named = False

    @property
    def layout(self) -> Optional[V8Layout]:
        """How its frames are followed; None: it has no V8, or none that tells."""
        return None if self._layout is None else self._layout.frames

    def look(self, mapped: Sequence[Mapping]) -> None:
        """Find it, as soon as it is there.

        Args:
            mapped: the executable memory of the process, which has changed.
        """
        for mapping in mapped:
            if mapping.is_file and _FILE.fullmatch(mapping.name):
                with suppress(OSError):
                    self._take(self._found(mapping), mapping)
                if self._layout is not None:
                    break

    def begin_round(self) -> None:
        """Other functions may be where functions were."""
        if self._functions is not None:
            self._functions.begin_round()

    def waiting_functions(self) -> List[ParkedStack]:
        """Where async functions wait at this moment; none of a process without any."""
        found = [] if self._awaits is None else self._awaits.waiting()
        self.has_named = self.has_named or bool(found)
        return found

    def named(
        self, activations: Sequence[Activation], native: Sequence[CodeFrame], v8: Sequence[V8Frame]
    ) -> List[CodeFrame]:
        """The functions of a stack, those of V8's code by what it executes; the innermost first.

        Args:
            native: of each activation, its function without V8's help.
        """
        shared = {each.fp: each.shared for each in v8 if each.shared}
        if self._functions is None:
            return list(native)
        found: List[CodeFrame] = []
        # From the outside: a frame is that of the first one, what it calls may have none.
        for at in range(len(native) - 1, -1, -1):
            of_frame = shared.pop(activations[at].fp, 0) if self._is_its(native[at]) else 0
            found += self._one(native[at], of_frame, activations[at].address, is_call=at > 0)
        found.reverse()
        # It has a frame after all: the word at its stack pointer was an address by chance.
        if len(activations) > 1 and activations[0].fp == activations[1].fp and found[0] == found[1]:
            del found[1]
        return found

    def _one(
        self, frame: CodeFrame, shared: int, address: int, *, is_call: bool
    ) -> List[CodeFrame]:
        """What is there, the outermost first: a builtin may run in the frame of its caller."""
        assert self._functions is not None
        is_made = frame.module == JIT
        if not shared and is_made and frame.function is None:
            shared = self._functions.shared_at(address) or 0
        is_told = is_call and is_made and shared and _IS_X86
        inlined = self._functions.inlined_at(address) if is_told else ()
        named = [name for each in (shared, *inlined) for name in self._named(each)]
        if not named:
            return [frame]
        self.has_named = True
        is_called = frame.function is not None and not _INTERPRETS.fullmatch(frame.function)
        return [*named, frame] if is_called and not is_made else named

    def _named(self, shared: int) -> List[CodeFrame]:
        """None of what is none, or of V8's own code."""
        assert self._functions is not None
        found = self._functions.of(shared) if shared else None
        return [] if found is None else [CodeFrame(found.name, JIT, found.file, found.line)]

    def _is_its(self, frame: CodeFrame) -> bool:
        """Made at run time, or V8's interpreter: the frame tells whose function it executes.

        Of a stripped file, as Debian's, no builtin has a name.
        """
        if frame.function is None:
            return frame.module in (JIT, self.module)
        return frame.module == JIT or frame.function.startswith(_BUILTIN)

    def _take(self, found: Optional[Layout], mapping: Mapping) -> None:
        if found is not None and found != self._layout:
            self._layout, self.module = found, printable(mapping.name)
            self._functions = V8Functions(found.names, self._memory, self._has_code)
            self._awaits = None
            if found.awaits is not None:
                self._awaits = AwaitStacks(
                    found, found.awaits, self._functions, self._memory, self._pages
                )

    def _pages(self) -> List[Pages]:
        with suppress(OSError), open(f"/proc/{self._pid}/maps", "rb") as maps:
            return heap_pages(maps.read(MAPS_BYTES_MAX))
        return []

    def _found(self, mapping: Mapping) -> Optional[Layout]:
        exported = self._images.of(self._pid, mapping).objects_at(mapping)
        return layout_of(exported, self._memory) if exported else None
