"""A process that listens, accepts and connects as it is told, and keeps its own account.

Started with the number of a SEQPACKET descriptor: a request is one JSON
object, and so is its answer, which is sent when the thing is done. Stamps are
CLOCK_MONOTONIC in ns, taken right before and right after the system call.
Knows nothing of udsprobe.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

MESSAGE_MAX = 65536
DESCRIPTORS_MAX = 20_000
LISTED_MAX = 200
KINDS = {"stream": socket.SOCK_STREAM, "seqpacket": socket.SOCK_SEQPACKET}
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
SO_MEMINFO = 55
NOBODY = 65534

libc = ctypes.CDLL(None, use_errno=True)
Stamp = Tuple[int, int]
Answer = Dict[str, Any]


class Address:
    """Where a socket is bound or connects: `{"unix": hex}` or `{"host", "port"}`.

    Of a Unix one, `"kind"` may be `seqpacket`, and `"tail"` (hex) is passed
    behind the path, as callers do who give the size of the whole structure.
    TCP sockets with `"reuseport"` share their port.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._unix = bytes.fromhex(given["unix"]) if "unix" in given else None
        self._tail = bytes.fromhex(given.get("tail", ""))
        self._kind = KINDS[given.get("kind", "stream")]
        self._reuse = socket.SO_REUSEPORT if given.get("reuseport") else socket.SO_REUSEADDR
        self._inet = (given.get("host", ""), given.get("port", 0))

    def socket(self) -> socket.socket:
        if self._unix is not None:
            return socket.socket(socket.AF_UNIX, self._kind)
        family = socket.AF_INET6 if ":" in self._inet[0] else socket.AF_INET
        return socket.socket(family, socket.SOCK_STREAM)

    def bind(self, sock: socket.socket) -> None:
        if self._unix is None:
            sock.setsockopt(socket.SOL_SOCKET, self._reuse, 1)
            sock.bind(self._inet)
            return
        name = self._structure()
        if libc.bind(sock.fileno(), name, len(name)):
            raise OSError(ctypes.get_errno(), "bind")

    def connect(self, sock: socket.socket) -> Tuple[Stamp, int]:
        """One connect(): its stamps and errno."""
        name = None if self._unix is None else self._structure()
        before = time.monotonic_ns()
        if name is None:
            error = sock.connect_ex(self._inet)
        else:
            error = ctypes.get_errno() if libc.connect(sock.fileno(), name, len(name)) else 0
        return (before, time.monotonic_ns()), error

    def _structure(self) -> bytes:
        assert self._unix is not None
        # One of 108 bytes has no room for a terminator; the kernel does not need it.
        return struct.pack("=H", socket.AF_UNIX) + self._unix + self._tail


