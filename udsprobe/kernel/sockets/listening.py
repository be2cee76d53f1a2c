"""Joins sock_diag and /proc: which listeners a set of processes holds.

Knows how to keep that answer fresh once a second at a bounded price. Knows
neither netlink nor the formats of /proc.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import AbstractSet, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from udsprobe.errors import NotPermittedError
from udsprobe.kernel.proc.host_paths import HostPaths
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.sockets.sock_diag import ListeningSocket, NamespaceListeners, NetworkNamespace
from udsprobe.sample import ListenerReading, NamespaceReading

# Looking at a descriptor costs about 5 µs: sockets looked at per read, amortised.
_SOCKETS_PER_READ = 200


@dataclass(frozen=True)
class ListenersSeen:
    """Listeners at one moment.

    Attributes:
        unseen: why some may be missing, one clause each; empty when none is.
        hidden: of the processes asked about, those whose descriptors we may
            not see; also named in `unseen`.
    """

    listeners: Tuple[ListenerReading, ...]
    unseen: Tuple[str, ...]
    hidden: Tuple[int, ...] = ()
    namespaces: Tuple[NamespaceReading, ...] = ()


def every_listener(procfs: Optional[Procfs] = None) -> ListenersSeen:
    """Every listener of our own network namespace, whoever holds it.

    Raises:
        KernelCannotError: `no-sock-diag`, `sock-diag-failed`.
    """
    with NetworkNamespace() as namespace:
        found = namespace.listeners()
    inodes = [listener.inode for listener in found.sockets]
    owners = (procfs or Procfs()).owners(inodes)
    paths = HostPaths()
    readings = [_reading(found, one, owners.of(one.inode), paths) for one in found.sockets]
    return ListenersSeen(tuple(readings), found.unseen)


@dataclass
class _Holdings:
    """Sockets of the processes as of the last look at each: pid → descriptor → inode.

    Attributes:
        listening: pid → the descriptors among them that are in `inodes_seen`.
        inodes_seen: of the listeners that were looked for.
        ran: processes that did anything since they were looked at.
    """

    sockets: Dict[int, Mapping[int, int]] = field(default_factory=dict)
    listening: Dict[int, Mapping[int, int]] = field(default_factory=dict)
    hidden: Set[int] = field(default_factory=set)
    inodes_seen: Set[int] = field(default_factory=set)
    ran: Set[int] = field(default_factory=set)
    reads_since: int = 0

    def is_stale(self, listeners: Set[int]) -> bool:
        """A new listener may be anybody's; else look again when it is affordable."""
        held = sum(len(self.sockets.get(pid, ())) for pid in self.ran)
        due = self.reads_since * _SOCKETS_PER_READ >= held
        return due or not listeners <= self.inodes_seen

    def forget(self, pids: Iterable[int]) -> None:
        """They are looked at again, where they still are there."""
        for pid in pids:
            self.sockets.pop(pid, None)
            self.listening.pop(pid, None)
            self.hidden.discard(pid)

    def find_listening(self, pids: Iterable[int]) -> None:
        """Which of the listeners they hold."""
        for pid in pids:
            held = self.sockets[pid]
            if not self.inodes_seen.isdisjoint(held.values()):
                self.listening[pid] = {
                    fd: inode for fd, inode in held.items() if inode in self.inodes_seen
                }


