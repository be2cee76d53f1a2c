"""The listeners of the targets, in whichever network namespace each of them is."""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Tuple

from udsprobe.errors import UdsprobeError
from udsprobe.kernel.procfs import Owners, Procfs
from udsprobe.kernel.sock_diag import ListeningSocket, NamespaceListeners, NetworkNamespace
from udsprobe.sample import ListenerReading

# /proc tells of a descriptor that was passed on only when asked again.
OWNERS_AGE_MAX = 10


class TargetListeners:
    """Reads listeners again and again, and asks who owns them only when that can have changed.

    Args:
        procfs: to find namespaces and owners.
    """

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        self._namespaces: Dict[int, NetworkNamespace] = {}
        self._owners = Owners({}, frozenset())
        self._asked: Tuple[FrozenSet[int], FrozenSet[int]] = (frozenset(), frozenset())
        self._age = 0

    def read(self, pids: FrozenSet[int]) -> Tuple[ListenerReading, ...]:
        """Every socket in LISTEN that one of `pids` holds, queue depth as of now."""
        dumps = [window.listeners() for window in self._windows(pids)]
        inodes = frozenset(found.inode for dump in dumps for found in dump.sockets)
        self._ask_owners(inodes, pids)
        return tuple(
            _reading(found, dump, owners)
            for dump in dumps
            for found in dump.sockets
            for owners in [self._owners.by_inode.get(found.inode, ())]
            if owners
        )

    def close(self) -> None:
        """Let go of the namespaces."""
        for window in self._namespaces.values():
            window.close()
        self._namespaces.clear()

    def _windows(self, pids: FrozenSet[int]) -> List[NetworkNamespace]:
        inside: Dict[int, int] = {}
        for pid in sorted(pids):
            namespace = self._procfs.netns(pid)
            if namespace is not None:
                inside.setdefault(namespace, pid)
        for gone in set(self._namespaces) - set(inside):
            self._namespaces.pop(gone).close()
        for namespace, pid in inside.items():
            if namespace not in self._namespaces:
                self._open(namespace, pid)
        return list(self._namespaces.values())

    def _open(self, namespace: int, pid: int) -> None:
        try:
            self._namespaces[namespace] = NetworkNamespace.of(pid)
        except (ProcessLookupError, UdsprobeError):
            # The process is gone, or its namespace is closed to us: its listeners stay unseen.
            return

    def _ask_owners(self, inodes: FrozenSet[int], pids: FrozenSet[int]) -> None:
        self._age += 1
        if self._asked == (inodes, pids) and self._age < OWNERS_AGE_MAX:
            return
        self._owners = self._procfs.owners(inodes, pids)
        self._asked, self._age = (inodes, pids), 0


def _reading(
    found: ListeningSocket, dump: NamespaceListeners, owners: Tuple[int, ...]
) -> ListenerReading:
    return ListenerReading(
        transport=found.transport,
        socket_type=found.socket_type,
        address=found.address,
        netns=dump.netns,
        inode=found.inode,
        pids=owners,
        depth_now=found.depth_now,
        backlog_effective=found.backlog_effective,
        backlog_requested=None,
        somaxconn=dump.somaxconn,
    )
