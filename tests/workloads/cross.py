"""Builds the workloads for another processor: clang, and a root folder with its C library.

    python -m tests.workloads.cross 64 aarch64-linux-gnu ROOT FOLDER

With 64 all programs, with 32 the one that is built for 32 bits too. Knows nothing of udsprobe.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import List

from tests.workloads.build import HERE, compiled
from tests.workloads.stages_program import ALONE


def cross_build(bits: int, triple: str, root: Path, folder: Path) -> List[Path]:
    """The programs by their usual names in `folder`, compiled if stale.

    Args:
        triple: clang's name of what they are for.
        root: holds its headers and libraries.

    Raises:
        BuildError: no compiler, or an error.
    """
    folder.mkdir(parents=True, exist_ok=True)
    programs = {f"workload{bits}": sorted(HERE.glob("*.c"))}
    if bits == 64:
        programs.update((path.stem, [path]) for path in sorted(ALONE.glob("*.c")))
    return [_built(triple, root, folder / name, programs[name]) for name in programs]


def _built(triple: str, root: Path, program: Path, sources: List[Path]) -> Path:
    beside = sources[0].parent.glob("*.[ch]")
    newest = max(path.stat().st_mtime for path in beside)
    if not program.exists() or program.stat().st_mtime < newest:
        compiler = ["clang", f"--target={triple}", f"--sysroot={root}"]
        compiled(program, sources, compiler, "clang")
    return program


if __name__ == "__main__":
    bits, triple, root, folder = sys.argv[1:]
    for program in cross_build(int(bits), triple, Path(root), Path(folder)):
        sys.stdout.write(f"{program}\n")
