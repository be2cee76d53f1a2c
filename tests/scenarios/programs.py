"""Where the programs of the lab are, and building those that are ours. Knows no case."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import subprocess
from pathlib import Path
from typing import List, Optional, Sequence

HERE = Path(__file__).resolve().parent
BIN = HERE / "bin"
# Debian keeps PostgreSQL's server programs out of the path.
PLACES = ["/usr/sbin", "/sbin", "/usr/local/go/bin", *glob.glob("/usr/lib/postgresql/*/bin")]


class MissingProgram(Exception):
    """A program that a case needs is not installed."""


def find(name: str) -> Optional[str]:
    """The path of a program; None where it is not installed."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES]))


def program(name: str) -> str:
    """The path of a program.

    Raises:
        MissingProgram: it is not installed.
    """
    found = find(name)
    if found is None:
        raise MissingProgram(f"{name} is not installed: scripts/setup --for-scenarios")
    return found


def missing(names: Sequence[str]) -> List[str]:
    """Those of `names` that are not installed."""
    return [name for name in names if find(name) is None]


def built(source: str) -> str:
    """The program made from `source` (C or Go, relative to this folder), compiled if stale."""
    path = HERE / source
    target = BIN / path.stem if path.suffix == ".c" else BIN / f"{path.stem}-go"
    BIN.mkdir(exist_ok=True)
    with (BIN / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists() or target.stat().st_mtime < path.stat().st_mtime:
            _compile(path, target)
    return str(target)


def _compile(path: Path, target: Path) -> None:
    fresh = target.with_suffix(".new")
    if path.suffix == ".c":
        argv = [program("gcc"), "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
        argv += [str(path), "-o", str(fresh), "-lm"]
    else:
        argv = [program("go"), "build", "-o", str(fresh), str(path)]
    done = subprocess.run(argv, cwd=path.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    fresh.replace(target)
