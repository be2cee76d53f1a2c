"""A client or a server that makes exactly the requests it is told, with clocks of its own.

Started with the number of a SEQPACKET descriptor: a request is one JSON
object, and so is its answer, which is sent when the thing is done. Times are
CLOCK_MONOTONIC in ns. Knows nothing of udsprobe.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import selectors
import socket
import struct
import sys
import termios
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

MESSAGE_MAX = 262_144
DESCRIPTORS_MAX = 4096
KINDS = {"stream": socket.SOCK_STREAM, "seqpacket": socket.SOCK_SEQPACKET}
SIOCOUTQ = termios.TIOCOUTQ
PR_SET_NAME = 15
Answer = Dict[str, Any]


def made(address: Mapping[str, Any]) -> Tuple[socket.socket, Any]:
    """An unconnected socket and where it goes: `{"unix", "kind"}` or `{"host", "port"}`."""
    if "unix" in address:
        return socket.socket(socket.AF_UNIX, KINDS[address["kind"]]), address["unix"]
    family = socket.AF_INET6 if ":" in address["host"] else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM), (address["host"], address["port"])


def at_once(sock: socket.socket) -> socket.socket:
    """Pieces of TCP wait for no acknowledgement."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


# include/uapi/linux/tcp.h, struct tcp_info: tcpi_rwnd_limited, in µs
RWND_LIMITED_AT = 176


def window_full_us(sock: socket.socket) -> int:
    """How long the reader's receive window has kept bytes here; of TCP."""
    told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RWND_LIMITED_AT + 8)
    return int(struct.unpack_from("=Q", told, RWND_LIMITED_AT)[0])


def sent_at_once(sock: socket.socket, data: bytes) -> int:
    """0 when there is no room."""
    try:
        return sock.send(data)
    except BlockingIOError:
        return 0


