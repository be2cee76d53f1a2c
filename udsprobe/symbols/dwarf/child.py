"""Asks a child process of its own: whatever a file does to it, udsprobe goes on.

The child has the descriptors of the files, and no privileges.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Iterable, List, NamedTuple, Optional

import udsprobe
from udsprobe.symbols.dwarf.answers import END

if TYPE_CHECKING:
    import subprocess

SHOULD_PART = 0.7
"""Of its time, after which it stops by itself: what it has not answered then is not known."""

ANSWER_BYTES_MAX = 8 << 20
_READ_BYTES = 1 << 16
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from udsprobe.symbols.dwarf.reader import main; main(sys.argv[2:])"
)


class Answer(NamedTuple):
    """Of one child.

    Attributes:
        lines: those that are whole.
        is_whole: there are no more.
        cpu_ns: CPU time that it took.
        pid: that it had; 0: there was none.
    """

    lines: List[bytes]
    is_whole: bool
    cpu_ns: int
    pid: int = 0


def ask(file: int, alt: Optional[int], addresses: Iterable[int], seconds: float) -> Answer:
    """What debug information tells of addresses; nothing where no child can be had.

    Args:
        file, alt: as `DebugInfo` has them.
        addresses: those first that matter most.
        seconds: after which it is ended.
    """
    # On first use: most observations name no code, and keep the first sample waiting.
    import subprocess

    ends_s = time.monotonic() + seconds
    passed = [file] if alt is None else [file, alt]
    root = Path(udsprobe.__file__).parent.parent
    argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(root), str(SHOULD_PART * seconds)]
    try:
        with open(os.memfd_create("udsprobe-addresses"), "w+b", buffering=0) as asked:
            # A file and no pipe: a child that does not read is not waited for.
            asked.write(b"".join(b"%x\n" % each for each in addresses))
            asked.seek(0)
            child = subprocess.Popen(
                [*argv, *map(str, passed)],
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=passed,
                cwd="/",
                env={},
                bufsize=0,
            )
    except (OSError, ValueError):
        return Answer([], is_whole=False, cpu_ns=0)
    told = b""
    try:
        told = _read(child, ends_s)
    finally:
        cpu_ns = _end(child)
    *lines, rest = told.split(b"\n")
    if rest == END:
        return Answer(lines, is_whole=True, cpu_ns=cpu_ns, pid=child.pid)
    return Answer(lines, is_whole=False, cpu_ns=cpu_ns, pid=child.pid)


def _read(child: subprocess.Popen[bytes], ends_s: float) -> bytes:
    """What it has written in its time."""
    assert child.stdout is not None
    pipe, told = child.stdout.fileno(), bytearray()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while len(told) < ANSWER_BYTES_MAX:
        if not poll.poll(max(0, 1000 * (ends_s - time.monotonic()))):
            break
        part = os.read(pipe, _READ_BYTES)
        if not part:
            break
        told += part
    return bytes(told)


def _end(child: subprocess.Popen[bytes]) -> int:
    """CPU time that it took, in nanoseconds: whatever it says, it may go on."""
    if child.stdout is not None:
        child.stdout.close()
    try:
        # Not by `Popen.kill`, which may reap it and lose what it took.
        os.kill(child.pid, signal.SIGKILL)
        _, status, used = os.wait4(child.pid, 0)
    except (ChildProcessError, ProcessLookupError):
        # Who started udsprobe ignores SIGCHLD: the kernel has taken it away.
        return 0
    child.returncode = os.waitstatus_to_exitcode(status)
    return int(1e9 * (used.ru_utime + used.ru_stime))
