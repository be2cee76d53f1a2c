"""A stack of a HotSpot process, with the methods of Java that it executes."""

from __future__ import annotations

import platform
import struct
from contextlib import suppress
from typing import List, Optional, Sequence

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.raw_stacks import RawStack
from udsprobe.symbols.java.code_cache import Blob, CodeCache
from udsprobe.symbols.java.frames import INTERPRETER, JavaFrames
from udsprobe.symbols.java.inlined import InlinedMethods
from udsprobe.symbols.java.layouts import Layout, layout_of
from udsprobe.symbols.java.methods import JavaMethods
from udsprobe.symbols.mappings import Mapping
from udsprobe.symbols.process_names import JIT, CodeFrame
from udsprobe.symbols.target_images import TargetImages
from udsprobe.symbols.unwinding import RED_ZONE_BYTES, Activation, Place

_FILE = b"libjvm.so"
# src/hotspot/cpu/x86/frame_x86.hpp, interpreter_frame_method_offset: three words.
_METHOD_BELOW_FP = 24
# While it is loaded it may not tell yet.
_TRIES_MAX = 5
_IS_X86 = platform.machine() == "x86_64"
_WORD = struct.Struct("<Q")


class JavaStacks:
    """Of one process.

    Attributes:
        has_named: it had methods of Java.
    """

    def __init__(self, pid: int, images: TargetImages, memory: ProcessMemory) -> None:
        self._pid, self._images, self._memory = pid, images, memory
        self._where: Optional[Mapping] = None
        self._code: Optional[CodeCache] = None
        self._tries = 0
        self.has_named = False

    @property
    def is_there(self) -> bool:
        """A HotSpot that tells what is needed."""
        return self._code is not None

    def look(self, mapped: Sequence[Mapping]) -> None:
        """Find the virtual machine, as soon as it is there.

        Args:
            mapped: the executable memory of the process, which has changed.
        """
        where = next((each for each in mapped if each.is_file and each.name == _FILE), None)
        if where != self._where:
            self._where, self._code, self._tries = where, None, 0
        if self._code is None and self._tries < _TRIES_MAX:
            self._tries += 1
            if where is not None and _IS_X86:
                with suppress(OSError):
                    self._take(self._found(where))

    def begin_round(self) -> bool:
        """Other methods may be where methods were; whether other code is where code was."""
        if self._code is None:
            return False
        self._methods.begin_round()
        self._frames.begin_round()
        return self._code.begin_round()

    def place(self, address: int) -> Optional[Place]:
        """How to get to the caller of its code; None: it has none there."""
        return None if self._code is None else self._frames.place(address)

    def named(
        self, activations: Sequence[Activation], native: Sequence[CodeFrame], raw: RawStack
    ) -> List[CodeFrame]:
        """The functions of a stack, the innermost first: methods by what it holds of them.

        What calls from one kind of code to another is no function of the program: it is left out
        where something called it.

        Args:
            native: of each activation, its function without the virtual machine's help.
        """
        if self._code is None:
            return list(native)
        found: List[CodeFrame] = []
        for at, (activation, frame) in enumerate(zip(activations, native)):
            if not self._code.holds(activation.address):
                found.append(frame)
                continue
            blob = self._code.at(activation.address)
            methods = self._methods_at(activation, blob, raw, is_call=at > 0)
            named = [each for each in map(self._of, methods) if each]
            self.has_named = self.has_named or bool(named)
            is_method = blob is None or blob.is_of_method or blob.kind == INTERPRETER
            if named or is_method or at == len(native) - 1:
                found += named or [frame]
        return found

    def _methods_at(
        self, activation: Activation, blob: Optional[Blob], raw: RawStack, *, is_call: bool
    ) -> Sequence[int]:
        """That are executed there, the innermost first; 0: not known."""
        if blob is None:
            return ()
        if blob.kind == INTERPRETER:
            return (_word(raw, activation.fp - _METHOD_BELOW_FP),)
        if not blob.is_of_method or not is_call:
            return (blob.method,)[: blob.is_of_method]
        return self._inlined.at(blob, self._behind(activation, blob, raw)) or (blob.method,)

    def _behind(self, activation: Activation, blob: Blob, raw: RawStack) -> int:
        """Where a method that called something is told: behind that, or where it stopped."""
        if activation.address + 1 == blob.deoptimized:
            return _word(raw, activation.sp + blob.original)
        place = self._frames.place(activation.address)
        return activation.address + (place is not None and place.returns)

    def _of(self, method: int) -> Optional[CodeFrame]:
        found = self._methods.of(method)
        return None if found is None else CodeFrame(found.name, JIT, found.file, found.line)

    def _take(self, layout: Optional[Layout]) -> None:
        if layout is not None:
            self._code = CodeCache(layout, self._memory)
            self._frames = JavaFrames(layout, self._memory, self._code)
            self._methods = JavaMethods(layout, self._memory)
            self._inlined = InlinedMethods(layout, self._memory)

    def _found(self, mapping: Mapping) -> Optional[Layout]:
        exported = self._images.of(self._pid, mapping).objects_at(mapping)
        return layout_of(exported, self._memory) if exported else None


def _word(raw: RawStack, address: int) -> int:
    """Of the copied stack; 0: it is not in that."""
    at = address - (raw.registers.sp - RED_ZONE_BYTES)
    if not 0 <= at <= len(raw.memory) - _WORD.size:
        return 0
    return int(_WORD.unpack_from(raw.memory, at)[0])
