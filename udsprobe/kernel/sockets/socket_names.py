"""`struct socket_name` of the kernel half, read and written as people write addresses."""

from __future__ import annotations

import ctypes
import socket
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from udsprobe.kernel.sockets.sock_diag import tcp_address, unix_address

ADDRESS_BYTES = {socket.AF_INET: 4, socket.AF_INET6: 16}
_NAMES_REMEMBERED = 1024


@dataclass(frozen=True)
class SocketName:
    """Where a socket is, or where a caller wanted to go.

    Attributes:
        family: AF_UNIX, AF_INET, AF_INET6; 0 when unnamed.
        raw: a Unix path without its final NUL, an abstract name with its
            leading one, or the address in network order.
        port: 0 for Unix.
    """

    family: int
    raw: bytes
    port: int

    @classmethod
    def of(cls, record: Any) -> SocketName:
        """From the ctypes twin of `struct socket_name`."""
        # A c_char array ends at the first NUL when read as an attribute.
        at = ctypes.addressof(record) + type(record).bytes.offset
        raw = ctypes.string_at(at, type(record).bytes.size)
        if record.family == socket.AF_UNIX:
            name = raw[: record.length]
            name = name if name.startswith(b"\0") else name.split(b"\0")[0]
            return cls(record.family, name, 0)
        return cls(record.family, raw[: ADDRESS_BYTES.get(record.family, 0)], record.port)

    @property
    def is_abstract(self) -> bool:
        """A Unix name outside the file system."""
        return self.family == socket.AF_UNIX and self.raw.startswith(b"\0")

    def address(self) -> str:
        """As `ss` writes it, escaped."""
        if self.family == socket.AF_UNIX:
            return unix_address(self.raw)
        if self.family not in ADDRESS_BYTES:
            return ""
        return tcp_address(socket.inet_ntop(self.family, self.raw), self.port, "", True)


def address_of(record: Any) -> str:
    """The address in the ctypes twin of `struct socket_name`, as `ss` writes it, escaped.

    Connections are read each second, and their names stay: each is put into words once.
    """
    layout: Any = type(record)
    return _address(layout, bytes(record))


@lru_cache(_NAMES_REMEMBERED)
def _address(layout: Any, raw: bytes) -> str:
    return SocketName.of(layout.from_buffer_copy(raw)).address()