class TargetListeners:
    """The listeners that a changing set of processes holds.

    Looks into each network namespace of the processes once per read, and into
    ours, where sockets handed to a confined service usually live.
    """

    def __init__(self, procfs: Optional[Procfs] = None) -> None:
        self._procfs = procfs or Procfs()
        self._namespaces: Dict[int, NetworkNamespace] = {}
        self._holdings = _Holdings()
        self._paths = HostPaths()

    def begin(self, sockets: Mapping[int, Mapping[int, int]]) -> None:
        """Take over what somebody has just seen, before the first `read`.

        Args:
            sockets: pid → descriptor → inode, of processes with all of their sockets.
        """
        self._holdings = _Holdings(dict(sockets))

    def read(
        self,
        pids: Iterable[int],
        ran: Optional[AbstractSet[int]] = None,
        netns: Optional[Mapping[int, int]] = None,
    ) -> ListenersSeen:
        """Listeners that at least one of `pids` holds; owners are among `pids`.

        Args:
            ran: those of them that may have opened or closed anything since the last time; None
                is any.
            netns: inode number of their network namespaces, 0 where it is not known; None: look.

        Raises:
            KernelCannotError: `no-sock-diag`, `sock-diag-failed`.
        """
        targets = frozenset(pids)
        unseen = self._follow_namespaces(targets, netns)
        dumps = [self._namespaces[inode].listeners() for inode in sorted(self._namespaces)]
        for dump in dumps:
            unseen.extend(reason for reason in dump.unseen if reason not in unseen)
        listeners = {one.inode for dump in dumps for one in dump.sockets}
        owners = self._owners(targets, targets if ran is None else ran, listeners)
        hidden = tuple(sorted(self._holdings.hidden.intersection(targets)))
        unseen.extend(
            f"the descriptors of process {pid} are hidden from this user" for pid in hidden
        )
        readings = [
            _reading(dump, one, owners[one.inode], self._paths)
            for dump in dumps
            for one in dump.sockets
            if one.inode in owners
        ]
        return ListenersSeen(
            tuple(readings), tuple(unseen), hidden, tuple(dump.namespace for dump in dumps)
        )

    def close(self) -> None:
        """Leave every network namespace. May be called twice."""
        for namespace in self._namespaces.values():
            namespace.close()
        self._namespaces.clear()

    def __enter__(self) -> TargetListeners:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _follow_namespaces(
        self, targets: AbstractSet[int], netns: Optional[Mapping[int, int]]
    ) -> List[str]:
        """Opens the targets' namespaces, closes those that none is in any more."""
        own = self._procfs.netns_of_this_thread()
        if netns is None:
            netns = {pid: self._procfs.netns(pid) or 0 for pid in targets}
        wanted: Dict[int, Optional[int]] = {inode: pid for pid, inode in netns.items() if inode}
        wanted[own] = None
        for inode in self._namespaces.keys() - wanted.keys():
            self._namespaces.pop(inode).close()
        unseen: List[str] = []
        for inode in wanted.keys() - self._namespaces.keys():
            try:
                opened = _opened(wanted[inode])
            except ProcessLookupError:
                continue
            except NotPermittedError as error:
                unseen.append(error.what)
                continue
            self._keep(opened)
        return unseen

    def _keep(self, opened: NetworkNamespace) -> None:
        # The process may have changed its namespace since we looked.
        known = self._namespaces.setdefault(opened.inode, opened)
        if known is not opened:
            opened.close()

    def _owners(
        self, targets: AbstractSet[int], ran: AbstractSet[int], listeners: Set[int]
    ) -> Dict[int, Tuple[int, ...]]:
        self._look(targets, ran, listeners)
        owners: Dict[int, List[int]] = {}
        for pid in sorted(self._holdings.listening):
            for inode in self._held(pid, listeners):
                owners.setdefault(inode, []).append(pid)
        return {inode: tuple(who) for inode, who in owners.items()}

    def _look(self, targets: AbstractSet[int], ran: AbstractSet[int], listeners: Set[int]) -> None:
        """A process that sleeps opens and closes nothing: it is looked at once."""
        holdings = self._holdings
        holdings.forget(holdings.sockets.keys() - targets)
        holdings.ran = (holdings.ran | ran) & targets
        holdings.reads_since += 1
        is_stale, is_new = holdings.is_stale(listeners), not listeners <= holdings.inodes_seen
        if is_stale:
            holdings.forget(holdings.ran)
            holdings.ran, holdings.reads_since, holdings.inodes_seen = set(), 0, listeners
        fresh = targets - holdings.sockets.keys()
        for pid in fresh:
            self._look_into(pid)
        holdings.find_listening(targets if is_new else fresh)

    def _look_into(self, pid: int) -> None:
        held = self._procfs.socket_fds(pid)
        self._holdings.sockets[pid] = held or {}
        if held is None and self._procfs.hides_descriptors(pid):
            self._holdings.hidden.add(pid)

    def _held(self, pid: int, listeners: Set[int]) -> Set[int]:
        held = self._holdings.listening[pid].items()
        is_quiet = pid not in self._holdings.ran
        return {
            inode
            for fd, inode in held
            if inode in listeners and (is_quiet or self._procfs.holds(pid, fd, inode))
        }


def _opened(pid: Optional[int]) -> NetworkNamespace:
    return NetworkNamespace() if pid is None else NetworkNamespace.of(pid)


def _reading(
    dump: NamespaceListeners,
    found: ListeningSocket,
    pids: Optional[Tuple[int, ...]],
    paths: HostPaths,
) -> ListenerReading:
    owner = pids[0] if pids else None
    return ListenerReading(
        transport=found.transport,
        socket_type=found.socket_type,
        address=found.address,
        netns=dump.netns,
        inode=found.inode,
        pids=pids,
        depth_now=found.depth_now,
        backlog_effective=found.backlog_effective,
        backlog_requested=None,
        somaxconn=dump.somaxconn,
        host_path=paths.of(found.inode, found.unix_name, found.unix_file, owner),
    )
