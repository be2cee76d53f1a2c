"""How to get from code that HotSpot has made to its caller, on x86-64.

Compiled methods have frames of one size, with the caller's frame pointer below the return address
(src/hotspot/cpu/x86/frame_x86.hpp, frame::sender_for_compiled_frame). The interpreter keeps frame
pointers, and below them where its caller's stack ends (sender_for_interpreter_frame).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Dict, List, Optional, Set, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols import frame_rules as ops
from udsprobe.symbols.frame_rules import MACHINES, Operations, Rule
from udsprobe.symbols.java.code_cache import Blob, CodeCache
from udsprobe.symbols.java.layouts import Layout
from udsprobe.symbols.java.machine_code import (
    CALL_BYTES,
    ENTER,
    EPILOGUE_BYTES,
    ends_call,
    left_bytes,
    prologue,
)
from udsprobe.symbols.java.vm_structs import text_at
from udsprobe.symbols.unwinding import Place

INTERPRETER, STUBS, VTABLES = b"Interpreter", b"StubRoutines", b"vtable chunks"
_PLACES_MAX, _PROLOGUE_BYTES_MAX, _CODELETS_MAX = 100_000, 4096, 1_000
_ENTRY_BYTES_MAX, _ENTRY_TEXT = 1 << 16, b"method entry point"
# Of the interpreter, from its frame pointer to where its frame has the method.
_FRAME_FILLED_BYTES = 32
_FP, _SP = MACHINES["x86_64"].fp, MACHINES["x86_64"].sp


def _from_frame(distance: int) -> Operations:
    return ((ops.OP_CALL_FRAME_CFA, 0, 0), (ops.OP_PLUS_UCONST, distance % (1 << 64), 0))


_CALLER, _SAVED = _from_frame(-8), _from_frame(-16)
_INTERPRETED = Rule(
    cfa=((ops.OP_BREGX, _FP, -8), (ops.OP_DEREF, 0, 0)),
    caller=((ops.OP_BREGX, _FP, 8),),
    fp=((ops.OP_BREGX, _FP, 0),),
    is_outermost=False,
    is_signal=False,
)
_NOT_KNOWN = Place(None, False, returns=False, is_called=True)
# Where the interpreter has given a frame back, its frame pointer is the caller's, of any kind:
# `leave`, a pop of the return address, `mov %rbx,%rsp`, before the jump to it.
_LEFT = re.compile(rb"\xc9(\x41?[\x58-\x5f](\x48\x8b\xe3)?)?\Z", re.S)
_LEFT_BYTES = 6


@lru_cache(maxsize=4096)
def _frame(size_bytes: int, *, saves_fp: bool = True, is_signal: bool = False) -> Rule:
    cfa = ((ops.OP_BREGX, _SP, size_bytes),)
    return Rule(cfa, _CALLER, _SAVED if saves_fp else None, False, is_signal)


_BARE, _PUSHED = _frame(8, saves_fp=False), _frame(16)


class JavaFrames:
    """Of one process."""

    def __init__(self, layout: Layout, memory: ProcessMemory, code: CodeCache) -> None:
        self._layout, self._memory, self._code = layout, memory, code
        self._places: Dict[Tuple[int, Blob], Place] = {}
        self._failed: Set[Tuple[int, Blob]] = set()
        self._entries: Optional[List[Tuple[int, int]]] = None
        self._has_sought = False

    def begin_round(self) -> None:
        """Look again at what could not be read."""
        self._failed.clear()
        self._has_sought = False

    def place(self, address: int) -> Optional[Place]:
        """None where no such code is."""
        if not self._code.holds(address):
            return None
        blob = self._code.at(address)
        if blob is None:
            return _NOT_KNOWN
        key = (address, blob)
        if key not in self._places and key not in self._failed:
            if len(self._places) >= _PLACES_MAX:
                self._places.clear()
            try:
                self._places[key] = self._decoded(address, blob)._replace(is_called=True)
            except OSError:
                self._failed.add(key)
        return self._places.get(key, _NOT_KNOWN)

    def _decoded(self, address: int, blob: Blob) -> Place:
        if blob.kind == INTERPRETER:
            return self._interpreted(address)
        before = self._read(blob, address + 1 - CALL_BYTES, address + 1)
        returns = ends_call(before) or address + 1 == blob.deoptimized
        if blob.kind.startswith(STUBS):
            return Place(None, True, returns=True) if returns else self._of_stub(address, blob)
        if blob.is_of_method:
            rule = self._of_method(address, blob, returns=returns)
            return Place(rule, False, returns=returns)
        if blob.kind == VTABLES:
            return Place(_BARE, False, returns=False)
        if not returns or not blob.frame_bytes or b"Deoptimization" in blob.kind:
            return _NOT_KNOWN
        # What stops at a safepoint returns to any instruction.
        is_signal = b"afepoint" in blob.kind
        return Place(_frame(blob.frame_bytes, is_signal=is_signal), False)

    def _of_method(self, address: int, blob: Blob, *, returns: bool) -> Optional[Rule]:
        if not blob.frame_bytes:
            # It calls another method by a jump, and has no frame.
            return None if returns else _BARE
        if returns:
            return _frame(blob.frame_bytes)
        at = address - blob.begin
        if 0 <= blob.frame_complete <= at:
            first = max(blob.begin, address - 2 * EPILOGUE_BYTES)
            near = self._read(blob, first, address + 2 * EPILOGUE_BYTES)
            left = left_bytes(near, address - first, blob.frame_bytes)
            return {0: _frame(blob.frame_bytes), 8: _BARE, 16: _PUSHED}[left]
        return self._of_prologue(at, blob)

    def _of_prologue(self, at: int, blob: Blob) -> Optional[Rule]:
        if not 0 <= blob.frame_complete <= _PROLOGUE_BYTES_MAX:
            return None
        code = self._read(blob, blob.begin, blob.begin + blob.frame_complete)
        found = prologue(code, blob.frame_bytes)
        if found is None:
            return None
        if at >= found.has_room:
            return _frame(blob.frame_bytes, saves_fp=at >= found.complete)
        if found.pushed < 0 or at < found.pushed:
            return _BARE
        return _PUSHED

    def _of_stub(self, address: int, blob: Blob) -> Place:
        """Where it begins and ends it has no frame yet or any more."""
        first = max(blob.begin, address - 4)
        code, at = self._read(blob, first, address + 4), address - first
        rule = None
        if ENTER.match(code, at) or code[at : at + 1] == b"\xc3" or code[at - 1 : at] == b"\xc9":
            rule = _BARE
        elif at and ENTER.match(code, at - 1):
            rule = _PUSHED
        return Place(rule, rule is None, returns=False)

    def _interpreted(self, address: int) -> Place:
        """A frame is made at the entries: before that the frame pointer is the caller's."""
        if _LEFT.search(self._memory.read(address - _LEFT_BYTES, _LEFT_BYTES)):
            return Place(None, False)
        for begin, end in self._method_entries():
            if begin <= address < end:
                code = self._memory.read(begin, address + 1 - begin)
                found = ENTER.search(code)
                is_filled = found is not None and len(code) > found.end() + _FRAME_FILLED_BYTES
                return Place(_INTERPRETED if is_filled else None, False)
        return Place(_INTERPRETED, False)

    def _method_entries(self) -> List[Tuple[int, int]]:
        if self._entries is None and not self._has_sought:
            self._has_sought = True
            self._entries = self._read_entries()
        if self._entries is None:
            raise OSError("no codelets")
        return self._entries

    def _read_entries(self) -> List[Tuple[int, int]]:
        layout = self._layout
        found: List[Tuple[int, int]] = []
        queue = self._memory.word(layout.interpreter)
        codelets = self._memory.word(queue + layout.queue_codelets)
        end, at = self._memory.number(queue + layout.queue_end), 0
        for _ in range(_CODELETS_MAX):
            if not 0 <= at < end:
                return found
            codelet = codelets + at
            size_bytes = self._memory.number(codelet + layout.codelet_bytes)
            text = text_at(self._memory, self._memory.word(codelet + layout.codelet_text))
            if size_bytes <= layout.codelet_size or size_bytes > _ENTRY_BYTES_MAX:
                break
            if text.startswith(_ENTRY_TEXT):
                found.append((codelet + layout.codelet_size, codelet + size_bytes))
            at += size_bytes
        raise OSError("no codelets")

    def _read(self, blob: Blob, begin: int, end: int) -> bytes:
        """Code of it, as far as it has any there."""
        begin, end = max(begin, blob.begin), min(end, blob.end)
        return self._memory.read(begin, end - begin)
