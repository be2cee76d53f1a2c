"""The demo's server: answers each 64-byte request with 1,024 bytes, on a Unix socket.

Ends at SIGTERM, SIGINT or when its standard input closes, so it cannot
outlive the process that started it. Prints two JSON lines: where it listens,
and at the end what it did.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Mapping, Set

from udsprobe.demo import REPLY_BYTES, REQUEST_BYTES
from udsprobe.demo.ending import ending

REPLY = b"." * REPLY_BYTES


class Server:
    """Counts of one server's life: connections accepted, requests answered, bytes."""

    def __init__(self) -> None:
        self.accepted = 0
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._connections: Set[asyncio.Task[None]] = set()

    async def run(self, path: Path) -> None:
        """Serve on `path` until told to end."""
        over = ending()
        server = await asyncio.start_unix_server(self._accepted, path=str(path), backlog=128)
        _say({"socket": str(path), "pid": os.getpid()})
        await over.wait()
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def truth(self) -> dict[str, int]:
        """What was counted, by name."""
        return {
            "accepted": self.accepted,
            "requests": self.requests,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
        }

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        connection = asyncio.ensure_future(self._converse(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await reader.readexactly(REQUEST_BYTES)
                self.requests += 1
                self.bytes_in += len(request)
                writer.write(REPLY)
                self.bytes_out += len(REPLY)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def serve() -> None:
    """Run a server in a directory of its own, removed at the end."""
    server = Server()
    with tempfile.TemporaryDirectory(prefix="udsprobe-demo-") as directory:
        asyncio.run(server.run(Path(directory) / "demo.sock"))
    _say(server.truth())


def _say(document: Mapping[str, object]) -> None:
    print(json.dumps(document), flush=True)
