"""Builds and runs the programs of `alone/`, each with a main of its own, and reads their truth.

Knows nothing of udsprobe.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from tests.patience import PATIENCE_S
from tests.workloads.build import BIN, compiled

ALONE = Path(__file__).resolve().parent / "alone"


def program(name: str) -> Path:
    """The compiled `alone/NAME.c`.

    Raises:
        BuildError: no compiler, or an error.
    """
    built = BIN / name
    newest = max(path.stat().st_mtime for path in ALONE.iterdir())
    BIN.mkdir(exist_ok=True)
    with (BIN / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists() or built.stat().st_mtime < newest:
            compiled(built, [ALONE / f"{name}.c"], ["gcc"], "gcc")
    return built


class Program:
    """A running program: it says a line, goes on when told, and ends with its stdin."""

    def __init__(self, name: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [str(program(name)), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def line(self) -> str:
        """The next thing it says; an error when it ended instead."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said, f"it ended with {self._process.wait(PATIENCE_S)}"
        return said.strip()

    def document(self) -> Dict[str, Any]:
        """The next line, which is a JSON object."""
        found = json.loads(self.line())
        assert isinstance(found, dict)
        return found

    def go(self) -> None:
        """It waits for a byte."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> Dict[str, Any]:
        """What it says when its stdin has ended: its truth."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.stdin = None
        return self.document()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=PATIENCE_S)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.communicate()


def options(**values: Optional[int]) -> List[str]:
    """`name=value` of those that are given."""
    return [f"{name}={value}" for name, value in values.items() if value is not None]


if __name__ == "__main__":
    for each in sorted(ALONE.glob("*.c")):
        sys.stdout.write(f"{program(each.stem)}\n")
