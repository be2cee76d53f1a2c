"""What /proc says of one network namespace: its limits and its TCP counters."""

from __future__ import annotations

import os
import re
from typing import Dict, Optional, Tuple

from udsprobe.own_descriptors import descriptors_used_up
from udsprobe.sample import NamespaceReading

_LIMITS = {
    "somaxconn": "/proc/sys/net/core/somaxconn",
    "tcp_abort_on_overflow": "/proc/sys/net/ipv4/tcp_abort_on_overflow",
    "tcp_syncookies": "/proc/sys/net/ipv4/tcp_syncookies",
    # Where a kernel keeps them once for all namespaces, only the first one shows them.
    "wmem_max": "/proc/sys/net/core/wmem_max",
    "wmem_default": "/proc/sys/net/core/wmem_default",
    "rmem_max": "/proc/sys/net/core/rmem_max",
    "rmem_default": "/proc/sys/net/core/rmem_default",
    "max_dgram_qlen": "/proc/sys/net/unix/max_dgram_qlen",
}
_SIZES = {"tcp_wmem": "/proc/sys/net/ipv4/tcp_wmem", "tcp_rmem": "/proc/sys/net/ipv4/tcp_rmem"}
_COUNTERS = "/proc/thread-self/net/netstat"
_TCP_COUNTERS = {
    "listen_overflows": "ListenOverflows",
    "listen_drops": "ListenDrops",
    "syncookies_sent": "SyncookiesSent",
    "syncookies_received": "SyncookiesRecv",
}
_TOLD = frozenset(_TCP_COUNTERS.values())
_READ_BYTES = 1 << 16
_NUMBER = re.compile("-?[0-9]{1,20}")


class NamespaceFiles:
    """Files of the calling thread's namespace; what is open stays that namespace's.

    Args:
        inode: number of the namespace.

    Attributes:
        unopened: why some could not be opened though they are there; None where none is.
    """

    def __init__(self, inode: int) -> None:
        self._inode = inode
        self.unopened: Optional[str] = None
        paths = {**_LIMITS, **_SIZES, "counters": _COUNTERS}
        self._files = {name: self._opened(path) for name, path in paths.items()}

    def limit(self, name: str) -> Optional[int]:
        """A sysctl now: `somaxconn` …; None when /proc/sys hides it."""
        text = self._read(name)
        return None if text is None else int(text)

    def sizes(self, name: str) -> Optional[Tuple[int, ...]]:
        """`tcp_wmem`, `tcp_rmem`: least, initial and greatest size in bytes; None when hidden."""
        text = self._read(name)
        return None if text is None else tuple(map(int, text.split()))

    def reading(self) -> NamespaceReading:
        """Limits and counters now; None for each that is hidden."""
        counters = tcp_counters(self._read("counters") or "")
        return NamespaceReading(
            netns=self._inode,
            tcp_wmem=self.sizes("tcp_wmem"),
            tcp_rmem=self.sizes("tcp_rmem"),
            **{field: counters.get(name) for field, name in _TCP_COUNTERS.items()},
            **{name: self.limit(name) for name in _LIMITS},
        )

    def close(self) -> None:
        """Let go of the files. May be called twice."""
        for descriptor in self._files.values():
            if descriptor is not None:
                os.close(descriptor)
        self._files = {}

    def _opened(self, path: str) -> Optional[int]:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            used_up = descriptors_used_up(error.errno)
            if used_up is not None:
                self.unopened = used_up.what
            return None

    def _read(self, name: str) -> Optional[str]:
        descriptor = self._files.get(name)
        if descriptor is None:
            return None
        return os.pread(descriptor, _READ_BYTES, 0).decode("ascii", "replace")


def tcp_counters(text: str) -> Dict[str, int]:
    """Of `TcpExt` of /proc/net/netstat, those that a reading has.

    A line of names, then a line of numbers.
    """
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith("TcpExt:")]
    if len(lines) != 2:
        return {}
    # There are more than a hundred others.
    found = ((name, number) for name, number in zip(*lines) if name in _TOLD)
    return {name: int(number) for name, number in found if _NUMBER.fullmatch(number)}
