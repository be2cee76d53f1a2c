"""The messages of sock_diag, in bytes: requests packed, answers unpacked.

The only file that knows pyroute2, and of pyroute2 only its message codec:

- `import pyroute2` costs 95 ms and 24 MB (ssl, sqlite3, asyncio), the codec
  alone 6 ms and 1 MB. `_codec` imports it past the package's `__init__`.
- `DiagSocket` waits for ever when the kernel answers with an error (its
  marshal reads NLMSG_ERROR as AF_INET), drops the NUL that tells an abstract
  name from a path, and cannot run inside somebody's event loop (0.9).

Layouts: include/uapi/linux/{netlink,unix_diag,inet_diag}.h.
"""

# pyroute2 has no types: its classes are Any.
# mypy: allow-subclassing-any

from __future__ import annotations

import errno
import importlib
import importlib.util
import logging
import socket
import struct
import sys
from typing import Any, Iterator, Tuple

SOCK_DIAG_BY_FAMILY = 20
TCP_ESTABLISHED, TCP_LISTEN = 1, 10
_CONNECTED, _LISTENING = 1 << TCP_ESTABLISHED, 1 << TCP_LISTEN
_NLM_F_REQUEST, _NLM_F_DUMP = 0x1, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_UDIAG_SHOW_NAME, _UDIAG_SHOW_VFS, _UDIAG_SHOW_RQLEN = 0x1, 0x2, 0x10
_UDIAG_SHOW_PEER = 0x4
_HEADER = struct.Struct("=IHHII")
_STATUS = struct.Struct("=i")


def _codec() -> Any:
    """`pyroute2.netlink`, without running `pyroute2/__init__.py` if possible."""
    if "pyroute2" in sys.modules:
        return importlib.import_module("pyroute2.netlink")
    found = importlib.util.find_spec("pyroute2")
    if found is None:
        raise ImportError("pyroute2 is not installed")
    sys.modules["pyroute2"] = importlib.util.module_from_spec(found)
    try:
        return importlib.import_module("pyroute2.netlink")
    except ImportError:  # a release whose parts need the whole
        for name in [name for name in sys.modules if name.partition(".")[0] == "pyroute2"]:
            del sys.modules[name]
        return importlib.import_module("pyroute2.netlink")
    finally:
        # An empty package must not stay for whoever wants the real one.
        if not hasattr(sys.modules.get("pyroute2"), "__version__"):
            sys.modules.pop("pyroute2", None)


_netlink = _codec()
# It logs a traceback for each attribute that it cannot decode; `part` says that.
logging.getLogger(_netlink.__name__).disabled = True
_nlmsg: Any = _netlink.nlmsg
_nla: Any = _netlink.nla


class UnixRequest(_nlmsg):
    fields = (
        ("sdiag_family", "B"),
        ("sdiag_protocol", "B"),
        ("pad", "H"),
        ("udiag_states", "I"),
        ("udiag_ino", "I"),
        ("udiag_show", "I"),
        ("udiag_cookie", "Q"),
    )


class UnixAnswer(_nlmsg):
    fields = (
        ("udiag_family", "B"),
        ("udiag_type", "B"),
        ("udiag_state", "B"),
        ("pad", "B"),
        ("udiag_ino", "I"),
        ("udiag_cookie", "Q"),
    )
    nla_map = (
        (0, "UNIX_DIAG_NAME", "cdata"),  # cdata: bytes, whole
        (1, "UNIX_DIAG_VFS", "vfs"),
        (2, "UNIX_DIAG_PEER", "uint32"),
        (4, "UNIX_DIAG_RQLEN", "rqlen"),
    )

    class vfs(_nla):
        fields = (("udiag_vfs_ino", "I"), ("udiag_vfs_dev", "I"))

    class rqlen(_nla):
        fields = (("udiag_rqueue", "I"), ("udiag_wqueue", "I"))


class InetRequest(_nlmsg):
    fields = (
        ("sdiag_family", "B"),
        ("sdiag_protocol", "B"),
        ("idiag_ext", "B"),
        ("pad", "B"),
        ("idiag_states", "I"),
        ("idiag_sport", ">H"),
        ("idiag_dport", ">H"),
        ("idiag_src", "16s"),
        ("idiag_dst", "16s"),
        ("idiag_if", "I"),
        ("idiag_cookie", "Q"),
    )


