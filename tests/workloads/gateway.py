"""A service that asks another one and waits for timers, and knows how long it did either.

    gateway.py upstream PATH            answers each request after the time it names
    gateway.py loop PATH UPSTREAM       an asyncio event loop
    gateway.py executor PATH UPSTREAM   asyncio; the asking is left to threads
    gateway.py sleeper PATH UPSTREAM    an asyncio event loop whose own work is to sleep in it

A request is `%04d%04d%04d` in ms: the other service's time, an own timer, own
work, in this order. A gateway says a line when it listens, and ends with its
stdin, with its account as JSON. Knows nothing of udsprobe.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from typing import Dict, Tuple

FIELDS, WIDTH = 3, 4
SIZE = FIELDS * WIDTH


def request(upstream_ms: int = 0, timer_ms: int = 0, work_ms: int = 0) -> bytes:
    return b"%04d%04d%04d" % (upstream_ms, timer_ms, work_ms)


def fields(data: bytes) -> Tuple[int, int, int]:
    upstream_ms, timer_ms, work_ms = (int(data[at : at + WIDTH]) for at in range(0, SIZE, WIDTH))
    return upstream_ms, timer_ms, work_ms


class Account:
    """Nanoseconds by what they went to, of all requests together."""

    def __init__(self) -> None:
        self.totals: Dict[str, int] = {"requests": 0, "upstream": 0, "timer": 0, "work": 0}

    @contextlib.contextmanager
    def of(self, what: str):  # type: ignore[no-untyped-def]
        began = time.monotonic_ns()
        yield
        self.totals[what] += time.monotonic_ns() - began


class Gateway:
    """Each connection of a client has one to the other service."""

    def __init__(self, upstream: str, mode: str) -> None:
        self._upstream = upstream
        self._in_threads = mode == "executor"
        self._work = time.sleep if mode == "sleeper" else spin
        self.account = Account()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other = socket.socket(socket.AF_UNIX)
        other.connect(self._upstream)
        other.setblocking(self._in_threads)
        with other, contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                await self._answer(await reader.readexactly(SIZE), other)
                writer.write(b"x" * SIZE)
        writer.close()

    async def _answer(self, data: bytes, other: socket.socket) -> None:
        upstream_ms, timer_ms, work_ms = fields(data)
        if upstream_ms:
            with self.account.of("upstream"):
                await self._ask(data, other)
        if timer_ms:
            with self.account.of("timer"):
                await asyncio.sleep(timer_ms / 1000)
        if work_ms:
            with self.account.of("work"):
                self._work(work_ms / 1000)
        self.account.totals["requests"] += 1

    async def _ask(self, data: bytes, other: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        if self._in_threads:
            await loop.run_in_executor(None, ask_and_wait, data, other)
            return
        await loop.sock_sendall(other, data)
        await loop.sock_recv(other, SIZE)


def spin(seconds: float) -> None:
    end_ns = time.monotonic_ns() + int(seconds * 1e9)
    while time.monotonic_ns() < end_ns:
        pass


def ask_and_wait(data: bytes, other: socket.socket) -> None:
    other.sendall(data)
    other.recv(SIZE)


async def answer_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            await asyncio.sleep(fields(await reader.readexactly(SIZE))[0] / 1000)
            writer.write(b"y" * SIZE)
    writer.close()


async def until_stdin_ends() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, lambda: os.read(0, 1) or ended.set())
    await ended.wait()


async def main(mode: str, path: str, upstream: str = "") -> None:
    gateway = Gateway(upstream, mode)
    handler = answer_late if mode == "upstream" else gateway.serve
    server = await asyncio.start_unix_server(handler, path)
    print("ready", flush=True)
    await until_stdin_ends()
    print(json.dumps(gateway.account.totals), flush=True)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
