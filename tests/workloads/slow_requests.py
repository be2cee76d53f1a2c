"""A server whose requests make exactly the calls that they name, and take as long as they name.

`slow_requests.py threads|loop|handed|halves ADDRESS READY_FILE`: ADDRESS is a path or
`127.0.0.1:PORT`. It serves until its standard input is closed. A request is `REQUEST_BYTES` long
and names a kind and milliseconds; `CALLS` has the calls that the thread makes between receiving and
replying. `threads` serves each connection in a thread of its own, `loop` all of them in one, behind
epoll; `handed` receives in one thread and replies from another; `halves` receives the first half of
a request in a thread that has made many calls, and the rest in a new one, which replies. Knows
nothing of udsprobe.
"""

from __future__ import annotations

import fcntl
import os
import queue
import select
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Callable, Dict, List, Tuple

REQUEST_BYTES = 16
REPLY = b"ok"
MANY = 100
DISK_BYTES = 4096

# Kind → the calls that it makes, by name; `sleep` is whatever the interpreter sleeps with.
CALLS: Dict[str, List[str]] = {
    "quick": [],
    "cpu": [],
    "sleep": ["sleep"],
    "disk": ["pwrite64", "fsync"],
    "pipe": ["write", "read"],
    "upstream": ["sendto", "recvfrom"],
    "lock": ["write", "read", "flock", "flock"],
    "many": ["sleep", *["getppid"] * MANY],
}
SLEEPS = ("clock_nanosleep", "select", "pselect6", "nanosleep")


def request(kind: str, milliseconds: int) -> bytes:
    """What a client sends."""
    return f"{kind} {milliseconds}".ljust(REQUEST_BYTES).encode()


class Work:
    """What requests ask for, with the processes behind the server."""

    def __init__(self, folder: Path) -> None:
        self.file = os.open(folder / "file", os.O_RDWR | os.O_CREAT)
        self.to_child, self.from_child = _child(folder, self.file)
        self.upstream = socket.create_connection(("127.0.0.1", _upstream()))
        self.upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
        self.kinds: Dict[str, Callable[[int], None]] = {
            "quick": lambda ms: None,
            "cpu": self.compute,
            "sleep": lambda ms: time.sleep(ms / 1e3),
            "disk": self.write,
            "pipe": self.ask_child,
            "upstream": self.ask_upstream,
            "lock": self.wait_for_lock,
            "many": self.make_calls,
        }

    def do(self, asked: bytes) -> None:
        """One request."""
        kind, milliseconds = asked.split()
        self.kinds[kind.decode()](int(milliseconds))

    def compute(self, ms: int) -> None:
        """On the CPU, without a system call."""
        end = time.perf_counter() + ms / 1e3
        while time.perf_counter() < end:
            pass

    def write(self, ms: int) -> None:
        """To the disk; how long is the disk's affair."""
        os.pwrite(self.file, b"x" * DISK_BYTES, 0)
        os.fsync(self.file)

    def ask_child(self, ms: int) -> None:
        """Wait for a child's answer."""
        os.write(self.to_child, f"sleep {ms}".ljust(REQUEST_BYTES).encode())
        os.read(self.from_child, 1)

    def ask_upstream(self, ms: int) -> None:
        """Wait for another server."""
        self.upstream.send(request("sleep", ms))
        self.upstream.recv(len(REPLY))

    def wait_for_lock(self, ms: int) -> None:
        """Of a file, which the child holds."""
        os.write(self.to_child, f"hold {ms}".ljust(REQUEST_BYTES).encode())
        os.read(self.from_child, 1)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        fcntl.flock(self.lock, fcntl.LOCK_UN)

    def make_calls(self, ms: int) -> None:
        """A long one first, then more than anybody remembers."""
        time.sleep(ms / 1e3)
        for _ in range(MANY):
            os.getppid()


def _child(folder: Path, file: int) -> Tuple[int, int]:
    """A process that answers on a pipe, at once or while it holds the lock."""
    commands, to_child = os.pipe()
    from_child, answers = os.pipe()
    if os.fork():
        os.close(commands)
        os.close(answers)
        return to_child, from_child
    os.close(to_child)
    os.close(from_child)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    while True:
        asked = os.read(commands, REQUEST_BYTES)
        if not asked:
            os._exit(0)
        what, ms = asked.split()
        if what == b"hold":
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(answers, b"!")
        time.sleep(int(ms) / 1e3)
        if what == b"hold":
            fcntl.flock(lock, fcntl.LOCK_UN)
        else:
            os.write(answers, b"!")


def _upstream() -> int:
    """The port of a server in a process of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    if os.fork():
        listener.close()
        return port
    connection, _ = listener.accept()
    while True:
        asked = connection.recv(REQUEST_BYTES)
        if not asked:
            os._exit(0)
        time.sleep(int(asked.split()[1]) / 1e3)
        connection.send(REPLY)


def serve_one(connection: socket.socket, work: Work) -> None:
    """Until its client leaves."""
    with connection:
        while True:
            asked = connection.recv(REQUEST_BYTES)
            if not asked:
                return
            work.do(asked)
            connection.send(REPLY)


def serve_threads(listener: socket.socket, work: Work) -> None:
    """A thread for each connection."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_one, args=(connection, work), daemon=True).start()


def serve_loop(listener: socket.socket, work: Work) -> None:
    """All connections in this thread."""
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN)
    connections: Dict[int, socket.socket] = {}
    while True:
        for descriptor, _ in poller.poll():
            if descriptor == listener.fileno():
                connection, _ = listener.accept()
                connections[connection.fileno()] = connection
                poller.register(connection, select.EPOLLIN)
                continue
            connection = connections[descriptor]
            asked = connection.recv(REQUEST_BYTES)
            if asked:
                work.do(asked)
                connection.send(REPLY)
            else:
                poller.unregister(connection)
                connections.pop(descriptor).close()


def serve_handed(listener: socket.socket, work: Work) -> None:
    """This thread receives, another one does the work and replies."""
    received: queue.SimpleQueue[Tuple[socket.socket, bytes]] = queue.SimpleQueue()

    def reply() -> None:
        while True:
            connection, asked = received.get()
            work.do(asked)
            connection.send(REPLY)

    threading.Thread(target=reply, daemon=True).start()
    while True:
        connection, _ = listener.accept()
        while True:
            asked = connection.recv(REQUEST_BYTES)
            if not asked:
                break
            received.put((connection, asked))


def serve_halves(listener: socket.socket, work: Work) -> None:
    """Each half of a request in a thread of its own; the first has made many calls before."""
    half = REQUEST_BYTES // 2

    def reply(connection: socket.socket, asked: bytes) -> None:
        asked += connection.recv(half)
        work.do(asked)
        connection.send(REPLY)

    while True:
        connection, _ = listener.accept()
        while True:
            work.make_calls(0)
            asked = connection.recv(half)
            if not asked:
                break
            rest = threading.Thread(target=reply, args=(connection, asked), daemon=True)
            rest.start()
            rest.join()


def listening(address: str) -> socket.socket:
    """At a path or a port."""
    host, _, port = address.partition(":")
    if port:
        return socket.create_server((host, int(port)))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    return listener


def main(style: str, address: str, ready: str) -> None:
    """Serve until standard input is closed."""
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder))
        listener = listening(address)
        styles = {
            "threads": serve_threads,
            "loop": serve_loop,
            "handed": serve_handed,
            "halves": serve_halves,
        }
        threading.Thread(target=styles[style], args=(listener, work), daemon=True).start()
        Path(ready).touch()
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
