"""Files that processes have mapped, opened through the process itself, each read once."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Optional, Sequence, Tuple

from udsprobe.symbols import frame_rules
from udsprobe.symbols.dwarf import debug_files
from udsprobe.symbols.dwarf.functions import Allowance, DebugFunctions
from udsprobe.symbols.frame_rules import MACHINES, FrameRules, Machine
from udsprobe.symbols.function_table import FunctionTable
from udsprobe.symbols.go.code import GoCode
from udsprobe.symbols.kernel_functions import own_vdso
from udsprobe.symbols.mappings import Mapping

if TYPE_CHECKING:
    from udsprobe.symbols.elf_image import ElfImage

IMAGES_MAX = 512
RULES_BYTES_MAX = 512 << 20
"""Of a file whose call frame information is read, whatever sizes it claims."""

DEBUG_FILES_MAX = 64
"""That are kept open; those that come after are known by their symbols."""

SYMBOLS_S_MAX = 20.0
"""Reading symbols of all files together; those that come after that have no names."""

_DELETED = b" (deleted)"
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
Key = Tuple[str, int]


@dataclass
class Image:
    """One file.

    Attributes:
        rules: None without libdw, or where the file cannot be read.
        go: of functions of Go; None: it has none.
        debug: what debug information tells of functions of C, C++ and Rust; None: it has none.
    """

    elf: Optional[ElfImage]
    functions: FunctionTable
    rules: Optional[FrameRules]
    go: Optional[GoCode] = None
    debug: Optional[DebugFunctions] = None

    @property
    def is_go(self) -> bool:
        """It has functions of Go, which keep frame pointers."""
        return self.elf is not None and self.elf.go_frames is not None

    def address_of(self, mapping: Mapping, ip: int) -> Optional[int]:
        """In the file's own numbers."""
        if self.elf is None:
            return None
        return self.elf.address_of(ip - mapping.start + mapping.offset)

    def objects_at(self, mapping: Mapping) -> Dict[bytes, int]:
        """Addresses in the process of what `ElfImage.objects` has."""
        loaded_at = None if self.elf is None else self.elf.loaded_at(mapping)
        if self.elf is None or loaded_at is None:
            return {}
        return {name: at + loaded_at for name, at in self.elf.objects.items()}


NOT_READ = Image(None, FunctionTable(()), None)


