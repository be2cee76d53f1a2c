"""Builds the workloads: one static program, for 64 and for 32 bits.

Static, so that neither a loader nor a shared library makes system calls that
the program's own account would miss. Knows nothing of udsprobe.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import List

HERE = Path(__file__).resolve().parent
BIN = HERE / "bin"
FLAGS = ["-O1", "-g", "-static", "-pthread", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
QUIET = ["-Wno-psabi"]  # a note about _Atomic on 32-bit x86 before GCC 11


class BuildError(Exception):
    """The compiler is missing or refused; the text is its own."""


def build(bits: int = 64) -> Path:
    """Return the workload program for `bits` (64 or 32), compiled if stale.

    Raises:
        BuildError: no compiler, no static C library of that width, or an error.
    """
    program = BIN / f"workload{bits}"
    if _is_stale(program):
        try:
            _compile_alone(program, bits)
        except PermissionError as error:  # root built here before
            raise BuildError(f"{error}: remove {BIN}") from error
    return program


def _compile_alone(program: Path, bits: int) -> None:
    BIN.mkdir(exist_ok=True)
    with (BIN / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_stale(program):
            _compile(program, bits)


def _sources(pattern: str) -> List[Path]:
    return sorted(HERE.glob(pattern))


def _is_stale(program: Path) -> bool:
    if not program.exists():
        return True
    newest = max(path.stat().st_mtime for path in _sources("*.[ch]"))
    return program.stat().st_mtime < newest


def _compile(program: Path, bits: int) -> None:
    compiler = ["gcc", f"-m{bits}", *QUIET]
    compiled(program, _sources("*.c"), compiler, "gcc (and gcc-multilib for 32 bits)")


def compiled(program: Path, sources: List[Path], compiler: List[str], packages: str) -> None:
    """Compile and put in place at once: who runs the program never sees half of it.

    Args:
        compiler: with what it takes beside `FLAGS`.
        packages: to install where there is no compiler.

    Raises:
        BuildError: no compiler, or an error.
    """
    fresh = program.with_suffix(".new")
    command = [*compiler, *FLAGS, *map(str, sources), "-o", str(fresh)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BuildError(f"{error}: install {packages}") from error
    if done.returncode:
        raise BuildError(done.stderr)
    fresh.replace(program)


if __name__ == "__main__":
    for width in (64, 32):
        sys.stdout.write(f"{build(width)}\n")
