"""Small programs of the benchmarks, compiled when they are needed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Sequence

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BPF_ARCHITECTURES = {"x86_64": "x86", "aarch64": "arm64"}


def built(name: str, folder: Path) -> str:
    """`name`.c beside this file, compiled once into `folder`; returns the program's path."""
    program = folder / name
    if not program.exists():
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, HERE / f"{name}.c"], check=True)
    return str(program)


def empty_pair(folder: Path) -> bytes:
    """The object with a program on each end of every system call that does nothing."""
    target = folder / "empty_pair.bpf.o"
    if target.exists():
        return target.read_bytes()
    arch = BPF_ARCHITECTURES[os.uname().machine]
    flags = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", f"-D__TARGET_ARCH_{arch}"]
    source = HERE.parent / "empty_pair.bpf.c"
    subprocess.run(["clang", *flags, "-I", ROOT / "bpf", "-c", source, "-o", target], check=True)
    return target.read_bytes()


def missing(programs: Sequence[str]) -> str:
    """The reason why something cannot run; empty when all of `programs` are here."""
    absent = [program for program in programs if shutil.which(program) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""
