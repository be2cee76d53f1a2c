"""Processes of one benchmark: started, awaited, ended by PID."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Callable, List, Optional, Sequence, Tuple

PATIENCE_S = 90.0


def wait_until(
    is_so: Callable[[], bool],
    what: str,
    process: subprocess.Popen[bytes],
    patience_s: float = PATIENCE_S,
) -> None:
    """Return once `is_so`, which is asked every millisecond.

    Raises:
        RuntimeError: `process` ended first, or so long passed.
    """
    give_up_at = time.monotonic() + patience_s
    while not is_so():
        if process.poll() is not None or time.monotonic() > give_up_at:
            raise RuntimeError(f"{what}: exit status {process.poll()}")
        time.sleep(0.001)


def end(process: subprocess.Popen[bytes], by: int = signal.SIGINT) -> None:
    """Ask it to end, and kill it after 30 s."""
    if process.poll() is None:
        process.send_signal(by)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cpu_s_of(pid: int) -> float:
    """CPU time of a living process so far, its threads included, also those that ended."""
    # include/linux/posix-timers_types.h: the complement of the PID, CPUCLOCK_SCHED (2).
    return time.clock_gettime((~pid << 3) | 2)


def children(pid: int) -> List[int]:
    """Its living children."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


class Talking:
    """A program that answers a line on its output for each on its input.

    Args:
        argv: its command line.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def ask(self, line: str) -> List[float]:
        """The numbers it answers.

        Raises:
            RuntimeError: it ended.
        """
        self.tell(line)
        return self.heard()

    def tell(self, line: str) -> None:
        """Say it, and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def heard(self) -> List[float]:
        """The numbers of its next line.

        Raises:
            RuntimeError: it ended.
        """
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("the load ended")
        return [float(word) for word in answer.split()]

    def close(self) -> None:
        """End it, by end of input."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class OnTerminal:
    """A program whose output is a terminal, so that it writes line by line.

    Args:
        argv: its command line.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._terminal, other = pty.openpty()
        self.process = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=other, stderr=other
        )
        os.close(other)
        self._said = b""

    def said(self, until: Optional[bytes] = None) -> str:
        """Everything so far; waits for `until`, or for the end of the output.

        Raises:
            RuntimeError: `until` is not said in time.
        """
        give_up_at = time.monotonic() + PATIENCE_S
        while until is None or until not in self._said:
            ready, _, _ = select.select([self._terminal], [], [], give_up_at - time.monotonic())
            more = self._read() if ready else b""
            if not more:
                if until is None:
                    break
                raise RuntimeError(f"it says: {self._said[-300:].decode(errors='replace')}")
            self._said += more
        return self._said.decode(errors="replace")

    def close(self) -> Tuple[int, str]:
        """End it by SIGINT; its exit status and all it said."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        said = self.said()
        end(self.process)
        os.close(self._terminal)
        return self.process.returncode, said

    def _read(self) -> bytes:
        try:
            return os.read(self._terminal, 65536)
        except OSError:  # EIO: nobody has the other side open any more
            return b""
