"""The built BPF objects of this installation: which one to load, and whether it is current.

Knows the files and nothing of what is in them.
"""

from __future__ import annotations

import os
import platform
import re
import zlib
from pathlib import Path

import udsprobe
from udsprobe.errors import KernelCannotError
from udsprobe.kernel.abilities.features import Features
from udsprobe.kernel.abilities.syscall_table import TABLES

WITHOUT = "`udsprobe listeners` works without probes"
# `built_by` in bpf/compilers.h.
_BUILT_BY = re.compile(rb"clang \d{1,3}\.\d{1,3}\.\d{1,3}(?=\0)")


def object_bytes(features: Features, *, functions: bool = False) -> bytes:
    """The object for this machine and kernel.

    Args:
        functions: for calls by their functions.

    Raises:
        KernelCannotError: `no-object`; `stale-object` in a checkout whose sources changed since.
    """
    if functions:
        return built_program("fentry")
    return built_program("tracepoint" if features.task_storage else "tracepoint_early")


def built_program(program: str) -> bytes:
    """The object of a program for this machine. Raises as `object_bytes`."""
    machine = platform.machine()
    if machine not in TABLES:
        raise KernelCannotError(
            "no-object",
            f"no probes are built for {machine}",
            f"they exist for {' and '.join(TABLES)}; {WITHOUT}",
        )
    return _current_file(f"{program}.{machine}.bpf.o").read_bytes()


def compiler_of(raw: bytes) -> str:
    """What made an object, `clang 19.1.7`; `an unknown compiler` where it does not say."""
    found = _BUILT_BY.search(raw)
    return found[0].decode() if found else "an unknown compiler"


def source_for_bcc() -> Path:
    """What BCC compiles; the headers that it includes are beside it. Raises as `object_bytes`."""
    return _current_file("bcc_syscalls.c")


def _current_file(name: str) -> Path:
    package = Path(udsprobe.__file__).resolve().parent
    found = package / "_bpf" / name
    if not (found.is_file() and os.access(found, os.R_OK)):
        raise KernelCannotError(
            "no-object",
            f"the built probes {name} are missing from this installation",
            "install the wheel, or run scripts/build_bpf.py in a checkout",
        )
    root = package.parent
    if is_stale(root):
        raise KernelCannotError(
            "stale-object",
            f"the built probes do not match the sources in {root / 'bpf'}, which have changed "
            "since",
            "run scripts/setup, or scripts/build_bpf.py",
        )
    return found


def is_stale(root: Path) -> bool:
    """Whether a checkout's objects were built of other sources than it has now.

    An installed package has no sources beside it and brought its objects along.

    Args:
        root: of the checkout, above the package.
    """
    builder, built = root / "scripts/build_bpf.py", root / "udsprobe/_bpf/sources.crc32"
    if not (builder.is_file() and built.is_file()):
        return False
    # As in scripts/build_bpf.py, which is not imported: it brings the compiler's side along.
    # No digest by hashlib: that takes 4 MB with it.
    digest = zlib.crc32(builder.read_bytes())
    for path in sorted([*(root / "bpf").glob("*.c"), *(root / "bpf").glob("*.h")]):
        digest = zlib.crc32(f"\0{path.name}\0".encode() + path.read_bytes(), digest)
    return built.read_text().strip() != f"{digest:08x}"
