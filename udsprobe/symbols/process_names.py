"""The functions of one process: by the files it has mapped, by its perf map, by the vdso."""

from __future__ import annotations

import os
import platform
import stat
import time
from contextlib import suppress
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.printable import printable
from udsprobe.symbols import frame_rules
from udsprobe.symbols.demangled import function_name
from udsprobe.symbols.dwarf.answers import Source
from udsprobe.symbols.frame_rules import Rule
from udsprobe.symbols.function_table import FunctionTable
from udsprobe.symbols.kernel_functions import VDSO, vdso_function
from udsprobe.symbols.mappings import AddressSpace, Mapping, mappings
from udsprobe.symbols.perf_map import MAP_BYTES_MAX, code_name, entries
from udsprobe.symbols.program_name import NOT_KNOWN, program
from udsprobe.symbols.target_images import Image, TargetImages
from udsprobe.symbols.unwinding import Place

MAPS_BYTES_MAX = 32 << 20
MAP_READING_MAX = 0.05
"""Part of the time that a perf map which grows is read again in."""

JIT = "[jit]"
"""The module of code that was made at run time."""

# What a process calls memory of its own (PR_SET_VMA_ANON_NAME), as Ruby does with YJIT's code.
_OWN_NAME = b"[anon:"
# Memory that is shared, or mapped twice (to write code, and to run it: Erlang's); with huge pages,
# and as System V has it (mm/hugetlb.c, ipc/shm.c).
_SHARED = (b"/memfd:", b"/dev/zero", b"/anon_hugepage", b"/SYSV")
_BUILTIN = b"Builtins_"
_PYTHON = b"py::"
# Python/asm_trampoline.S: `sub $8, %rsp; call *%rcx; add $8, %rsp; ret`, met after its call.
TRAMPOLINE = Rule(
    cfa=((frame_rules.OP_BREG0 + frame_rules.MACHINES["x86_64"].sp, 16, 0),),
    caller=(
        (frame_rules.OP_CALL_FRAME_CFA, 0, 0),
        (frame_rules.OP_CONST1U, 8, 0),
        (frame_rules.OP_MINUS, 0, 0),
    ),
    fp=None,
    is_outermost=False,
    is_signal=False,
)
_FRAMES_MAX = 50_000


class CodeFrame(NamedTuple):
    """One function of a stack; None: not known.

    Attributes:
        module: last part of the path of the file, of the program itself the name it was started
            as; `[kernel]`, `[vdso]`, `[jit]`.
        line: in `file`, where the function begins.
    """

    function: Optional[str]
    module: Optional[str]
    file: Optional[str] = None
    line: Optional[int] = None


class ParkedStack(NamedTuple):
    """Of those that wait in one place: goroutines, or tasks of an event loop.

    Attributes:
        frames: the innermost first. is_whole: they reach its outermost function.
        is_owing: they have requests to answer. waiting: how many they are.
        held_by: the stacks of those that have the lock that they wait for, none where that is not
            known; None: they wait for no lock, or of none that tells.
        for_bytes: of a connection.
    """

    frames: Sequence[CodeFrame]
    is_whole: bool
    is_owing: bool
    waiting: int
    held_by: Optional[Sequence[Sequence[CodeFrame]]] = None
    for_bytes: bool = False


UNKNOWN = CodeFrame(None, None)


def _rule(image: Image, inside: int) -> Optional[Rule]:
    """That of its unwind tables, or that of Go's functions."""
    rule = image.rules.at(inside) if image.rules is not None else None
    of_go = None if image.go is None else image.go.rules
    return rule if rule is not None or of_go is None else of_go.at(inside)


def _source_of_go(image: Image, start: int) -> Tuple[Optional[str], Optional[int]]:
    """File and line of the function that begins there, where its program tells them."""
    found = None if image.go is None else image.go.sources.of(start)
    return (None, None) if found is None else found


def _told_frame(told: Source, module: Optional[str]) -> CodeFrame:
    return CodeFrame(told.name, module, told.file, told.line)


