"""A network namespace of one's own, whose limits may be changed: the host's stay as they are."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from pathlib import Path
from typing import Iterator

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def own_network(somaxconn: int) -> Iterator[None]:
    """This thread, and what it starts, in a new network with a loopback and this somaxconn.

    Raises:
        OSError: not permitted.
    """
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_libc.unshare(CLONE_NEWNET))
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        # /proc/sys/net shows the namespace of whoever opens it (proc_net's sysctl lookup).
        Path("/proc/sys/net/core/somaxconn").write_text(f"{somaxconn}\n")
        yield
    finally:
        _checked(_libc.setns(before, CLONE_NEWNET))
        os.close(before)


def tcp_counter(name: str) -> int:
    """A counter of TcpExt in the network of this thread, so far, as `nstat` has it.

    Raises:
        ValueError: no such counter.
    """
    lines = Path("/proc/thread-self/net/netstat").read_text().splitlines()
    names, values = lines[0].split(), lines[1].split()
    return int(values[names.index(name)])


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
