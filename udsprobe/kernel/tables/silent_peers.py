"""Who holds the other end where bytes pile up and nothing ever came back.

Such a peer made no call that could tell who it is. A Unix socket knows the inode of its
peer; the other end of a TCP connection is the row of `/proc/PID/net/tcp` with the addresses
the other way round (`get_tcp4_sock` in net/ipv4/tcp_ipv4.c), if it is in the same network
namespace.
"""

from __future__ import annotations

import socket
import sys
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Set, Tuple

from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.sockets.socket_names import SocketName

_MAPPED = bytes(10) + b"\xff\xff"
# Fields of a row of /proc/net/tcp: local and remote address, and the socket's inode.
_LOCAL, _REMOTE, _INODE = 1, 2, 9
_WORD_DIGITS = 8


class End(NamedTuple):
    """An address in network order, IPv4 as such, and a port."""

    raw: bytes
    port: int


Ends = Tuple[End, End]


class SilentPeers:
    """Process ids of peers that no event told of.

    Args:
        procfs: where processes and their sockets are read.
    """

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        self._pids: Dict[int, int] = {}  # inode of the peer's socket → process
        self._inodes: Dict[Ends, int] = {}  # of TCP connections

    def look(self, records: Iterable[Any]) -> None:
        """Find those of the connections listed now; forget the others."""
        silent = [r for r in records if (r.send_queue_bytes or r.stops) and not r.peer_tgid]
        self._look_for_ends([r for r in silent if not r.peer_inode])
        wanted = {self._inode(r) for r in silent} - {0}
        unknown = wanted - self._pids.keys()
        self._pids = {inode: pid for inode, pid in self._pids.items() if inode in wanted}
        owners = self._procfs.owners(unknown) if unknown else None
        for inode in unknown:
            pids = owners.of(inode) if owners is not None else None
            if pids:
                self._pids[inode] = pids[0]

    def pid(self, record: Any) -> int:
        """Of the process at the other end; 0 when nobody was found."""
        return self._pids.get(self._inode(record), 0)

    def _inode(self, record: Any) -> int:
        return int(record.peer_inode) or self._inodes.get(_other_way_round(record), 0)

    def _look_for_ends(self, records: List[Any]) -> None:
        wanted = {_other_way_round(r): r.tgid for r in records if r.peer.port and r.local.port}
        unknown = wanted.keys() - self._inodes.keys()
        self._inodes = {ends: inode for ends, inode in self._inodes.items() if ends in wanted}
        # One of the targets of each namespace would do; they are few.
        for pid in sorted({wanted[ends] for ends in unknown}):
            self._inodes.update(self._ends_seen_by(pid, unknown))

    def _ends_seen_by(self, pid: int, unknown: Set[Ends]) -> Dict[Ends, int]:
        tables = [self._procfs.tcp_table(pid, name) for name in ("tcp", "tcp6")]
        rows = (row for table in tables for row in tcp_rows(table))
        return {ends: inode for ends, inode in rows if ends in unknown}


def tcp_rows(table: bytes) -> Iterator[Tuple[Ends, int]]:
    """((local, remote), inode) of each row of `/proc/PID/net/tcp` or `tcp6`."""
    for line in table.split(b"\n")[1:]:
        words = line.split()
        if len(words) > _INODE and words[_INODE].isdigit():
            yield (_end(words[_LOCAL]), _end(words[_REMOTE])), int(words[_INODE])


def _end(text: bytes) -> End:
    address, _, port = text.partition(b":")
    words = (address[i : i + _WORD_DIGITS] for i in range(0, len(address), _WORD_DIGITS))
    raw = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    return End(_plain(raw), int(port, 16))


def _other_way_round(record: Any) -> Ends:
    return _named(record.peer), _named(record.local)


def _named(record: Any) -> End:
    name = SocketName.of(record)
    return End(b"", 0) if name.family == socket.AF_UNIX else End(_plain(name.raw), name.port)


def _plain(raw: bytes) -> bytes:
    return raw[len(_MAPPED) :] if raw.startswith(_MAPPED) else raw
