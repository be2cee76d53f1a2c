"""Listeners of every network namespace that can be entered, with its limits."""

from __future__ import annotations

import os
from typing import Collection, Dict, List, Mapping, Optional, Tuple

from udsprobe.doctor.facts import ListenerFacts, NetworkLimits
from udsprobe.errors import KernelCannotError, NotPermittedError
from udsprobe.host_facts import NotChecked
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.sockets.sock_diag import ListeningSocket, NamespaceListeners, NetworkNamespace

NAMESPACES_MAX = 256


def remedy_for_hidden() -> Optional[str]:
    """What shows more than /proc shows now; None when nothing does."""
    return "run as root" if os.geteuid() else None


class Namespaces:
    """What was listening at one moment.

    Attributes:
        listeners: of all namespaces seen. limits: one entry for each.
        complete: no namespace is hidden, so a socket that is not among them is nowhere.
        not_checked: why some may be missing.
    """

    def __init__(self, procfs: Procfs) -> None:
        self._by_file: Dict[Tuple[int, int], ListenerFacts] = {}
        self.listeners: Tuple[ListenerFacts, ...] = ()
        self.limits: Tuple[NetworkLimits, ...] = ()
        self.not_checked: List[NotChecked] = []
        self._own = procfs.netns_of_this_thread()
        self.complete = True
        self._read(procfs)

    def seen(self, netns: int) -> bool:
        """Whether this namespace was looked into."""
        return any(one.netns == netns for one in self.limits)

    def bound_to(self, found: os.stat_result) -> Optional[ListenerFacts]:
        """Who listens on this socket file, in whichever namespace."""
        # As sock_diag numbers them: 20 minor bits, the low 32 bits of the inode.
        device = os.major(found.st_dev) << 20 | os.minor(found.st_dev)
        return self._by_file.get((device, found.st_ino & 0xFFFFFFFF))

    def _read(self, procfs: Procfs) -> None:
        dumps = [self._opened(pid) for pid in self._one_of_each(procfs)]
        seen = [dump for dump in dumps if dump is not None]
        inodes = [one.inode for dump in seen for one in dump.sockets]
        owners = procfs.owners(inodes)
        if owners.hidden:
            self._hidden("who holds the sockets", owners.hidden)
        facts: List[ListenerFacts] = []
        for dump in seen:
            for one in dump.sockets:
                facts.append(_facts(dump, one, owners.of(one.inode)))
                if one.unix_file is not None:
                    self._by_file[one.unix_file] = facts[-1]
        self.listeners = tuple(facts)
        self.limits = tuple(map(self._limits, seen))

    def _one_of_each(self, procfs: Procfs) -> Tuple[Optional[int], ...]:
        """A process of each namespace, None for our own."""
        found: Mapping[Optional[int], int] = {procfs.netns(pid): pid for pid in procfs.pids()}
        alive = {netns: pid for netns, pid in found.items() if netns is not None}
        hidden = self._namespace_hidden(procfs) if None in found else ()
        if hidden:
            self.complete = False
            self._hidden("the network namespaces", hidden)
        others = [pid for netns, pid in alive.items() if netns != self._own]
        if len(others) > NAMESPACES_MAX:
            self.complete = False
            self._missing(
                f"{len(others) - NAMESPACES_MAX} network namespaces",
                f"{NAMESPACES_MAX} are examined",
                "name the processes with --pid",
            )
        return (None, *others[:NAMESPACES_MAX])

    def _namespace_hidden(self, procfs: Procfs) -> Tuple[int, ...]:
        return tuple(
            one.pid
            for one in procfs.processes()
            if not one.ended and not one.kernel_thread and procfs.netns(one.pid) is None
        )

    def _opened(self, pid: Optional[int]) -> Optional[NamespaceListeners]:
        try:
            with NetworkNamespace() if pid is None else NetworkNamespace.of(pid) as namespace:
                dump = namespace.listeners()
                for reason in dump.unseen:
                    self._missing("some listeners", reason, None)
                return dump
        except ProcessLookupError:
            return None
        except NotPermittedError as error:
            self.complete = False
            self._missing("its listeners and limits", error.what, remedy_for_hidden())
        except KernelCannotError as error:
            self.complete = False
            self._missing("listeners", error.what, None)
        return None

    def _limits(self, dump: NamespaceListeners) -> NetworkLimits:
        reading = dump.namespace
        return NetworkLimits(
            netns=dump.netns,
            own=dump.netns == self._own,
            somaxconn=reading.somaxconn,
            max_dgram_qlen=reading.max_dgram_qlen,
            tcp_abort_on_overflow=reading.tcp_abort_on_overflow,
            tcp_syncookies=reading.tcp_syncookies,
        )

    def _hidden(self, what: str, pids: Collection[int]) -> None:
        many = f"{len(pids)} processes" if len(pids) > 1 else f"process {min(pids)}"
        self._missing(f"{what} of {many}", "hidden from this user", remedy_for_hidden())

    def _missing(self, what: str, why: str, remedy: Optional[str]) -> None:
        entry = NotChecked(what, why, remedy)
        if entry not in self.not_checked:
            self.not_checked.append(entry)


def _facts(
    dump: NamespaceListeners, one: ListeningSocket, pids: Optional[Tuple[int, ...]]
) -> ListenerFacts:
    path = one.unix_name if one.unix_name and not one.unix_name.startswith(b"\0") else None
    return ListenerFacts(
        transport=one.transport,
        address=one.address,
        netns=dump.netns,
        pids=pids,
        depth_now=one.depth_now,
        backlog=one.backlog_effective,
        somaxconn=dump.somaxconn,
        path=None if path is None else os.fsdecode(path),
        host=None if one.tcp_local is None else one.tcp_local[0],
        port=None if one.tcp_local is None else one.tcp_local[1],
    )
