"""A command that exists as a process and waits to be started.

The child waits before its exec until the probes are live, so that its first
system call is seen; what the child does before the exec is not counted.
"""

from __future__ import annotations

import os
import shutil
import signal
from typing import Sequence

from udsprobe.errors import NoTargetError, UsageError
from udsprobe.kernel.procfs import Procfs, printable
from udsprobe.kernel.selectors import Chosen

EXIT_NOT_EXECUTED = 127
COMM_BYTES = 15


class HeldCommand:
    """A child of ours that has not run its program yet.

    Args:
        words: program and arguments.

    Attributes:
        chosen: the process as a target.
        program: the comm and the command line it will have.

    Raises:
        UsageError: `no-such-command`.
    """

    def __init__(self, words: Sequence[str]) -> None:
        program = shutil.which(words[0])
        if program is None:
            raise UsageError(
                "no-such-command",
                f"there is no command {words[0]!r} to run",
                "give its path, or a name that is on PATH",
            )
        self.program = (
            printable(os.fsencode(os.path.basename(program))[:COMM_BYTES]),
            printable(os.fsencode(" ".join(words))),
        )
        gate, self._gate = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            self._become(program, words, gate)
        os.close(gate)
        self.chosen = _as_chosen(self.pid)
        self._started = False

    def go(self) -> None:
        """Let the child become its program."""
        self._started = True
        os.write(self._gate, b"\1")
        os.close(self._gate)

    def __enter__(self) -> HeldCommand:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._started:
            os.close(self._gate)
            os.waitpid(self.pid, 0)
        else:
            os.waitpid(self.pid, os.WNOHANG)

    def _become(self, program: str, words: Sequence[str], gate: int) -> None:
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            os.close(self._gate)
            if os.read(gate, 1):
                os.execv(program, list(words))
        except OSError as error:
            message = f"udsprobe: error[not-executed]: cannot run {program}: {error.strerror}; "
            os.write(2, (message + "check that it is a program for this machine\n").encode())
        finally:
            os._exit(EXIT_NOT_EXECUTED)


def _as_chosen(pid: int) -> Chosen:
    process = Procfs().process(pid)
    if process is None:
        raise NoTargetError("no-such-pid", f"process {pid} is gone already", "start it again")
    return Chosen(pid, process.start_ticks, "selector", "run")
