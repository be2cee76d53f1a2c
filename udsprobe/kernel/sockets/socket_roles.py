"""Which sockets that are open already were accepted: pure, from one listing.

An accepted Unix socket shares the `struct unix_address` of its listener
(net/unix/af_unix.c, unix_stream_connect: newu->addr = otheru->addr); an
accepted TCP socket has the port of a listener in the same namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, List, Set, Tuple

TCP_ESTABLISHED, TCP_LISTEN = 1, 10


@dataclass(frozen=True)
class SocketRecord:
    """A socket of a target, or a listener of anybody (`struct socket_record`).

    Attributes:
        asked_ticks: ago, in ticks of the kernel, the other end spoke last, after a reply or once;
            0: it did not, or it is not known (Unix sockets).
    """

    sk: int
    inode: int
    unix_address: int
    tgid: int
    fd: int
    netns: int
    local_port: int
    endpoint: int
    state: int
    asked_ticks: int = 0

    @classmethod
    def of(cls, record: Any) -> SocketRecord:
        """From the ctypes twin of the record."""
        return cls(*(getattr(record, name) for name in cls.__dataclass_fields__))

    def address_key(self) -> Tuple[int, int]:
        """Equal for a listener and for what it accepted; (0, 0) when unnamed."""
        if self.unix_address:
            return (0, self.unix_address)
        return (self.netns, self.local_port) if self.local_port else (0, 0)


def served_sockets(records: Iterable[SocketRecord]) -> List[SocketRecord]:
    """The established sockets that a listener among `records` accepted, each once."""
    everything = list(records)
    listening: Set[Tuple[int, int]] = {
        record.address_key() for record in everything if record.state == TCP_LISTEN
    }
    listening.discard((0, 0))
    served = {
        record.sk: record
        for record in everything
        if record.state == TCP_ESTABLISHED and record.address_key() in listening
    }
    return list(served.values())
