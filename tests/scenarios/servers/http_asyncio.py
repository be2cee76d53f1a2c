"""An HTTP server on asyncio's streams: ADDRESS [option=value …]. ADDRESS: a path or HOST:PORT.

sleep_ms=T asyncio.sleep · spin_ms=T computes · stuck_ms=T time.sleep in the loop · body=N bytes
mutex_ms=T holds an asyncio.Lock for T ms
lock_ms=T a thread holds a lock for T ms · thread_ms=T one of threads=N sleeps for T ms
process_ms=T one of processes=N does so
upstream=ADDRESS asks an HTTP server first
forget=1 an event that nobody sets · drop=1 an error, and the connection is closed
status=N replies with that one, of a failure
pieces=N, piece_ms=T the body in N chunks, each T ms after what was sent before · events=1 of events
hang_after=N, hang_at=ADDRESS after N requests the loop waits for bytes from there
pool=N with at most N connections to it; blocking=1 without await, with a time limit
backlog=N · leak=1 keeps a descriptor open for each request · one_in=N only each Nth is slow
pause_every_ms=E, pause_ms=T: housekeeping that sleeps in the loop
log=PATH a line for each request to a datagram socket, from the loop
knobs=FILE other options, a line each, which it reads at SIGUSR2
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Dict, List, Optional, Tuple

Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


def blocking_connect(address: str) -> socket.socket:
    """With a time limit, as most clients have; to a path or HOST:PORT."""
    if address.startswith("/"):
        upstream = socket.socket(socket.AF_UNIX)
        upstream.settimeout(60)
        upstream.connect(address)
        return upstream
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=60)


def log_at(path: str) -> Optional[socket.socket]:
    """None without a path."""
    if not path:
        return None
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.connect(path)
    return log


class FailedRequest(Exception):
    """Its text is the status of the reply."""


class Service:
    """One process of it."""

    def __init__(self, options: Dict[str, str]) -> None:
        self._options = options
        self._reply = reply_of(int(options.get("body", 64)))
        self._count = itertools.count()
        self._lock, self._mutex = threading.Lock(), asyncio.Lock()
        self._leaked: List[int] = []
        self._idle: List[Streams] = []
        self._threads = ThreadPoolExecutor(int(options.get("threads", 4)))
        # They are started with the first requests.
        self._processes = ProcessPoolExecutor(int(options.get("processes", 3)))
        self._pool = asyncio.Semaphore(int(options.get("pool", 100000)))
        self._log = log_at(options.get("log", ""))
        self._upstream: Optional[socket.socket] = None

    def _ms(self, name: str) -> float:
        return float(self._options.get(name, 0)) / 1000

    async def work(self) -> None:
        """What a request costs."""
        number = next(self._count)
        if number >= int(self._options.get("hang_after", 1 << 30)):
            print("hangs", flush=True)
            hang(self._options["hang_at"])
        if number % int(self._options.get("one_in", 1)):
            return
        if self._log is not None:
            self._log.send(b"<13>a request")
        if "spin_ms" in self._options:
            spin(self._ms("spin_ms"))
        if "stuck_ms" in self._options:
            time.sleep(self._ms("stuck_ms"))
        if "sleep_ms" in self._options:
            await asyncio.sleep(self._ms("sleep_ms"))
        if "mutex_ms" in self._options:
            async with self._mutex:
                await asyncio.sleep(self._ms("mutex_ms"))
        if "forget" in self._options:
            await asyncio.Event().wait()
        if "drop" in self._options:
            raise ConnectionError("it fails")
        if "status" in self._options:
            raise FailedRequest(self._options["status"])
        if "lock_ms" in self._options:
            await asyncio.get_running_loop().run_in_executor(None, self._hold_lock)
        if "thread_ms" in self._options:
            asleep = (time.sleep, self._ms("thread_ms"))
            await asyncio.get_running_loop().run_in_executor(self._threads, *asleep)
        if "process_ms" in self._options:
            asleep_there = (export, self._ms("process_ms"))
            await asyncio.get_running_loop().run_in_executor(self._processes, *asleep_there)
        if "leak" in self._options:
            self._leaked.append(os.open("/dev/null", os.O_RDONLY))
        if "upstream" in self._options:
            async with self._pool:
                await self._ask()

    def _hold_lock(self) -> None:
        with self._lock:
            time.sleep(self._ms("lock_ms"))

    def _ask_without_await(self) -> None:
        if self._upstream is None:
            self._upstream = blocking_connect(self._options["upstream"])
        self._upstream.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self._upstream.recv(65536)

    async def _ask(self) -> None:
        if "blocking" in self._options:
            self._ask_without_await()
            return
        streams = self._idle.pop() if self._idle else await connect(self._options["upstream"])
        streams[1].write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        head = await streams[0].readuntil(b"\r\n\r\n")
        length = head.lower().split(b"content-length:")[1].split(b"\r\n")[0]
        await streams[0].readexactly(int(length))
        self._idle.append(streams)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                try:
                    await self.work()
                    if "pieces" in self._options:
                        await self._in_pieces(writer)
                    else:
                        writer.write(self._reply)
                except FailedRequest as failure:
                    writer.write(reply_of(0, f"{failure} Failed"))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _in_pieces(self, writer: asyncio.StreamWriter) -> None:
        events = "events" in self._options
        kind = "text/event-stream" if events else "text/plain"
        piece = chunk(b"data: something happened\n\n" if events else b"a part of the page\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for _ in range(int(self._options["pieces"])):
            await asyncio.sleep(self._ms("piece_ms"))
            writer.write(piece)
        writer.write(chunk(b""))

    async def keep_house(self) -> None:
        """Now and then nothing else runs."""
        while self._options.get("pause_ms"):
            await asyncio.sleep(self._ms("pause_every_ms"))
            time.sleep(self._ms("pause_ms"))


def export(seconds: float) -> None:
    """What a process of the pool does for a request."""
    time.sleep(seconds)


def reply_of(size: int, status: str = "200 OK") -> bytes:
    """An HTTP reply with `size` bytes."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n\r\n".encode() + b"x" * size


def chunk(body: bytes) -> bytes:
    """Of a reply whose length is not known; an empty one ends it."""
    return b"%x\r\n%s\r\n" % (len(body), body)


def spin(seconds: float) -> None:
    """Compute."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(200))


async def connect(address: str) -> Streams:
    """To a path or HOST:PORT."""
    if address.startswith("/"):
        return await asyncio.open_unix_connection(address)
    host, port = address.rsplit(":", 1)
    return await asyncio.open_connection(host, int(port))


def hang(address: str) -> None:
    """Wait for bytes that nobody sends, as a library without asyncio does."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as upstream:
        upstream.sendall(b"GET / HTTP/1.0\r\n\r\n")
        upstream.recv(64)


def turn_knobs(options: Dict[str, str]) -> None:
    """Read those that have changed."""
    with open(options["knobs"]) as changed:
        options.update(line.rstrip("\n").split("=", 1) for line in changed)


async def main(address: str, options: Dict[str, str]) -> None:
    """Serve until the process is ended."""
    service = Service(options)
    if "knobs" in options:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, turn_knobs, options)
    backlog = int(options.get("backlog", 100))
    if address.startswith("/"):
        server = await asyncio.start_unix_server(service.serve, address, backlog=backlog)
    else:
        host, port = address.rsplit(":", 1)
        server = await asyncio.start_server(service.serve, host, int(port), backlog=backlog)
    house = asyncio.ensure_future(service.keep_house())
    async with server:
        await server.serve_forever()
    await house


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], dict(text.split("=", 1) for text in sys.argv[2:])))
