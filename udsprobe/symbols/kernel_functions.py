"""Functions of the kernel: by /proc/kallsyms, and those that each process has mapped (vdso).

The former shows addresses to whoever was allowed to see them when they opened it: it is opened at
once, and read when the first address is asked for.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from itertools import islice
from typing import Iterator, Optional

from udsprobe.symbols.demangled import function_name
from udsprobe.symbols.function_table import Function, FunctionTable
from udsprobe.symbols.mappings import Mapping, mappings

KALLSYMS = "/proc/kallsyms"
VDSO = b"[vdso]"
FUNCTIONS_MAX = 1_000_000
_CODE = b"tTwW"


class KernelFunctions:
    """Names of addresses in the kernel."""

    def __init__(self, path: str = KALLSYMS) -> None:
        self._table: Optional[FunctionTable] = None
        self._descriptor: Optional[int] = None
        with suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def at(self, address: int) -> Optional[str]:
        """None where the kernel hides its addresses, or the place has no name."""
        if self._table is None:
            self._table = FunctionTable(self._read())
        found = self._table.at(address)
        return None if found is None else function_name(found.name)

    def close(self) -> None:
        """Let go of the file. May be called twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> Iterator[Function]:
        if self._descriptor is None:
            return
        with open(self._descriptor, "rb", closefd=False) as file:
            for line in islice(file, FUNCTIONS_MAX):
                fields = line.split(None, 3)
                if len(fields) >= 3 and fields[1] in _CODE:
                    start = int(fields[0], 16)
                    if start:
                        yield Function(start, 0, fields[2])


def own_vdso(proc: str = "/proc") -> Optional[int]:
    """A descriptor of a file in memory with it, the caller's to close; None where there is none.

    Source: vdso_image_64 of arch/x86/entry/vdso, one image for all processes of a kind
    (vdso_join_timens() changes the data beside it only).
    """
    try:
        with open(f"{proc}/self/maps", "rb") as file:
            found = mapped_vdso(file.read())
        if found is None:
            return None
        with closing(open(f"{proc}/self/mem", "rb", buffering=0)) as memory:
            memory.seek(found.start)
            code = memory.read(found.end - found.start)
        descriptor = os.memfd_create("vdso", os.MFD_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "wb", closefd=False) as file:
        file.write(code)
    return descriptor


def vdso_function(name: bytes) -> bytes:
    """As programs know it: `__vdso_clock_gettime`, on arm64 `__kernel_clock_gettime`."""
    for prefix in (b"__vdso_", b"__kernel_"):
        name = name.removeprefix(prefix)
    return name


def mapped_vdso(maps: bytes) -> Optional[Mapping]:
    """Where a process has it, by its /proc/PID/maps."""
    return next((each for each in mappings(maps) if each.path == VDSO), None)
