"""The kernel's code that every process has mapped: the same bytes as in this process."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Optional

from udsprobe.symbols.mappings import Mapping, mappings

NAME = b"[vdso]"


def own_vdso(proc: str = "/proc") -> Optional[int]:
    """A descriptor of a file in memory with it, the caller's to close; None where there is none.

    Source: vdso_image_64 of arch/x86/entry/vdso, one image for all processes of a kind
    (vdso_join_timens() changes the data beside it only).
    """
    try:
        with open(f"{proc}/self/maps", "rb") as file:
            found = mapped(file.read())
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


def function(name: bytes) -> bytes:
    """As programs know it: `__vdso_clock_gettime`, on arm64 `__kernel_clock_gettime`."""
    for prefix in (b"__vdso_", b"__kernel_"):
        name = name.removeprefix(prefix)
    return name


def mapped(maps: bytes) -> Optional[Mapping]:
    """Where a process has it, by its /proc/PID/maps."""
    return next((each for each in mappings(maps) if each.path == NAME), None)