class Commands:
    """The commands: each public method is one; its result is the answer."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._listeners: List[socket.socket] = []
        self._kept: List[socket.socket] = []
        self._children: Dict[int, int] = {}
        self._received: List[int] = []
        self._sent: List[int] = []

    def serve(self) -> None:
        """Until the other side hangs up."""
        while True:
            message, self._received, _, _ = socket.recv_fds(self._channel, MESSAGE_MAX, 4)
            if not message:
                return
            request = json.loads(message)
            method: Callable[..., Answer] = getattr(self, request.pop("do"))
            self._sent = []
            try:
                answer = method(**request)
            except OSError as error:
                answer = {"error": name_of(error.errno or 0), "text": str(error)}
            socket.send_fds(self._channel, [json.dumps(answer).encode()], self._sent)

    # ------------------------------------------------------------ a server

    def listen(self, address: Answer, backlog: int) -> Answer:
        place = Address(address)
        sock = place.socket()
        place.bind(sock)
        sock.listen(backlog) if backlog >= 0 else self._listen_raw(sock, backlog)
        return self._keep_listener(sock)

    def relisten(self, listener: int, backlog: int) -> Answer:
        self._listen_raw(self._listeners[listener], backlog)
        return {}

    def accept(
        self,
        listener: int,
        count: int,
        after_ms: float = 0,
        keep: bool = False,
        says: str = "",
    ) -> Answer:
        """`after_ms`: how long this server is busy with something else before each one.

        `says`: what it writes to each one at once.
        """
        sock = self._listeners[listener]
        stamps = []
        for _ in range(count):
            if after_ms:
                time.sleep(after_ms / 1000)
            before = time.monotonic_ns()
            connection, _ = sock.accept()
            stamps.append((before, time.monotonic_ns()))
            if says:
                connection.send(says.encode())
            if keep:
                self._kept.append(connection)
            else:
                connection.close()
        return summed(stamps)

    def receive(self, connection: int) -> Answer:
        """What is there of one that it keeps."""
        return {"text": self._kept[connection].recv(64).decode()}

    def close_kept(self, after_ms: float = 0) -> Answer:
        """All that it keeps, when they have been open for a while longer."""
        time.sleep(after_ms / 1000)
        while self._kept:
            self._kept.pop().close()
        return {}

    def accept_by_children(self, listener: int, shares: Sequence[int]) -> Answer:
        """A forked process for each share accepts so many; their PIDs."""
        return {"pids": [self._child(lambda n=n: self.accept(listener, n)) for n in shares]}

    def defer(self, listener: int, seconds: int) -> Answer:
        sock = self._listeners[listener]
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, seconds)
        return {}

    def queued(self, listener: int) -> Answer:
        """Connections in the queue of a TCP listener, as tcp_info has it (tcpi_unacked)."""
        info = self._listeners[listener].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
        return {"queued": struct.unpack_from("=I", info, 24)[0]}

    def drops(self, listener: int) -> Answer:
        """`sk_drops` of a listener (SK_MEMINFO_DROPS)."""
        info = self._listeners[listener].getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36)
        return {"drops": struct.unpack("=9I", info)[8]}

    def close(self, listener: int) -> Answer:
        self._listeners[listener].close()
        return {}

    def idle(self, turns: int) -> Answer:
        """An event loop that never looks at its listener."""
        poller = select.epoll()
        poller.register(self._channel.fileno(), 0)
        for _ in range(turns):
            poller.poll(0.001)
        poller.close()
        return {}

    def send_listener(self, listener: int) -> Answer:
        self._sent = [self._listeners[listener].fileno()]
        return {}

    def receive_listener(self) -> Answer:
        (fd,) = self._received
        return self._keep_listener(socket.socket(fileno=fd))

    # ------------------------------------------------------------ a client

    def connect(
        self,
        address: Answer,
        count: int = 1,
        blocking: bool = True,
        keep: bool = True,
        hears: bool = False,
    ) -> Answer:
        """So many connects, one after the other; errno name (`OK`) → how often.

        `hears`: it reads what the other one says before it goes on.
        """
        place = Address(address)
        stamps, results = [], {}
        for _ in range(count):
            sock = place.socket()
            sock.setblocking(blocking)
            stamp, error = place.connect(sock)
            stamps.append(stamp)
            if hears:
                sock.recv(64)
            name = name_of(error)
            results[name] = results.get(name, 0) + 1
            if keep:
                self._kept.append(sock)
            else:
                sock.close()
        return {"results": results, **summed(stamps)}

    def send(self, connection: int) -> Answer:
        """One byte on a connection of `connect`, by its number."""
        return {"sent": self._kept[connection].send(b"x")}

    def connect_by_children(self, address: Answer, count: int, each: int = 1) -> Answer:
        """So many processes that connect at once and may block; their PIDs."""

        def work() -> Answer:
            return self.connect(address, each, keep=False)

        return {"pids": [self._child(work) for _ in range(count)]}

    def reap(self, pids: Sequence[int]) -> Answer:
        """Wait for children; their own answers."""
        answers = []
        for pid in pids:
            with os.fdopen(self._children.pop(pid)) as pipe:
                answers.append(json.loads(pipe.read()))
            os.waitpid(pid, 0)
        return {"answers": answers}

    def kill(self, pids: Sequence[int]) -> Answer:
        """SIGKILL to children; they are gone on return."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.close(self._children.pop(pid))
            os.waitpid(pid, 0)
        return {}

    # ------------------------------------------------------------ its surroundings

    def become_nobody(self) -> Answer:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        return {}

    def chroot(self, folder: str) -> Answer:
        os.chroot(folder)
        os.chdir("/")
        return {}

    def chdir(self, folder: str) -> Answer:
        os.chdir(folder)
        return {}

    def write(self, path: str, text: str) -> Answer:
        Path(path).write_text(text)
        return {}

    def read(self, path: str) -> Answer:
        return {"text": Path(path).read_text()}

    def loopback_up(self) -> Answer:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            asked = struct.pack("16sH14s", b"lo", 0, b"")
            flags = struct.unpack("16sH14s", fcntl.ioctl(sock, SIOCGIFFLAGS, asked))[1]
            fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | IFF_UP, b""))
        return {}

    # ------------------------------------------------------------ inner workings

    def _listen_raw(self, sock: socket.socket, backlog: int) -> None:
        # Python turns a negative backlog into 0.
        if libc.listen(sock.fileno(), backlog):
            raise OSError(ctypes.get_errno(), "listen")

    def _keep_listener(self, sock: socket.socket) -> Answer:
        sock.setblocking(True)
        self._listeners.append(sock)
        name = sock.getsockname()
        return {
            "listener": len(self._listeners) - 1,
            "inode": os.fstat(sock.fileno()).st_ino,
            "port": name[1] if isinstance(name, tuple) else None,
        }

    def _child(self, work: Callable[[], Answer]) -> int:
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
            self._children[pid] = read
            return pid
        status = 1
        try:
            self._channel.close()
            os.close(read)
            os.write(write, json.dumps(work()).encode())
            status = 0
        finally:
            os._exit(status)


def summed(stamps: Sequence[Stamp]) -> Answer:
    """Sums tell as much as a list does when every one is wanted; a short list is given too."""
    return {
        "count": len(stamps),
        "before_ns": sum(before for before, _ in stamps),
        "after_ns": sum(after for _, after in stamps),
        "stamps": list(stamps) if len(stamps) <= LISTED_MAX else None,
    }


def name_of(error: int) -> str:
    return errno.errorcode[error] if error else "OK"


def main(argv: Optional[Sequence[str]] = None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.siginterrupt(signal.SIGUSR1, False)
    signal.signal(signal.SIGUSR2, lambda *_: None)
    hard = max(DESCRIPTORS_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS_MAX, hard))
    descriptor = int((argv or sys.argv[1:])[0])
    with socket.socket(fileno=descriptor) as channel:
        Commands(channel).serve()


if __name__ == "__main__":
    main()
