"""How to get from a function to its caller: the call frame information of ELF files.

elfutils' libdw decodes it; that library is found at run time, and its functions here are of its
stable interface (elfutils/libdw.h, ELFUTILS_0.142).
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any, Dict, NamedTuple, Optional, Tuple

from udsprobe.symbols.elf_file import libelf

LIBRARY = "libdw.so.1"
# Not mapped: who cuts a file off that is mapped here would end udsprobe.
_READ = 1
_RULES_MAX = 200_000
_pointer, _int, _word = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64

# DWARF 5, 7.7.1
OP_DEREF, OP_CONST1U, OP_CONSTS = 0x06, 0x08, 0x11
OP_AND, OP_MINUS, OP_MUL, OP_PLUS, OP_PLUS_UCONST = 0x1A, 0x1C, 0x1E, 0x22, 0x23
OP_SHL, OP_GE = 0x24, 0x2A
OP_LIT0, OP_BREG0, OP_BREGX, OP_CALL_FRAME_CFA = 0x30, 0x70, 0x92, 0x9C


class _Op(ctypes.Structure):
    """`Dwarf_Op`."""

    _fields_ = [("atom", ctypes.c_uint8), ("number", _word), ("number2", _word), ("at", _word)]


Operations = Tuple[Tuple[int, int, int], ...]


class Rule(NamedTuple):
    """Of a stretch of code.

    Attributes:
        cfa: how to compute the frame's address.
        caller, fp: where the return address and the caller's frame pointer are; None: as they
            were in the registers.
        is_outermost: nobody called it.
        is_signal: what it interrupted was not at a call.
    """

    cfa: Operations
    caller: Optional[Operations]
    fp: Optional[Operations]
    is_outermost: bool
    is_signal: bool


class Machine(NamedTuple):
    """Numbers of registers in DWARF."""

    fp: int
    sp: int
    link: int


MACHINES = {"x86_64": Machine(fp=6, sp=7, link=16), "aarch64": Machine(fp=29, sp=31, link=30)}


@cache
def _libraries() -> Tuple[Any, Any]:
    library = ctypes.CDLL(LIBRARY)
    for name, result, arguments in (
        ("dwarf_getcfi_elf", _pointer, [_pointer]),
        ("dwarf_cfi_end", _int, [_pointer]),
        ("dwarf_cfi_addrframe", _int, [_pointer, _word, _pointer]),
        ("dwarf_frame_info", _int, [_pointer] * 4),
        ("dwarf_frame_cfa", _int, [_pointer] * 3),
        ("dwarf_frame_register", _int, [_pointer, _int, _pointer, _pointer, _pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library, libelf()


def is_here() -> bool:
    """Whether the library is installed."""
    try:
        _libraries()
    except (OSError, AttributeError):
        return False
    return True


class FrameRules:
    """Of one file, each stretch decoded once.

    The library keeps all of the file's unwinding information in memory: 3.4 MB of Node's. It is
    read when a stretch is asked for that is not known yet, until `rest`.

    Args:
        file: a descriptor, which stays the caller's and open.

    Attributes:
        is_there: the file has any.

    Raises:
        OSError, AttributeError: there is no libdw.
    """

    def __init__(self, machine: Machine, file: int) -> None:
        self._dw, self._elf_library = _libraries()
        self._machine = machine
        self._elf = self._cfi = None
        self._known: Dict[int, Optional[Rule]] = {}
        self._free = ctypes.CDLL(None).free
        self._free.argtypes, self._free.restype = [_pointer], None
        self._file = os.dup(file)
        self._begin()
        self.is_there = bool(self._cfi)

    def at(self, address: int) -> Optional[Rule]:
        """Of the file's own address; None where it has no rule, or one not understood."""
        if address not in self._known:
            if len(self._known) >= _RULES_MAX:
                self._known.clear()
            self._known[address] = self._decoded(address) if self.is_there else None
        return self._known[address]

    def rest(self) -> None:
        """Let the library forget the file; what was decoded stays."""
        if self._elf:
            if self._cfi:
                self._dw.dwarf_cfi_end(self._cfi)
            self._elf_library.elf_end(self._elf)
            self._elf = self._cfi = None

    def close(self) -> None:
        """Give it back. May be called twice."""
        self.rest()
        self.is_there = False
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self) -> None:
        self._elf = self._elf_library.elf_begin(self._file, _READ, None)
        self._cfi = self._dw.dwarf_getcfi_elf(self._elf) if self._elf else None

    def _decoded(self, address: int) -> Optional[Rule]:
        if not self._elf:
            self._begin()
        frame = _pointer()
        if not self._cfi or self._dw.dwarf_cfi_addrframe(self._cfi, address, ctypes.byref(frame)):
            return None
        try:
            return self._rule(frame)
        finally:
            self._free(frame)

    def _rule(self, frame: Any) -> Optional[Rule]:
        is_signal = ctypes.c_bool()
        link = self._dw.dwarf_frame_info(frame, None, None, ctypes.byref(is_signal))
        operations, count = ctypes.POINTER(_Op)(), ctypes.c_size_t()
        if link < 0 or self._dw.dwarf_frame_cfa(
            frame, ctypes.byref(operations), ctypes.byref(count)
        ):
            return None
        caller, is_outermost = self._register(frame, link)
        fp, _ = self._register(frame, self._machine.fp)
        cfa = _listed(operations, count.value)
        return Rule(cfa, caller, fp, is_outermost, is_signal.value) if cfa else None

    def _register(self, frame: Any, number: int) -> Tuple[Optional[Operations], bool]:
        """Where it was saved; whether it is undefined."""
        room = (_Op * 3)()
        operations, count = ctypes.POINTER(_Op)(), ctypes.c_size_t()
        failed = self._dw.dwarf_frame_register(
            frame, number, room, ctypes.byref(operations), ctypes.byref(count)
        )
        if failed:
            return ((0xFF, 0, 0),), False
        if not count.value:
            return None, bool(operations)
        return _listed(operations, count.value), False


def _listed(operations: Any, count: int) -> Operations:
    return tuple((each.atom, each.number, each.number2) for each in operations[: min(count, 64)])
