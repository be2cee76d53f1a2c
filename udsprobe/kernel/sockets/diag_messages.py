"""The messages of sock_diag, in bytes: requests packed, answers unpacked.

No library of netlink: `pyroute2` costs 100 ms and 19 MB at its import (asyncio, ssl, sqlite3), of
which these four layouts need nothing.

Layouts: include/uapi/linux/{netlink,unix_diag,inet_diag}.h.
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import Dict, Iterator, NamedTuple, Optional, Tuple, Union

SOCK_DIAG_BY_FAMILY = 20
TCP_ESTABLISHED, TCP_LISTEN = 1, 10
_CONNECTED, _LISTENING = 1 << TCP_ESTABLISHED, 1 << TCP_LISTEN
_NLM_F_REQUEST, _NLM_F_DUMP = 0x1, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLA_TYPE_MASK = 0x3FFF
_UDIAG_SHOW_NAME, _UDIAG_SHOW_VFS, _UDIAG_SHOW_RQLEN = 0x1, 0x2, 0x10
_UDIAG_SHOW_PEER = 0x4
_UNIX_DIAG_NAME, _UNIX_DIAG_VFS, _UNIX_DIAG_PEER, _UNIX_DIAG_RQLEN = 0, 1, 2, 4
_INET_DIAG_SKV6ONLY = 11
_ALIGNED = 4

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_STATUS = struct.Struct("=i")
_ATTRIBUTE = struct.Struct("=HH")  # length with this header, type
_U32 = struct.Struct("=I")
_U32_PAIR = struct.Struct("=II")
_UNIX_REQUEST = struct.Struct("=BBHIIIQ")  # family, protocol, pad, states, inode, show, cookie
_UNIX_ANSWER = struct.Struct("=BBBBIQ")  # family, type, state, pad, inode, cookie
# `inet_diag_sockid`: ports in network order, addresses, interface, cookie.
_SOCKET_ID = "HH16s16sIQ"
_INET_REQUEST = struct.Struct("=BBBBI" + _SOCKET_ID)  # family, protocol, extensions, pad, states
# family, state, timer, retransmits; expires, receive queue, send queue, uid, inode
_INET_ANSWER = struct.Struct("=BBBB" + _SOCKET_ID + "IIIII")


class Queue(NamedTuple):
    """Of a listener: connections that wait to be accepted, and the backlog in force."""

    waiting: int
    backlog: int


class UnixAnswer(NamedTuple):
    """An AF_UNIX socket.

    Attributes:
        kind: SOCK_STREAM and so on.
        name: as given to bind(), b"" without one; that of a path may end with its NUL.
        file: (device, inode) of the socket's file, as the kernel numbers them. peer: inode of the
            other end. queue: of a listener. None where it was not asked for or there is none.
    """

    kind: int
    inode: int
    name: bytes
    file: Optional[Tuple[int, int]]
    peer: Optional[int]
    queue: Optional[Queue]


class InetAnswer(NamedTuple):
    """An AF_INET or AF_INET6 socket.

    Attributes:
        local, remote: (address in network order: 4 or 16 bytes, port).
        interface: the index of the device that it is bound to; 0: none.
        queue: of a listener.
    """

    inode: int
    local: Tuple[bytes, int]
    remote: Tuple[bytes, int]
    interface: int
    v6_only: bool
    queue: Queue


Answer = Union[UnixAnswer, InetAnswer]


def request(family: int, sequence: int, connected: bool) -> bytes:
    """Asks for every stream socket of AF_UNIX, AF_INET or AF_INET6 that is connected or listens."""
    if family == socket.AF_UNIX:
        if connected:
            return unix_connected_request(family, sequence)
        return unix_listeners_request(family, sequence)
    states = _CONNECTED if connected else _LISTENING
    return _inet_request(family, socket.IPPROTO_TCP, sequence, states)


def unix_listeners_request(family: int, sequence: int) -> bytes:
    """Asks for every AF_UNIX socket in LISTEN: name, file and queue."""
    show = _UDIAG_SHOW_NAME | _UDIAG_SHOW_VFS | _UDIAG_SHOW_RQLEN
    return _packed(_UNIX_REQUEST.pack(family, 0, 0, _LISTENING, 0, show, 0), sequence)


def unix_connected_request(family: int, sequence: int) -> bytes:
    """Asks for every connected AF_UNIX socket: the file of its listener, and its peer."""
    show = _UDIAG_SHOW_VFS | _UDIAG_SHOW_PEER
    return _packed(_UNIX_REQUEST.pack(family, 0, 0, _CONNECTED, 0, show, 0), sequence)


def _inet_request(family: int, protocol: int, sequence: int, states: int) -> bytes:
    anybody = (0, 0, b"", b"", 0, 0)
    return _packed(_INET_REQUEST.pack(family, protocol, 0, 0, states, *anybody), sequence)


def _packed(body: bytes, sequence: int) -> bytes:
    length, flags = _HEADER.size + len(body), _NLM_F_REQUEST | _NLM_F_DUMP
    return _HEADER.pack(length, SOCK_DIAG_BY_FAMILY, flags, sequence, 0) + body


def answers(datagram: bytes, sequence: int) -> Iterator[Tuple[bool, Optional[Answer]]]:
    """(last one?, answer) for each netlink message of one datagram; the last has none.

    Raises:
        OSError: the kernel refused the request or broke off the dump, or a message is cut.
    """
    offset = 0
    while offset + _HEADER.size <= len(datagram):
        length, kind, _, number, _ = _HEADER.unpack_from(datagram, offset)
        if length < _HEADER.size:
            return
        if number == sequence:
            body = datagram[offset + _HEADER.size : offset + length]
            if kind in (_NLMSG_ERROR, _NLMSG_DONE):
                _raise_status(body)
                yield True, None
                return
            yield False, _unpacked(body)
        offset += _aligned(length)


def _raise_status(body: bytes) -> None:
    if len(body) >= _STATUS.size:
        (status,) = _STATUS.unpack_from(body)
        if status < 0:
            raise OSError(-status, "sock_diag")


def _unpacked(body: bytes) -> Answer:
    try:
        return _unix_answer(body) if body[0] == socket.AF_UNIX else _inet_answer(body)
    except (struct.error, IndexError) as error:
        raise OSError(errno.EBADMSG, "sock_diag") from error


def _unix_answer(body: bytes) -> UnixAnswer:
    _, kind, _, _, inode, _ = _UNIX_ANSWER.unpack_from(body)
    found = _attributes(body, _UNIX_ANSWER.size)
    file, peer = found.get(_UNIX_DIAG_VFS), found.get(_UNIX_DIAG_PEER)
    queue = found.get(_UNIX_DIAG_RQLEN)
    return UnixAnswer(
        kind=kind,
        inode=inode,
        name=found.get(_UNIX_DIAG_NAME, b""),
        file=_file(file) if file is not None else None,
        peer=_U32.unpack_from(peer)[0] if peer is not None else None,
        queue=Queue._make(_U32_PAIR.unpack_from(queue)) if queue is not None else None,
    )


def _file(value: bytes) -> Tuple[int, int]:
    inode, device = _U32_PAIR.unpack_from(value)
    return device, inode


def _inet_answer(body: bytes) -> InetAnswer:
    fields = _INET_ANSWER.unpack_from(body)
    family, (local_port, remote_port, source, destination, interface) = fields[0], fields[4:9]
    _, receive_queue, send_queue, _, inode = fields[10:]
    size = 4 if family == socket.AF_INET else 16
    v6_only = _attributes(body, _INET_ANSWER.size).get(_INET_DIAG_SKV6ONLY)
    return InetAnswer(
        inode=inode,
        local=(source[:size], socket.ntohs(local_port)),
        remote=(destination[:size], socket.ntohs(remote_port)),
        interface=interface,
        v6_only=bool(v6_only and v6_only[0]),
        queue=Queue(receive_queue, send_queue),
    )


def _attributes(body: bytes, offset: int) -> Dict[int, bytes]:
    """Type → value. Raises struct.error where one is cut."""
    found: Dict[int, bytes] = {}
    while offset < len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        if not _ATTRIBUTE.size <= length <= len(body) - offset:
            raise struct.error(f"an attribute of {length} bytes")
        found[kind & _NLA_TYPE_MASK] = body[offset + _ATTRIBUTE.size : offset + length]
        offset += _aligned(length)
    return found


def _aligned(length: int) -> int:
    return (length + _ALIGNED - 1) // _ALIGNED * _ALIGNED