class InetAnswer(_nlmsg):
    fields = (
        ("idiag_family", "B"),
        ("idiag_state", "B"),
        ("idiag_timer", "B"),
        ("idiag_retrans", "B"),
        ("idiag_sport", ">H"),
        ("idiag_dport", ">H"),
        ("idiag_src", "16s"),
        ("idiag_dst", "16s"),
        ("idiag_if", "I"),
        ("idiag_cookie", "Q"),
        ("idiag_expires", "I"),
        ("idiag_rqueue", "I"),
        ("idiag_wqueue", "I"),
        ("idiag_uid", "I"),
        ("idiag_inode", "I"),
    )
    nla_map = ((11, "INET_DIAG_SKV6ONLY", "uint8"),)


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
    request = UnixRequest()
    request["udiag_states"] = _LISTENING
    request["udiag_show"] = _UDIAG_SHOW_NAME | _UDIAG_SHOW_VFS | _UDIAG_SHOW_RQLEN
    return _packed(request, family, sequence)


def unix_connected_request(family: int, sequence: int) -> bytes:
    """Asks for every connected AF_UNIX socket: the file of its listener, and its peer."""
    request = UnixRequest()
    request["udiag_states"] = _CONNECTED
    request["udiag_show"] = _UDIAG_SHOW_VFS | _UDIAG_SHOW_PEER
    return _packed(request, family, sequence)


def inet_listeners_request(family: int, protocol: int, sequence: int) -> bytes:
    """Asks for every AF_INET or AF_INET6 socket of `protocol` in LISTEN."""
    return _inet_request(family, protocol, sequence, _LISTENING)


def _inet_request(family: int, protocol: int, sequence: int, states: int) -> bytes:
    request = InetRequest()
    request["idiag_states"] = states
    request["sdiag_protocol"] = protocol
    request["idiag_src"] = request["idiag_dst"] = bytes(16)
    return _packed(request, family, sequence)


def _packed(request: Any, family: int, sequence: int) -> bytes:
    request["sdiag_family"] = family
    request["header"]["type"] = SOCK_DIAG_BY_FAMILY
    request["header"]["flags"] = _NLM_F_REQUEST | _NLM_F_DUMP
    request["header"]["sequence_number"] = sequence
    request.encode()
    return bytes(request.data)


def answers(datagram: bytes, sequence: int) -> Iterator[Tuple[bool, Any]]:
    """(last one?, message) for each netlink message of one datagram.

    Raises:
        OSError: the kernel refused the request or broke off the dump.
    """
    offset = 0
    while offset + _HEADER.size <= len(datagram):
        length, kind, _, number, _ = _HEADER.unpack_from(datagram, offset)
        if length < _HEADER.size:
            return
        if number == sequence:
            if kind in (_NLMSG_ERROR, _NLMSG_DONE):
                _raise_status(datagram, offset + _HEADER.size)
                yield True, None
                return
            yield False, _unpacked(datagram[offset : offset + length])
        offset += length + 3 & ~3


def part(message: Any, name: str) -> Any:
    """A structured attribute of an answer; None when it has none.

    Raises:
        OSError: it cannot be decoded.
    """
    found = message.get_attr(name)
    if isinstance(found, (bytes, bytearray, str)):  # as the codec leaves what it cannot decode
        raise OSError(errno.EBADMSG, "sock_diag")
    return found


def _raise_status(datagram: bytes, offset: int) -> None:
    if offset + _STATUS.size <= len(datagram):
        (status,) = _STATUS.unpack_from(datagram, offset)
        if status < 0:
            raise OSError(-status, "sock_diag")


def _unpacked(raw: bytes) -> Any:
    try:
        family = raw[_HEADER.size]
        message = (UnixAnswer if family == 1 else InetAnswer)(raw)
        message.decode()
    except Exception as error:  # what a codec raises when a message is cut is its own affair
        raise OSError(errno.EBADMSG, "sock_diag") from error
    return message
