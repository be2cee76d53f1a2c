"""A command that exists as a process and waits to be started.

The child waits before its exec until the probes are live, so that its first
system call is seen; what the child does before the exec is not counted.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
from typing import Optional, Sequence

from udsprobe.errors import NoTargetError, UsageError
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.selectors import Chosen
from udsprobe.printable import printable

# Caught by us, unless whoever started us has them ignored, as nohup and a shell's `&` do.
CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
EXIT_NOT_EXECUTED = 127
ERRNO = struct.Struct("i")
COMM_BYTES = 15


class HeldCommand:
    """A child of ours that has not run its program yet.

    Args:
        words: program and arguments.

    Attributes:
        chosen: the process as a target.
        program: the comm and the command line it will have.

    Raises:
        UsageError: `no-such-command`, and `not-executed` from `go`.
    """

    def __init__(self, words: Sequence[str]) -> None:
        program = shutil.which(words[0])
        if program is None:
            raise UsageError(
                "no-such-command",
                f"command {words[0]!r} was not found",
                "give its path, or a name that is on PATH",
            )
        self.program = (
            printable(os.fsencode(os.path.basename(program))[:COMM_BYTES]),
            printable(os.fsencode(" ".join(words))),
        )
        gate, self._gate = os.pipe2(os.O_CLOEXEC)
        self._refusal, refusal = os.pipe2(os.O_CLOEXEC)
        self._path = program
        self.pid = os.fork()
        if self.pid == 0:
            self._become(words, gate, refusal)
        os.close(gate)
        os.close(refusal)
        self.chosen = _as_chosen(self.pid)
        self._started = False

    def go(self) -> None:
        """Let the child become its program; returns once it has.

        Raises:
            UsageError: `not-executed`, the kernel does not execute it.
        """
        self._started = True
        os.write(self._gate, b"\1")
        os.close(self._gate)
        # Exec closes the other end; a child that could not writes why.
        refused = os.read(self._refusal, ERRNO.size)
        if refused:
            raise UsageError(
                "not-executed",
                f"cannot run {self._path!r}: {os.strerror(ERRNO.unpack(refused)[0])}",
                "check that it, and the interpreter it names, are programs for this machine",
            )

    def status(self, *, ended: bool) -> Optional[int]:
        """What wait(2) says of the command; None while it runs, and when asked again.

        Args:
            ended: it is known to have exited: wait until the kernel says how.
        """
        try:
            pid, status = os.waitpid(self.pid, 0 if ended else os.WNOHANG)
        except ChildProcessError:
            return None
        return status if pid else None

    def __enter__(self) -> HeldCommand:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._started:
            os.close(self._gate)
        os.close(self._refusal)
        self.status(ended=not self._started)

    def _become(self, words: Sequence[str], gate: int, refusal: int) -> None:
        try:
            caught = [n for n in CAUGHT if signal.getsignal(n) is not signal.SIG_IGN]
            for number in (*caught, *IGNORED_BY_PYTHON):
                signal.signal(number, signal.SIG_DFL)
            os.close(self._gate)
            if os.read(gate, 1):
                os.execv(self._path, list(words))
        except OSError as error:
            os.write(refusal, ERRNO.pack(error.errno or 0))
        finally:
            os._exit(EXIT_NOT_EXECUTED)


def _as_chosen(pid: int) -> Chosen:
    process = Procfs().process(pid)
    if process is None:
        raise NoTargetError("no-such-pid", f"process {pid} has already exited", "start it again")
    return Chosen(pid, process.start_ticks, "selector", "run")
