"""A running `udsprobe`: waited for until it is ready, then signalled, killed, or left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, TextIO

from tests.kernel.kernel_objects import Objects, held_by
from tests.kernel.tool import REPOSITORY, UDSPROBE
from tests.patience import PATIENCE_S


class Ended(NamedTuple):
    """How it ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> Dict[str, Any]:
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document

    @property
    def line(self) -> str:
        """The one line on stderr."""
        assert self.err.endswith("\n") and self.err.count("\n") == 1, self.err
        return self.err[:-1]


def answer(
    arguments: Sequence[str],
    prefix: Sequence[str] = (),
    cwd: Path = REPOSITORY,
) -> Ended:
    """Run `udsprobe ARGUMENTS` to its end.

    Args:
        prefix: a command that runs it, such as `setpriv …`.
    """
    done = subprocess.run(
        [*prefix, *UDSPROBE, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


class Live:
    """`udsprobe ARGUMENTS` from the moment its probes are live.

    Args:
        folder: for the ready file, which has this `name`.
        environment: besides ours.
        prefix: a command that runs it, such as `setpriv …`.
    """

    def __init__(
        self,
        arguments: List[str],
        folder: Path,
        name: str = "ready",
        environment: Optional[Mapping[str, str]] = None,
        prefix: Sequence[str] = (),
    ) -> None:
        ready = folder / name
        command, *rest = arguments
        self._process = subprocess.Popen(
            [*prefix, *UDSPROBE, command, "--ready-file", str(ready), *rest],
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self._wait_for(ready)

    def _wait_for(self, ready: Path) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                self._process.kill()
                raise AssertionError(f"never ready: {self._process.communicate()}")
            time.sleep(0.005)

    def objects(self) -> Objects:
        """The BPF objects that live as long as it does."""
        return held_by(self.pid)

    def end(self, number: Optional[int] = signal.SIGINT) -> Ended:
        """Send a signal, if any, and wait for the end."""
        if number is not None:
            self._process.send_signal(number)
        try:
            out, err = self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        return Ended(self._process.returncode, out, err)

    def stdout(self) -> TextIO:
        """The pipe that it writes to, for a reader that is slow."""
        assert self._process.stdout is not None
        return self._process.stdout

    def send(self, number: int) -> None:
        """A signal that need not end it."""
        self._process.send_signal(number)

    def close_stdout(self) -> None:
        """Whoever read its report leaves."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.stdout = None

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