class ProcessNames:
    """Of one process. What it maps later is seen after `refresh`."""

    def __init__(self, pid: int, images: TargetImages, proc: str = "/proc") -> None:
        self._pid = pid
        self._images = images
        self._proc = proc
        self._is_x86 = platform.machine() == "x86_64"
        self._frames: Dict[int, CodeFrame] = {}
        self._inlined: Dict[int, Tuple[CodeFrame, ...]] = {}
        self._map: FunctionTable = FunctionTable(())
        self._map_bytes = -1
        self._map_again_s = 0.0
        self._mapped: List[Mapping] = []
        self._space = AddressSpace(())
        self._program = NOT_KNOWN
        self.has_perf_map = False
        self.refresh()

    def refresh(self) -> bool:
        """Look at its mappings and its perf map again; whether other code is mapped now."""
        text = b""
        with suppress(OSError), open(f"{self._proc}/{self._pid}/maps", "rb") as file:
            text = file.read(MAPS_BYTES_MAX)
        found = mappings(text)
        is_new = bool(text) and found != self._mapped
        if is_new:
            self._mapped = found
            self._space = AddressSpace(found)
            self._program = program(self._pid, self._proc)
            self.forget()
        self._read_perf_map()
        return is_new

    def frame(self, address: int) -> CodeFrame:
        """The function an instruction belongs to."""
        found = self._frames.get(address)
        if found is None:
            if len(self._frames) >= _FRAMES_MAX:
                self._frames.clear()
            found = self._frames[address] = self._named(address)
        return found

    def frames(self, address: int) -> Tuple[CodeFrame, ...]:
        """That function, and before it those that are inlined there, the innermost first."""
        found = self._inlined.get(address)
        if found is None:
            if len(self._inlined) >= _FRAMES_MAX:
                self._inlined.clear()
            found = self._inlined[address] = (*self._inlined_at(address), self.frame(address))
        return found

    def want(self, address: int) -> None:
        """Debug information is to be asked about it, with `TargetImages.look`."""
        image, inside = self._place_in_file(address)
        if image is not None and image.debug is not None:
            image.debug.want(inside)

    def forget(self) -> None:
        """More may be known of any address now."""
        self._frames.clear()
        self._inlined.clear()

    def place(self, address: int) -> Optional[Place]:
        """How to get to its caller; None where no code is."""
        mapping = self._space.at(address)
        if mapping is None:
            return None
        if not mapping.is_file and mapping.path != VDSO:
            return Place(self._trampoline(address), True)
        image = self._image(mapping)
        inside = image.address_of(mapping, address)
        rule = None if inside is None else _rule(image, inside)
        if rule is not None:
            return Place(rule, False)
        keeps_pointers = image.rules is None or not image.rules.is_there or image.is_go
        return Place(None, keeps_pointers or self._is_builtin(image, inside))

    def is_trampoline(self, address: int) -> bool:
        """It is what CPython calls for a function of Python with -X perf."""
        found = self._map.at(address)
        return found is not None and found.name.startswith(_PYTHON)

    def has_code(self, address: int) -> bool:
        """Whether executable memory is there."""
        return self._space.at(address) is not None

    def is_made_at_run_time(self, address: int) -> bool:
        """It is in no file."""
        mapping = self._space.at(address)
        return mapping is not None and not mapping.is_file

    @property
    def mapped(self) -> Sequence[Mapping]:
        """Its executable memory."""
        return self._mapped

    def go_function(self, name: bytes) -> Optional[Tuple[int, int]]:
        """Where a function of Go is, and its size in bytes; None: it runs no Go for this machine.

        Args:
            name: as the linker has it, `runtime.gopark`.
        """
        for mapping in self._mapped:
            if not mapping.is_file or mapping.path != self._program[0]:
                continue
            image = self._image(mapping)
            if image.elf is None or image.go is None or image.go.rules is None:
                return None
            found, loaded_at = image.functions.named(name), image.elf.loaded_at(mapping)
            if found is not None and loaded_at is not None:
                return found.start + loaded_at, found.size_bytes
        return None

    def function_bounds(self, address: int) -> Optional[Tuple[int, int]]:
        """Where the function of an instruction begins, and its size in bytes.

        None: it is in no file, or its size is not known.
        """
        image, inside = self._place_in_file(address)
        found = None if image is None else image.functions.at(inside)
        if found is None or not found.size_bytes:
            return None
        return address - (inside - found.start), found.size_bytes

    def _inlined_at(self, address: int) -> List[CodeFrame]:
        image, inside = self._place_in_file(address)
        if image is None:
            return []
        module = self.frame(address).module
        if image.go is not None:
            calls = image.go.inlined.at(inside)
            return [CodeFrame(each.name, module, *(each.source or (None, None))) for each in calls]
        told = None if image.debug is None else image.debug.at(inside)
        found = [] if told is None else told.inlined_at(inside)
        return [_told_frame(each, module) for each in found]

    def _place_in_file(self, address: int) -> Tuple[Optional[Image], int]:
        """And its address there; None: it is in none."""
        mapping = self._space.at(address)
        if mapping is None or not mapping.is_file:
            return None, 0
        image = self._image(mapping)
        inside = image.address_of(mapping, address)
        return (None, 0) if inside is None else (image, inside)

    def _trampoline(self, address: int) -> Optional[Rule]:
        """On x86-64, where they keep no frame pointer before 3.14."""
        return TRAMPOLINE if self._is_x86 and self.is_trampoline(address) else None

    @staticmethod
    def _is_builtin(image: Image, inside: Optional[int]) -> bool:
        """Of V8: code as it makes at run time, with frame pointers, but in its file."""
        found = None if inside is None else image.functions.at(inside)
        return found is not None and found.name.startswith(_BUILTIN)

    def _named(self, address: int) -> CodeFrame:
        mapping = self._space.at(address)
        if mapping is None:
            return UNKNOWN
        if mapping.is_file or mapping.path == VDSO:
            return self._of_file(mapping, address)
        if mapping.path.startswith(b"[") and not mapping.path.startswith(_OWN_NAME):
            return CodeFrame(None, printable(mapping.path))
        return self._of_map(address)

    def _image(self, mapping: Mapping) -> Image:
        if mapping.path == VDSO:
            return self._images.vdso(mapping)
        return self._images.of(self._pid, mapping)

    def _of_file(self, mapping: Mapping, address: int) -> CodeFrame:
        path, name = self._program
        module = printable(name if mapping.path == path else mapping.name)
        image = self._image(mapping)
        if image.elf is None and self._map.at(address) is not None:
            # Memory that is shared has a file: /dev/zero is PHP's, a memfd that of others.
            return self._of_map(address)
        if image.elf is None and mapping.path.startswith(_SHARED):
            return CodeFrame(None, JIT)
        inside = image.address_of(mapping, address)
        found = None if inside is None else image.functions.at(inside)
        told = None if inside is None or image.debug is None else image.debug.at(inside)
        own = CodeFrame(None, module) if told is None else _told_frame(told.own, module)
        if found is None:
            return own
        name = vdso_function(found.name) if mapping.path == VDSO else found.name
        where = _source_of_go(image, found.start) if told is None else (own.file, own.line)
        # As it is without debug information, `.cold` and others that a compiler adds included.
        return CodeFrame(function_name(name), module, *where)

    def _of_map(self, address: int) -> CodeFrame:
        found = self._map.at(address)
        if found is None:
            return CodeFrame(None, JIT)
        name = code_name(found.name)
        return CodeFrame(name.function, JIT, name.file, name.line)

    def _read_perf_map(self) -> None:
        """When it has grown; only its owner's word is taken for it."""
        with suppress(OSError):
            path = f"{self._proc}/{self._pid}/root/tmp/perf-{self._inner_pid()}.map"
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
            descriptor = os.open(path, flags)
            with open(descriptor, "rb") as file:
                found = os.fstat(descriptor)
                owner = os.stat(f"{self._proc}/{self._pid}").st_uid
                if not stat.S_ISREG(found.st_mode) or found.st_uid != owner:
                    return
                self.has_perf_map = True
                began_s = time.monotonic()
                began_cpu_s = time.thread_time()
                if found.st_size != self._map_bytes and began_s >= self._map_again_s:
                    self._map_bytes = found.st_size
                    self._map = entries(file.read(MAP_BYTES_MAX))
                    self.forget()
                    # By its CPU time: where others take the CPUs names must not be old ones.
                    took_s = time.thread_time() - began_cpu_s
                    self._map_again_s = began_s + took_s / MAP_READING_MAX

    def _inner_pid(self) -> int:
        """Its number in its own PID namespace, the last one of NSpid."""
        numbers: List[bytes] = [b"%d" % self._pid]
        with open(f"{self._proc}/{self._pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"NSpid:"):
                    numbers = line.split()[1:]
        return int(numbers[-1])
