"""Processes that work for the targets' requests some hops away: an upstream's own upstream, say.

The kernel half names who is at the other end of a target's connections. Who accepted a
connection of an upstream works for these requests as well, and so does who connected to a client.
But another client of the same upstream does not: chains go one way.

Looked up by the sockets that processes hold: both ends of a TCP connection in one network
namespace, and of Unix connections by a path in udsprobe's own.
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Set, Tuple

from udsprobe.errors import UdsprobeError
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.sockets.sock_diag import NetworkNamespace
from udsprobe.kernel.tables.silent_peers import Ends, tcp_rows

# Of one with more, listing its sockets would take longer than what it tells is worth.
DESCRIPTORS_MAX = 4096
_TCP_TABLES = ("tcp", "tcp6")
# Process → those at the other ends of its connections.
_Neighbours = Dict[int, Set[int]]


class PartnerChains:
    """Which processes are connected to targets through others.

    Args:
        procfs: where processes and their sockets are read.
    """

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs

    def reached(
        self, strangers: Iterable[int], targets: Iterable[int], between: Iterable[int]
    ) -> Set[int]:
        """Those of `strangers` that a chain of connections leads to from a target, or from there.

        A snapshot: a connection that is opened for each request may be missed.

        Args:
            between: further processes that a chain may pass.
        """
        # Most strangers are the kernel's own threads: no connection has to be listed for these.
        sockets = {pid: self._sockets(pid) for pid in set(strangers)}
        asked, start = {pid for pid, held in sockets.items() if held}, set(targets)
        if not asked:
            return set()
        others = (start | set(between)) - asked
        holders = _by_inode({**sockets, **{pid: self._sockets(pid) for pid in others}})
        there, back = _neighbours(holders, self._connections(asked))
        return asked & (_chain(start, there) | _chain(start, back))

    def _sockets(self, pid: int) -> Set[int]:
        if (self._procfs.fds_open(pid) or 0) > DESCRIPTORS_MAX:
            return set()
        return set((self._procfs.socket_fds(pid) or {}).values())

    def _connections(self, pids: Iterable[int]) -> Iterator[Tuple[int, int]]:
        """Inodes of both ends: who connected, who accepted."""
        yield from _unix_pairs()
        namespaces = {self._procfs.netns(pid): pid for pid in pids}
        for pid in namespaces.values():
            tables = [self._procfs.tcp_table(pid, name) for name in _TCP_TABLES]
            yield from tcp_pairs([row for table in tables for row in tcp_rows(table)])


def tcp_pairs(rows: Iterable[Tuple[Ends, int]]) -> Iterator[Tuple[int, int]]:
    """Inodes of both ends of connections whose accepted end is at the port of a listener.

    Args:
        rows: ((local, remote), inode); a listener has no remote port.
    """
    inodes = dict(rows)
    ports = {local.port for local, remote in inodes if not remote.port}
    for (local, remote), inode in inodes.items():
        other = inodes.get((remote, local))
        if other and inode and local.port in ports and remote.port not in ports:
            yield other, inode


def _chain(start: Set[int], neighbours: _Neighbours) -> Set[int]:
    found, ahead = set(start), list(start)
    while ahead:
        fresh = neighbours.get(ahead.pop(), set()) - found
        found |= fresh
        ahead += fresh
    return found


def _unix_pairs() -> List[Tuple[int, int]]:
    try:
        with NetworkNamespace() as own:
            return own.unix_pairs()
    except UdsprobeError:  # nobody lists them here
        return []


def _by_inode(sockets: Dict[int, Set[int]]) -> Dict[int, Set[int]]:
    """Socket → processes; more than one where it was inherited."""
    found: Dict[int, Set[int]] = {}
    for pid, inodes in sockets.items():
        for inode in inodes:
            found.setdefault(inode, set()).add(pid)
    return found


def _neighbours(
    holders: Dict[int, Set[int]], connections: Iterable[Tuple[int, int]]
) -> Tuple[_Neighbours, _Neighbours]:
    """By who connected: who accepted; and the other way round."""
    there: _Neighbours = {}
    back: _Neighbours = {}
    for client, server in connections:
        for one in holders.get(client, ()):
            there.setdefault(one, set()).update(holders.get(server, ()))
        for other in holders.get(server, ()):
            back.setdefault(other, set()).update(holders.get(client, ()))
    return there, back