def sent_whole(sock: socket.socket, data: bytes, pieces: int) -> None:
    size = -(-len(data) // pieces)
    for at in range(0, len(data), size):
        sock.sendall(data[at : at + size])


def wait_readable(*sockets: socket.socket) -> None:
    poller = select.poll()
    for sock in sockets:
        poller.register(sock, select.POLLIN)
    poller.poll(60_000)


class Replies:
    """Answers every `request` bytes of a connection with `reply` bytes, until it is closed."""

    def __init__(self, request: int, reply: int, pieces: int, delay_ms: float) -> None:
        self._request, self._reply = request, bytes(reply)
        self._pieces, self._delay_ms = pieces, delay_ms
        self._have: Dict[socket.socket, int] = {}
        self.answered = self.worked_ns = 0

    def serve(self, sock: socket.socket) -> bool:
        """One readable moment; False at the end."""
        data = sock.recv(65536)
        begun_ns = time.monotonic_ns()
        if not data:
            return False
        have = self._have.get(sock, 0) + len(data)
        while have >= self._request:
            have -= self._request
            if self._delay_ms:
                time.sleep(self._delay_ms / 1000)
            self.worked_ns += time.monotonic_ns() - begun_ns
            sent_whole(sock, self._reply, self._pieces)
            self.answered += 1
        self._have[sock] = have
        return True


class Commands:
    """The commands: each public method is one; its result is the answer."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._sockets: List[socket.socket] = []
        self._children: List[int] = []
        self._received: List[int] = []
        self._sent: List[int] = []

    def serve_commands(self) -> None:
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
                answer = {"error": str(error)}
            socket.send_fds(self._channel, [json.dumps(answer).encode()], self._sent)

    # ------------------------------------------------------------ a server

    def listen(self, address: Answer) -> Answer:
        sock, place = made(address)
        if "unix" not in address:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
        sock.listen(512)
        name = sock.getsockname()
        return {"socket": self._keep(sock), "port": name[1] if isinstance(name, tuple) else None}

    def serve_restarted(self, address: Answer, rounds: int) -> Answer:
        """A server that is started anew after every request; says when it listens."""
        for _ in range(rounds):
            number = self.listen(address)["socket"]
            self._channel.send(b"{}")
            self.serve([number], 1)
            self._sockets[number].close()
            os.unlink(address["unix"])
        return {}

    def listen_many(self, folder: str, count: int) -> Answer:
        for number in range(count):
            self.listen({"unix": f"{folder}/{number}", "kind": "stream"})
        return {}

    def serve(
        self,
        listeners: Sequence[int],
        connections: int,
        request: int = 16,
        reply: int = 16,
        pieces: int = 1,
        delay_ms: float = 0,
        sockets: Sequence[int] = (),
    ) -> Answer:
        """Accepts so many (and takes `sockets` as they are), until all of them are closed; its
        time from the last bytes of each request to the first of its reply."""
        replies = Replies(request, reply, pieces, delay_ms)
        poller = selectors.DefaultSelector()
        for number in listeners:
            poller.register(self._sockets[number], selectors.EVENT_READ, "listener")
        for number in sockets:
            poller.register(self._sockets[number], selectors.EVENT_READ)
        left = connections + len(sockets)
        while left:
            for key, _ in poller.select():
                sock: Any = key.fileobj
                if key.data == "listener":
                    poller.register(at_once(sock.accept()[0]), selectors.EVENT_READ)
                elif not replies.serve(sock):
                    poller.unregister(sock)
                    sock.close()
                    left -= 1
        poller.close()
        return {"answered": replies.answered, "worked_ns": replies.worked_ns}

    def fork_workers(self, listener: int, connections: Sequence[int]) -> Answer:
        """A child for each share: it accepts so many and serves them; their PIDs."""
        for share in connections:
            pid = os.fork()
            if not pid:
                self._channel.close()
                set_name(f"worker-{share}")
                # Who polls for what others take as well is left waiting in accept().
                taken = [self.accept(listener)["socket"] for _ in range(share)]
                self.serve([], 0, sockets=taken)
                os._exit(0)
            self._children.append(pid)
        return {"pids": self._children}

    def reap(self) -> Answer:
        while self._children:
            os.waitpid(self._children.pop(), 0)
        return {}

    def accept(self, listener: int) -> Answer:
        return {"socket": self._keep(self._sockets[listener].accept()[0])}

    def drain(self, socket_number: int, wanted: int, after_ms: float) -> Answer:
        """Busy with something else, then reads so many bytes in small pieces."""
        time.sleep(after_ms / 1000)
        taken = 0
        while taken < wanted:
            taken += len(self._sockets[socket_number].recv(16384))
        return {"taken": taken}

    def read(self, socket_number: int, size: int) -> Answer:
        return {"taken": len(self._sockets[socket_number].recv(size))}

    def give(self, socket_number: int) -> Answer:
        self._sent = [self._sockets[socket_number].fileno()]
        return {}

    def take(self) -> Answer:
        return {"socket": self._keep(socket.socket(fileno=self._received.pop()))}

    # ------------------------------------------------------------ a client

    def connect(self, address: Answer, count: int = 1, waits: bool = True) -> Answer:
        """So many connections; `waits` false: EINPROGRESS, then the poller says it is done."""
        opened, results = [], []
        for _ in range(count):
            sock, place = made(address)
            sock.setblocking(waits)
            results.append(sock.connect_ex(place))
            if not waits:
                poller = selectors.DefaultSelector()
                poller.register(sock, selectors.EVENT_WRITE)
                poller.select()
                poller.close()
                sock.setblocking(True)
            opened.append(self._keep(at_once(sock)))
        return {"sockets": opened, "results": results}

    def connect_many(self, folder: str, count: int) -> Answer:
        opened: List[int] = []
        for number in range(count):
            opened += self.connect({"unix": f"{folder}/{number}", "kind": "stream"})["sockets"]
        return {"sockets": opened}

    def ask(
        self,
        sockets: Sequence[int],
        turns: int,
        request: int = 16,
        reply: int = 16,
        pieces: int = 1,
        read_max: int = 65536,
        polls: int = 0,
    ) -> Answer:
        """So many requests on each; the time from the first send to the first bytes back.

        Args:
            polls: descriptors that it polls before each receive call, for up to a minute: that
                one, and sockets that nothing comes at.
        """
        total_ns = longest_ns = reads = 0
        data = bytes(request)
        quiet = [socket.socketpair() for _ in range(polls - 1)]
        for _ in range(turns):
            for number in sockets:
                sock = self._sockets[number]
                before = time.monotonic_ns()
                sent_whole(sock, data, pieces)
                if polls:
                    wait_readable(sock, *(each for each, _ in quiet))
                have = len(sock.recv(read_max))
                took = time.monotonic_ns() - before
                reads += 1
                while have < reply:
                    have += len(sock.recv(read_max))
                    reads += 1
                total_ns, longest_ns = total_ns + took, max(longest_ns, took)
        count = turns * len(sockets)
        return {"count": count, "total_ns": total_ns, "longest_ns": longest_ns, "reads": reads}

    def ask_and_sleep(self, sockets: Sequence[int], turns: int, sleep_ms: float) -> Answer:
        """So many requests on each, all at once; asleep elsewhere once all answers are there.

        Until a receive call begins, its answer was there for `lay_ns` at least, and for no longer
        than `asked_ns` since its request was sent; both of all of them together.
        """
        lay_ns = asked_ns = 0
        asked = [self._sockets[number] for number in sockets]
        for _ in range(turns):
            sent_ns = []
            for sock in asked:
                sent_ns.append(time.monotonic_ns())
                sock.sendall(bytes(16))
            for sock in asked:
                select.select([sock], [], [])
            there_ns = time.monotonic_ns()
            time.sleep(sleep_ms / 1000)
            for sock, at_ns in zip(asked, sent_ns):
                lay_ns += time.monotonic_ns() - there_ns
                sock.recv(65536)
                asked_ns += time.monotonic_ns() - at_ns
        return {"count": turns * len(asked), "lay_ns": lay_ns, "asked_ns": asked_ns}

    def send(self, socket_number: int, size: int) -> Answer:
        """One blocking send: its wall time."""
        sock, data = self._sockets[socket_number], bytes(size)
        sock.setblocking(True)
        before = time.monotonic_ns()
        sent = sock.send(data)
        return {"sent": sent, "took_ns": time.monotonic_ns() - before}

    def fill(self, socket_number: int, size: int, more: int = 0) -> Answer:
        """Non-blocking sends until one is refused, and so many more that are."""
        sock, data = self._sockets[socket_number], bytes(size)
        sock.setblocking(False)
        sent = refused = 0
        while refused <= more:
            bytes_sent = sent_at_once(sock, data)
            sent += bytes_sent
            refused += not bytes_sent
        return {"sent": sent, "refused": refused}

    def queues(self, socket_number: int) -> Answer:
        """What the kernel tells the owner of both queues, and the inode."""
        sock = self._sockets[socket_number]
        asked = {"outq": SIOCOUTQ, "inq": termios.FIONREAD}
        found = {
            name: struct.unpack("=i", fcntl.ioctl(sock, number, bytes(4)))[0]
            for name, number in asked.items()
        }
        limits = {
            "sndbuf": sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
            "rcvbuf": sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
        }
        return {**found, **limits, "inode": os.fstat(sock.fileno()).st_ino}

    def window(self, socket_number: int) -> Answer:
        """How long the reader's window was full so far, as the kernel tells the sender."""
        return {"full_us": window_full_us(self._sockets[socket_number])}

    def set_buffer(self, socket_number: int, option: str, size: int) -> Answer:
        """`SO_SNDBUF` or `SO_RCVBUF`."""
        self._sockets[socket_number].setsockopt(socket.SOL_SOCKET, getattr(socket, option), size)
        return {}

    def close(self, sockets: Sequence[int]) -> Answer:
        for number in sockets:
            self._sockets[number].close()
        return {}

    def call_yourself(self, name: str) -> Answer:
        set_name(name)
        return {}

    def _keep(self, sock: socket.socket) -> int:
        self._sockets.append(sock)
        return len(self._sockets) - 1


def set_name(name: str) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def main(argv: Optional[Sequence[str]] = None) -> None:
    hard = max(DESCRIPTORS_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS_MAX, hard))
    descriptor = int((argv or sys.argv[1:])[0])
    with socket.socket(fileno=descriptor) as channel:
        Commands(channel).serve_commands()


if __name__ == "__main__":
    main()
