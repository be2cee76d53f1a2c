"""Builds the workloads for another processor: clang, and a root folder with its C library.

    python -m tests.workloads.cross 64 aarch64-linux-gnu ROOT FOLDER

With 64 all programs, with 32 the one that is built for 32 bits too. Knows nothing of udsprobe.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import List

from tests.workloads.build import FLAGS, HERE, BuildError
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
        _compile(triple, root, program, sources)
    return program


def _compile(triple: str, root: Path, program: Path, sources: List[Path]) -> None:
    fresh = program.with_suffix(".new")
    command = ["clang", f"--target={triple}", f"--sysroot={root}", *FLAGS]
    command += [*map(str, sources), "-o", str(fresh)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BuildError(f"{error}: install clang") from error
    if done.returncode:
        raise BuildError(done.stderr)
    fresh.replace(program)


if __name__ == "__main__":
    bits, triple, root, folder = sys.argv[1:]
    for program in cross_build(int(bits), triple, Path(root), Path(folder)):
        sys.stdout.write(f"{program}\n")
