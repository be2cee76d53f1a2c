"""What goes on while the programs are taken away, one after the other, is no harm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from tests.kernel.tool import Attached

pytestmark = [pytest.mark.root]

# Asks itself, over 40 connections at once: each has one request, which takes 20 ms.
ASKS_ITSELF = """
import asyncio, os, sys

async def serve(reader, writer):
    await reader.read(100)
    await asyncio.sleep(0.02)
    writer.write(b"reply")
    writer.close()

async def ask(port):
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"request")
        await reader.read()
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=100)
    port = server.sockets[0].getsockname()[1]
    asked = [asyncio.ensure_future(ask(port)) for _ in range(40)]
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)

asyncio.run(main())
"""


@pytest.fixture
def program() -> Iterator[int]:
    argv = [sys.executable, "-c", ASKS_ITSELF]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, text=True, **pipes) as started:
        assert started.stdout is not None and started.stdin is not None
        assert started.stdout.readline() == "ready\n"
        yield started.pid
        started.stdin.close()


@pytest.mark.parametrize("again", range(3))
def test_requests_that_are_answered_meanwhile_are_none_without_a_reply(
    program: int, folder: Path, again: int
) -> None:
    """A reply that is no more seen, and the end of its connection that still is."""
    with Attached(["--pid", str(program), "--duration", "1"], folder, None) as watched:
        pass
    (served,) = watched.report["requests"]["served_by"]
    (asked,) = watched.report["requests"]["upstream"]
    assert served["count"] > 0 and asked["count"] > 0
    assert (served["dropped"]["count"], served["given_up"]["count"]) == (0, 0)
    assert (asked["dropped"]["count"], asked["given_up"]["count"]) == (0, 0)
