"""Builds all workload programs for another processor: clang, and a root folder with its C library.

    python -m tests.workloads.cross aarch64 ROOT FOLDER

Those of 32 bits are not among them. Knows nothing of udsprobe.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import List

from tests.workloads.build import FLAGS, HERE, BuildError
from tests.workloads.stages_program import ALONE


def cross_build(machine: str, root: Path, folder: Path) -> List[Path]:
    """The programs by their usual names in `folder`, compiled if stale.

    Raises:
        BuildError: no compiler, or an error.
    """
    folder.mkdir(parents=True, exist_ok=True)
    programs = {path.stem: [path] for path in sorted(ALONE.glob("*.c"))}
    programs["workload64"] = sorted(HERE.glob("*.c"))
    return [_built(machine, root, folder / name, programs[name]) for name in programs]


def _built(machine: str, root: Path, program: Path, sources: List[Path]) -> Path:
    beside = sources[0].parent.glob("*.[ch]")
    newest = max(path.stat().st_mtime for path in beside)
    if not program.exists() or program.stat().st_mtime < newest:
        _compile(machine, root, program, sources)
    return program


def _compile(machine: str, root: Path, program: Path, sources: List[Path]) -> None:
    fresh = program.with_suffix(".new")
    command = ["clang", f"--target={machine}-linux-gnu", f"--sysroot={root}", *FLAGS]
    command += [*map(str, sources), "-o", str(fresh)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BuildError(f"{error}: install clang") from error
    if done.returncode:
        raise BuildError(done.stderr)
    fresh.replace(program)


if __name__ == "__main__":
    machine, root, folder = sys.argv[1:]
    for program in cross_build(machine, Path(root), Path(folder)):
        sys.stdout.write(f"{program}\n")
