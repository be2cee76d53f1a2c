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
C_PROGRAMS = (
    "load/client.c",
    "servers/echo.c",
    "servers/handover.c",
    "servers/service.c",
)
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
    _compile_if_stale(path, target, ["gcc"] if path.suffix == ".c" else ["go"])
    return str(target)


def compilers() -> List[str]:
    """What compiles the C programs: none where they were brought along, as to some guests."""
    stale = [path for path in C_PROGRAMS if _is_stale(BIN / Path(path).stem, HERE / path)]
    return ["gcc"] if stale else []


def cross_built(triple: str, root: Path, folder: Path) -> List[Path]:
    """The C programs for another processor, compiled if stale.

    Args:
        triple: clang's name of what they are for.
        root: holds its headers and libraries.

    Raises:
        MissingProgram: no compiler.
        RuntimeError: it refused; the text is its own.
    """
    folder = folder.resolve()
    compiler = ["clang", f"--target={triple}", f"--sysroot={root}", "-static"]
    targets = {folder / Path(path).stem: HERE / path for path in C_PROGRAMS}
    for target, path in targets.items():
        _compile_if_stale(path, target, compiler)
    return list(targets)


def _compile_if_stale(path: Path, target: Path, compiler: Sequence[str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_stale(target, path):
            _compile(path, target, compiler)


def _is_stale(target: Path, source: Path) -> bool:
    if not target.exists():
        return True
    newest = max(path.stat().st_mtime for path in (source, *source.parent.glob("*.h")))
    return target.stat().st_mtime < newest


def _compile(path: Path, target: Path, compiler: Sequence[str]) -> None:
    fresh = target.with_suffix(".new")
    argv = [program(compiler[0]), *compiler[1:]]
    if path.suffix == ".c":
        argv += ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
        argv += [str(path), "-o", str(fresh), "-lm"]
    else:
        argv += ["build", "-o", str(fresh), str(path)]
    done = subprocess.run(argv, cwd=path.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    fresh.replace(target)
