"""What a process's program is called by those who start it: one file may have several names."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Iterator, NamedTuple

from udsprobe.kernel.proc.path_view import look_up

ARGUMENT_BYTES_MAX = 4096


class Program(NamedTuple):
    """The file that a process executes.

    Attributes:
        path: as the kernel prints it in /proc/PID/maps.
        name: as which it was started, where that can be found out; the file's name otherwise.
    """

    path: bytes
    name: bytes


NOT_KNOWN = Program(b"", b"")


def program(pid: int, proc: str = "/proc") -> Program:
    """Of a process; NOT_KNOWN where it may not be looked at or is gone.

    Debian's `redis-server` is a link to `redis-check-rdb`, and `busybox` has hundreds of them. A
    process can call itself anything: a name is believed only where it leads to the same file.
    """
    process = f"{proc}/{pid}".encode()
    try:
        path = os.readlink(process + b"/exe")
        file = os.stat(process + b"/exe")
    except OSError:
        return NOT_KNOWN
    of_file = _last_part(path)
    called = (_last_part(each) for each in _paths(process, path) if _leads_to(process, each, file))
    name = next(called, of_file)
    # `python3.11` says all that `python3` says.
    return Program(path, of_file if of_file.startswith(name) else name)


def _paths(process: bytes, path: bytes) -> Iterator[bytes]:
    """Of the file by the process's names for itself, as it sees them; the kernel's name first."""
    beside = path.rpartition(b"/")[0] + b"/"
    with suppress(OSError):
        yield beside + _start_of(process + b"/comm").rstrip(b"\n")
    with suppress(OSError):
        first = _start_of(process + b"/cmdline").split(b"\0", 1)[0]
        yield first if b"/" in first else beside + first


def _leads_to(process: bytes, path: bytes, file: os.stat_result) -> bool:
    found = look_up(process, path)
    return found is not None and found.file is not None and os.path.samestat(found.file, file)


def _start_of(place: bytes) -> bytes:
    with open(place, "rb") as file:
        return file.read(ARGUMENT_BYTES_MAX)


def _last_part(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]
