"""Listening sockets of a network namespace, as sock_diag reports them.

Knows netlink, address formats and how to look into another network namespace.
Knows nothing of processes: who holds a socket is `udsprobe.kernel.proc.procfs`'s
business. Needs no privilege for the caller's own namespace.

Addresses are written as `ss -n` writes them, with two differences that keep
them unambiguous: NUL bytes of an abstract name are `\\x00` (ss: `@`), and bytes
that are not printable UTF-8 are escaped. For TCP `0.0.0.0:80` is IPv4 only,
`[::]:80` IPv6 only, `*:80` both; a socket bound to a device is `0.0.0.0%eth0:80`.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Tuple

from udsprobe.errors import KernelCannotError, NotPermittedError
from udsprobe.kernel.proc.namespace_files import NamespaceFiles
from udsprobe.kernel.sockets import diag_messages
from udsprobe.kernel.sockets.diag_messages import Answer, InetAnswer, UnixAnswer
from udsprobe.own_descriptors import descriptors_used_up
from udsprobe.printable import printable
from udsprobe.sample import NamespaceReading

_NETLINK_SOCK_DIAG = 4
_RECEIVE_BYTES = 1 << 16  # netlink dumps come in datagrams of at most 32 KiB
_ANSWER_WITHIN_S = 5.0
_CLONE_NEWNET = 0x40000000
_SIOCGIFNAME = 0x8910
_MAPPED = "::ffff:"
_OWN_NAMESPACE = "/proc/thread-self/ns/net"
_UNIX_TYPES: Dict[int, str] = {socket.SOCK_STREAM: "stream", socket.SOCK_SEQPACKET: "seqpacket"}
_DIAG_MODULES: Dict[int, str] = {
    socket.AF_UNIX: "unix_diag",
    socket.AF_INET: "tcp_diag",
    socket.AF_INET6: "tcp_diag",
}
_sequences = itertools.count(1)


@dataclass(frozen=True)
class ListeningSocket:
    """One socket in LISTEN.

    Attributes:
        transport: `unix` or `tcp`. socket_type: `stream` or `seqpacket`.
        address: for people, see the module. `` for a Unix socket without name.
        unix_name: the bytes given to bind(), without the final NUL of a path;
            an abstract name starts with NUL. None for TCP.
        unix_file: (device, inode) of the socket file as the kernel numbers
            them: dev_t with 20 minor bits, low 32 bits of the inode.
        tcp_local: (host, port) bound to; None for Unix.
        inode: of the socket, as /proc/PID/fd prints it.
        depth_now: connections in the accept queue.
        backlog_effective: `sk_max_ack_backlog`, the backlog in force.
    """

    transport: str
    socket_type: str
    address: str
    unix_name: Optional[bytes]
    unix_file: Optional[Tuple[int, int]]
    tcp_local: Optional[Tuple[str, int]]
    inode: int
    depth_now: int
    backlog_effective: int


@dataclass(frozen=True)
class ConnectedSocket:
    """The end of a connection that called connect().

    Attributes:
        inode: as /proc/PID/fd prints it.
        unix_file: of the listener it connected to, as of `ListeningSocket`. None for TCP.
        tcp_remote: (host, port) of the other end, IPv4 as such; None for Unix.
    """

    inode: int
    unix_file: Optional[Tuple[int, int]]
    tcp_remote: Optional[Tuple[str, int]]


@dataclass(frozen=True)
class NamespaceListeners:
    """The listeners of one network namespace at one moment.

    Attributes:
        netns: inode number of the namespace.
        somaxconn: its net.core.somaxconn; None when /proc/sys hides it.
        unseen: why sockets or limits may be missing, one clause each.
        namespace: its limits and TCP counters.
    """

    netns: int
    somaxconn: Optional[int]
    sockets: Tuple[ListeningSocket, ...]
    unseen: Tuple[str, ...]
    namespace: NamespaceReading


class NetworkNamespace:
    """A window into one network namespace; keeps it alive until `close`.

    Its netlink socket and its somaxconn belong to the namespace in which they
    were opened, whichever thread uses them later (one at a time).
    """

    def __init__(self) -> None:
        """Opens the calling thread's own namespace.

        Raises:
            KernelCannotError: `no-sock-diag`, `no-descriptors`.
        """
        self.inode = os.stat(_OWN_NAMESPACE).st_ino
        try:
            self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
        except OSError as error:
            raise descriptors_used_up(error.errno) or KernelCannotError(
                "no-sock-diag",
                f"this kernel has no sock_diag sockets ({error.strerror})",
                "listeners cannot be seen here; load the module sock_diag if it has one",
            ) from error
        self._netlink.settimeout(_ANSWER_WITHIN_S)
        self._files = NamespaceFiles(self.inode)

    @classmethod
    def of(cls, pid: int) -> NetworkNamespace:
        """Opens the namespace of process `pid`.

        Entered by a thread that ends at once: the caller's own stays what it is.

        Raises:
            ProcessLookupError: there is no such process.
            NotPermittedError: `foreign-netns`.
            KernelCannotError: `no-sock-diag`.
        """
        try:
            descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_ino == os.stat(_OWN_NAMESPACE).st_ino:
                    return cls()
                return _elsewhere(descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            raise ProcessLookupError(pid) from None
        except PermissionError as error:
            raise NotPermittedError(
                "foreign-netns",
                f"the network namespace of process {pid} is not accessible to this user",
                "run as root, or with CAP_SYS_ADMIN and CAP_SYS_PTRACE, to see its listeners",
            ) from error

    def listeners(self) -> NamespaceListeners:
        """Every Unix and TCP socket in LISTEN, by transport, then address.

        Raises:
            KernelCannotError: `sock-diag-failed`, the dump was refused or broken off.
        """
        dumps = [self._answers(family, connected=False) for family in _DIAG_MODULES]
        sockets = [
            found
            for dump in dumps
            for found in (self._listening(answer) for answer in dump or ())
            if found is not None
        ]
        sockets.sort(key=lambda found: (found.transport != "unix", found.address, found.inode))
        missing = {module for dump, module in zip(dumps, _DIAG_MODULES.values()) if dump is None}
        unseen = [f"this kernel has no {module}" for module in sorted(missing)]
        if self._files.unopened is not None:
            unseen.append(f"limits of a network namespace were not read: {self._files.unopened}")
        return NamespaceListeners(
            self.inode, self.somaxconn(), tuple(sockets), tuple(unseen), self._files.reading()
        )

    def connected(self) -> List[ConnectedSocket]:
        """Established connections: TCP's both ends, Unix sockets that connected to a file.

        Raises:
            KernelCannotError: `sock-diag-failed`, the dump was refused or broken off.
        """
        found = (
            _connected(answer)
            for family in _DIAG_MODULES
            for answer in self._answers(family, connected=True) or ()
        )
        return [one for one in found if one is not None]

    def unix_pairs(self) -> List[Tuple[int, int]]:
        """Inodes of both ends of Unix connections by a path: who connected, who accepted.

        Raises:
            KernelCannotError: `sock-diag-failed`, the dump was refused or broken off.
        """
        found = self._answers(socket.AF_UNIX, connected=True) or ()
        # The accepted end has the listener's file.
        return [(a.peer, a.inode) for a in found if isinstance(a, UnixAnswer) and a.file and a.peer]

    def somaxconn(self) -> Optional[int]:
        """net.core.somaxconn of this namespace, now; None when hidden."""
        return self._files.limit("somaxconn")

    def close(self) -> None:
        """Leave the namespace: it may end once nobody else holds it."""
        self._netlink.close()
        self._files.close()

    def __enter__(self) -> NetworkNamespace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answers(self, family: int, connected: bool) -> Optional[List[Answer]]:
        """One dump; None when this kernel has nobody for the family."""
        try:
            return list(self._dump(family, connected))
        except FileNotFoundError:  # ENOENT: nobody handles this family
            return None
        except OSError as error:
            raise descriptors_used_up(error.errno) or KernelCannotError(
                "sock-diag-failed",
                f"the kernel did not list its {_DIAG_MODULES[family]} sockets ({error})",
                "check that no sandbox filters netlink, then try again",
            ) from error

    def _dump(self, family: int, connected: bool) -> Iterator[Answer]:
        sequence = next(_sequences)
        self._netlink.send(diag_messages.request(family, sequence, connected))
        while True:
            datagram = self._netlink.recv(_RECEIVE_BYTES)
            for _, answer in diag_messages.answers(datagram, sequence):
                if answer is None:
                    return
                yield answer

    def _listening(self, answer: Answer) -> Optional[ListeningSocket]:
        if isinstance(answer, UnixAnswer):
            return unix_listener(answer)
        return self._tcp_listener(answer)

    def _tcp_listener(self, answer: InetAnswer) -> ListeningSocket:
        host, port = _readable(answer.local)
        device = self._device(answer.interface) if answer.interface else ""
        return ListeningSocket(
            transport="tcp",
            socket_type="stream",
            address=tcp_address(host, port, device, answer.v6_only),
            unix_name=None,
            unix_file=None,
            tcp_local=(host, port),
            inode=answer.inode,
            depth_now=answer.queue.waiting,
            backlog_effective=answer.queue.backlog,
        )

    def _device(self, index: int) -> str:
        # Not if_indextoname(): that asks in the calling thread's namespace.
        request = struct.pack("=16si20x", b"", index)
        try:
            answer = fcntl.ioctl(self._netlink.fileno(), _SIOCGIFNAME, request)
        except OSError:
            return f"%if{index}"
        return "%" + printable(answer[:16].split(b"\0")[0])


def _elsewhere(namespace: int) -> NetworkNamespace:
    opened: List[NetworkNamespace] = []
    failed: List[Exception] = []

    def enter() -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(ctypes.c_int(namespace), ctypes.c_int(_CLONE_NEWNET)) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            opened.append(NetworkNamespace())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=enter, name="udsprobe-netns")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return opened[0]


def unix_listener(answer: UnixAnswer) -> Optional[ListeningSocket]:
    """The listener of an answer about AF_UNIX; None when it is of no kind that listens."""
    socket_type = _UNIX_TYPES.get(answer.kind)
    if socket_type is None or answer.queue is None:
        return None
    name = answer.name
    if not name.startswith(b"\0"):
        name = name.split(b"\0")[0]
    return ListeningSocket(
        transport="unix",
        socket_type=socket_type,
        address=unix_address(name),
        unix_name=name,
        unix_file=answer.file,
        tcp_local=None,
        inode=answer.inode,
        depth_now=answer.queue.waiting,
        backlog_effective=answer.queue.backlog,
    )


def _connected(answer: Answer) -> Optional[ConnectedSocket]:
    if isinstance(answer, UnixAnswer):
        # The accepted end has the listener's file; the end that connected is its peer.
        if not answer.file or not answer.peer:
            return None
        return ConnectedSocket(answer.peer, answer.file, None)
    host, port = _readable(answer.remote)
    return ConnectedSocket(answer.inode, None, (as_ipv4(host), port))


def _readable(end: Tuple[bytes, int]) -> Tuple[str, int]:
    host, port = end
    return socket.inet_ntop(socket.AF_INET if len(host) == 4 else socket.AF_INET6, host), port


def unix_address(name: bytes) -> str:
    """A Unix socket's name as people read it, from the bytes given to bind().

    `@` begins abstract names only: a relative path that begins so has it escaped.
    """
    if name.startswith(b"\0"):
        return "@" + printable(name[1:])
    return "\\x40" + printable(name[1:]) if name.startswith(b"@") else printable(name)


def as_ipv4(host: str) -> str:
    """An IPv4 address that an IPv6 socket has, as other hosts name it (RFC 4291, 2.5.5.2).

    Java and gRPC ask, and listen, at IPv4 addresses so.
    """
    return host.removeprefix(_MAPPED) if "." in host else host


def tcp_address(host: str, port: int, device: str, v6_only: bool) -> str:
    """`host:port` as people read it; `device` is empty or `%eth0`."""
    host = as_ipv4(host)
    if host == "::" and not v6_only:
        return f"*{device}:{port}"
    return f"[{host}]{device}:{port}" if ":" in host else f"{host}{device}:{port}"