class TargetImages:
    """The files of all targets: what many of them map is read once.

    Args:
        proc: where procfs is mounted.
    """

    def __init__(self, machine: Optional[Machine], proc: str = "/proc") -> None:
        self._proc = proc
        self._machine = machine if machine is not None and frame_rules.is_here() else None
        self._images: Dict[Key, Image] = {}
        self._took_s = 0.0
        self._vdso: Optional[Image] = None
        self._vdso_bytes = 0
        self._allowance = Allowance()

    @property
    def unwinds(self) -> bool:
        """Callers are found by call frame information."""
        return self._machine is not None

    def of(self, pid: int, mapping: Mapping) -> Image:
        """The image that a process has there; one without names when it cannot be read."""
        key = (mapping.device, mapping.inode)
        if key not in self._images:
            if len(self._images) >= IMAGES_MAX:
                self.close()
            began_s = time.monotonic()
            is_in_time = self._took_s < SYMBOLS_S_MAX
            self._images[key] = self._read(pid, mapping) if is_in_time else NOT_READ
            self._took_s += time.monotonic() - began_s
        return self._images[key]

    def vdso(self, mapping: Mapping) -> Image:
        """The kernel's code in a process; without names where that is not what is mapped here."""
        if self._vdso is None:
            descriptor = own_vdso(self._proc)
            self._vdso = NOT_READ if descriptor is None else self._image(descriptor)
            self._vdso_bytes = 0 if descriptor is None else os.fstat(descriptor).st_size
            if descriptor is not None:
                os.close(descriptor)
        # That of 32-bit programs is another one.
        return self._vdso if mapping.end - mapping.start == self._vdso_bytes else NOT_READ

    @property
    def children_ns(self) -> int:
        """CPU time of processes that read debug information."""
        return self._allowance.cpu_ns

    @property
    def children(self) -> FrozenSet[int]:
        """The pids that these had."""
        return frozenset(self._allowance.pids)

    def look(self) -> bool:
        """Read what debug information tells of the addresses that are wanted.

        Whether more is known than before.
        """
        debug = [image.debug for image in self._images.values() if image.debug is not None]
        found = [each.look() for each in debug]
        return any(found)

    def rest(self) -> None:
        """Until more is asked for: keep what is known, and as little memory as that takes."""
        for image in self._all():
            if image.rules is not None:
                image.rules.rest()

    def close(self) -> None:
        """Let go of all."""
        for image in self._all():
            if image.rules is not None:
                image.rules.close()
            if image.go is not None:
                image.go.close()
            if image.debug is not None:
                image.debug.close()
        self._images.clear()
        self._vdso = None

    def _all(self) -> List[Image]:
        return [*self._images.values(), *([] if self._vdso is None else [self._vdso])]

    def _read(self, pid: int, mapping: Mapping) -> Image:
        descriptor = self._opened(pid, mapping)
        if descriptor is None:
            return NOT_READ
        try:
            image = self._image(descriptor)
            return image if image.elf is None else self._with_debug(pid, image, mapping, descriptor)
        finally:
            os.close(descriptor)

    def _with_debug(self, pid: int, image: Image, mapping: Mapping, descriptor: int) -> Image:
        """And with what is in the file that its symbols were put into."""
        assert image.elf is not None
        elf, path, roots = image.elf, mapping.path, (f"{self._proc}/{pid}/root", "")
        is_asked = self._is_asked(image, path)
        is_needed = elf.is_stripped or (is_asked and not elf.has_debug_info)
        apart = debug_files.debug_file(elf, path, roots) if is_needed else None
        if apart is None:
            debug = self._debug(elf, descriptor, os.fsdecode(path), roots) if is_asked else None
            return replace(image, debug=debug)
        try:
            if elf.is_stripped and not apart.image.is_stripped:
                image = replace(image, functions=apart.image.functions)
            if is_asked:
                debug = self._debug(apart.image, apart.descriptor, apart.path, roots)
                image = replace(image, debug=debug)
            return image
        finally:
            os.close(apart.descriptor)

    def _is_asked(self, image: Image, path: bytes) -> bool:
        """Not a library that nobody looks into, nor Go, which tells by itself."""
        is_others = image.go is not None or debug_files.is_library(path)
        count = sum(each.debug is not None for each in self._images.values())
        return self._machine is not None and not is_others and count < DEBUG_FILES_MAX

    def _debug(
        self, elf: ElfImage, descriptor: int, path: str, roots: Sequence[str]
    ) -> Optional[DebugFunctions]:
        if not elf.has_debug_info:
            return None
        shared = debug_files.shared_file(elf, path, roots)
        with suppress(OSError):
            return DebugFunctions(os.dup(descriptor), shared, self._allowance)
        return None

    def _image(self, descriptor: int) -> Image:
        # On first use: most observations name no code, and keep the first sample waiting.
        from udsprobe.symbols import elf_image

        try:
            with open(descriptor, "rb", closefd=False) as file:
                file.seek(0)
                elf = elf_image.ElfImage(file)
            rules = None
            if self._machine is not None and os.fstat(descriptor).st_size <= RULES_BYTES_MAX:
                rules = FrameRules(self._machine, descriptor)
            go = None
            if elf.go_frames is not None:
                is_x86 = self._machine == MACHINES["x86_64"]
                go = GoCode(elf.go_frames, descriptor, is_x86=is_x86)
            return Image(elf, elf.functions, rules, go)
        except (ValueError, OSError):
            return NOT_READ

    def _opened(self, pid: int, mapping: Mapping) -> Optional[int]:
        """The very file that is mapped, whatever lies at its path by now."""
        path = mapping.path
        span = f"{mapping.start:x}-{mapping.end:x}"
        places = [
            f"{self._proc}/{pid}/map_files/{span}".encode(),
            f"{self._proc}/{pid}/exe".encode(),
        ]
        if not path.endswith(_DELETED):
            places.insert(0, f"{self._proc}/{pid}/root".encode() + path)
        for place in places:
            with suppress(OSError):
                descriptor = os.open(place, _OPEN)
                found = os.fstat(descriptor)
                if stat.S_ISREG(found.st_mode) and found.st_ino == mapping.inode:
                    return descriptor
                os.close(descriptor)
        return None
