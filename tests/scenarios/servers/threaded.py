"""A blocking HTTP server with threads: ADDRESS [option=value …]. ADDRESS: a path or HOST:PORT.

One thread accepts and hands each connection to a thread of its own.
accept_pause_ms=T the acceptor sleeps after each accept · pool=N at most N connections at a time,
the next is accepted when one ends · deadlock_after=N the acceptor waits for ever for a lock after
N connections · lock_ms=T each request holds one lock for T ms · sleep_ms=T · spin_ms=T · body=N
worker_ms=T one other thread computes T ms for each request · helper_ms=T one other process does,
which an eventfd wakes · child_ms=T a process is started for each request and computes T ms
gil_ms=T sleeps for T ms and keeps the interpreter's lock meanwhile
parts=2 head and body in a send each · nodelay=1 TCP_NODELAY
upstream=ADDRESS asks an HTTP server first, over pool_to=N connections that all threads share;
ask_parts=2 in two sends · asks=N times, one after the other
lookup=NAME looks its address up
backlog=N · log=PATH a line for each request to a datagram socket; log_to=PATH of 2,000 bytes to a
pipe; log_lock=1 by one thread at a time
speaks=1 as daytime does (RFC 867): a line for each connection, which is closed; nothing is read
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from typing import Dict, Optional

CHILD = "import sys, time\nwhile time.thread_time() < float(sys.argv[1]): pass"


class Service:
    """The listener and its threads."""

    def __init__(self, address: str, options: Dict[str, str]) -> None:
        self._options = options
        size = int(options.get("body", 64))
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"
        body = b"x" * size
        two = options.get("parts") == "2"
        self._reply = (head.encode(), body) if two else (head.encode() + body,)
        self._lock = threading.Lock()
        self._never = threading.Lock()
        self._log = log_at(options.get("log", ""))
        self._pipe = os.open(options["log_to"], os.O_WRONLY) if "log_to" in options else None
        self._seats = threading.Semaphore(int(options.get("pool", 100000)))
        self._helper = Helper(self._ms("helper_ms")) if "helper_ms" in options else None
        self._tasks: queue.Queue[threading.Event] = queue.Queue()
        threading.Thread(target=self._take_tasks, daemon=True).start()
        self._pool: queue.Queue[socket.socket] = queue.Queue()
        for _ in range(int(options.get("pool_to", 0))):
            upstream = connect(options["upstream"])
            self._no_delay(upstream)
            self._pool.put(upstream)
        self._listener = listen(address, int(options.get("backlog", 128)))

    def _ms(self, name: str) -> float:
        return float(self._options.get(name, 0)) / 1000

    def _no_delay(self, connection: socket.socket) -> None:
        if int(self._options.get("nodelay", 0)):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        """Accept for ever."""
        accepted = 0
        while True:
            self._seats.acquire()
            if accepted == int(self._options.get("deadlock_after", -1)):
                self._never.acquire()
                self._never.acquire()
            connection, _ = self._listener.accept()
            accepted += 1
            if "speaks" in self._options:
                with connection:
                    send(connection, time.ctime().encode() + b"\r\n")
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError:  # of a limit: as socketserver does
                connection.close()
            if self._ms("accept_pause_ms"):
                time.sleep(self._ms("accept_pause_ms"))

    def _serve(self, connection: socket.socket) -> None:
        self._no_delay(connection)
        with connection:
            have = b""
            while True:
                chunk = receive(connection)
                if not chunk:
                    break
                have += chunk
                if not have.endswith(b"\r\n\r\n"):
                    continue
                have = b""
                self._work()
                if not all(send(connection, part) for part in self._reply):
                    break
        self._seats.release()

    def _write_log(self) -> None:
        if self._log is not None:
            self._log.send(b"<13>a request")
        if self._pipe is not None:
            os.write(self._pipe, b"x" * 1999 + b"\n")

    def _work(self) -> None:
        with self._lock if "log_lock" in self._options else contextlib.nullcontext():
            self._write_log()
        if "lookup" in self._options:
            socket.gethostbyname(self._options["lookup"])
        if self._ms("lock_ms"):
            with self._lock:
                time.sleep(self._ms("lock_ms"))
        if self._ms("sleep_ms"):
            time.sleep(self._ms("sleep_ms"))
        if self._ms("spin_ms"):
            spin(self._ms("spin_ms"))
        if "upstream" in self._options:
            for _ in range(int(self._options.get("asks", 1))):
                self._ask()
        if self._helper is not None:
            self._helper.ask()
        if self._ms("child_ms"):
            command = [sys.executable, "-S", "-c", CHILD, str(self._ms("child_ms"))]
            subprocess.run(command, check=True, stdout=subprocess.PIPE)
        if self._ms("gil_ms"):
            ctypes.PyDLL(None).usleep(int(1e6 * self._ms("gil_ms")))
        if self._ms("worker_ms"):
            done = threading.Event()
            self._tasks.put(done)
            done.wait()

    def _ask(self) -> None:
        connection = self._pool.get()
        line, fields = b"GET / HTTP/1.1\r\n", b"Host: a\r\n\r\n"
        two = self._options.get("ask_parts") == "2"
        for part in (line, fields) if two else (line + fields,):
            connection.sendall(part)
        connection.recv(65536)
        self._pool.put(connection)

    def _take_tasks(self) -> None:
        while True:
            done = self._tasks.get()
            spin(self._ms("worker_ms"))
            done.set()


class Helper:
    """A process that computes for whoever asks, one after the other."""

    def __init__(self, seconds: float) -> None:
        self._turn = threading.Lock()
        self._asked, self._done = os.eventfd(0), os.eventfd(0)
        if os.fork() == 0:
            while os.eventfd_read(self._asked):
                spin(seconds)
                os.eventfd_write(self._done, 1)

    def ask(self) -> None:
        """Wait until it has computed."""
        with self._turn:
            os.eventfd_write(self._asked, 1)
            os.eventfd_read(self._done)


def spin(seconds: float) -> None:
    """Compute; CPU time, whoever takes turns with it."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(200))


def connect(address: str) -> socket.socket:
    """To a path or HOST:PORT."""
    if address.startswith("/"):
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(address)
        return upstream
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)))


def log_at(path: str) -> Optional[socket.socket]:
    """None without a path."""
    if not path:
        return None
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.connect(path)
    return log


def receive(connection: socket.socket) -> bytes:
    """What came; nothing at its end."""
    try:
        return connection.recv(65536)
    except ConnectionError:
        return b""


def send(connection: socket.socket, reply: bytes) -> bool:
    """Whether the client took it."""
    try:
        connection.sendall(reply)
    except ConnectionError:
        return False
    return True


def listen(address: str, backlog: int) -> socket.socket:
    """At a path or HOST:PORT."""
    if address.startswith("/"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
    else:
        host, port = address.rsplit(":", 1)
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
    listener.listen(backlog)
    return listener


if __name__ == "__main__":
    Service(sys.argv[1], dict(text.split("=", 1) for text in sys.argv[2:])).run()
