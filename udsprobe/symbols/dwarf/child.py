"""Asks a child process of its own: whatever a file does to it, udsprobe goes on.

The child has the descriptors of the files, and no privileges.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Iterable, List, NamedTuple, Optional, Tuple

import udsprobe

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
    """Lines that are whole; `is_whole`: there are no more."""

    lines: List[bytes]
    is_whole: bool


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
        return Answer([], is_whole=False)
    try:
        return _answer(child, ends_s)
    finally:
        _end(child)


def _answer(child: subprocess.Popen[bytes], ends_s: float) -> Answer:
    assert child.stdout is not None
    told, is_over = _read(child.stdout.fileno(), ends_s)
    *lines, rest = told.split(b"\n")
    return Answer(lines, is_over and not rest and child.wait() == 0)


def _read(pipe: int, ends_s: float) -> Tuple[bytes, bool]:
    """Whether its end was read, too."""
    told = bytearray()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while len(told) < ANSWER_BYTES_MAX:
        if not poll.poll(max(0, 1000 * (ends_s - time.monotonic()))):
            return bytes(told), False
        part = os.read(pipe, _READ_BYTES)
        if not part:
            return bytes(told), True
        told += part
    return bytes(told), False


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.stdout is not None:
        child.stdout.close()
    child.kill()
    child.wait()
