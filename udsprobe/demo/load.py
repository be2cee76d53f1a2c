"""The demo's load: bounded requests at a steady rate over a few connections.

Connections are closed and opened again every so many requests, so that
accept4, connect and close are there to see. Prints at the end, as one JSON
line, what it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Optional

from udsprobe.demo import REPLY_BYTES, REQUEST_BYTES
from udsprobe.demo.ending import ending

REQUEST = b"?" * REQUEST_BYTES


@dataclass(frozen=True)
class Plan:
    """What to do: either `count` requests exactly, or until `seconds` are over.

    Attributes:
        rate_per_s: over all connections together.
        requests_per_connection: then it is closed and opened again.
    """

    socket: Path
    connections: int
    rate_per_s: float
    requests_per_connection: int
    count: Optional[int]
    seconds: Optional[float]


class Load:
    """Carries out a plan and counts it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.connects = 0
        self.requests = 0
        self.bytes_out = 0
        self.bytes_in = 0
        self._started = 0

    async def run(self) -> None:
        """Send until the plan is fulfilled or the process is told to end."""
        over = asyncio.ensure_future(ending().wait())
        work = asyncio.gather(*(self._client(n) for n in range(self.plan.connections)))
        either: List[asyncio.Future[Any]] = [over, work]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not work.done():
            work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    def truth(self) -> dict[str, int]:
        """What was counted, by name. `requests` had their whole reply."""
        return {
            "connects": self.connects,
            "requests": self.requests,
            "bytes_out": self.bytes_out,
            "bytes_in": self.bytes_in,
        }

    async def _client(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        pause_s = self.plan.connections / self.plan.rate_per_s
        due = loop.time() + pause_s * number / self.plan.connections
        end = None if self.plan.seconds is None else loop.time() + self.plan.seconds
        while self._more(end):
            reader, writer = await asyncio.open_unix_connection(str(self.plan.socket))
            self.connects += 1
            for _ in range(self.plan.requests_per_connection):
                if not self._more(end):
                    break
                self._started += 1
                # Late requests are not caught up in a burst.
                due = max(due + pause_s, loop.time())
                await asyncio.sleep(due - loop.time())
                await self._request(reader, writer)
            writer.close()
            await writer.wait_closed()

    def _more(self, end: Optional[float]) -> bool:
        if self.plan.count is not None and self._started >= self.plan.count:
            return False
        return end is None or asyncio.get_running_loop().time() < end

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST)
        self.bytes_out += len(REQUEST)
        reply = await reader.readexactly(REPLY_BYTES)
        self.bytes_in += len(reply)
        self.requests += 1


def send(plan: Plan) -> None:
    """Carry out `plan` and print what was done."""
    load = Load(plan)
    try:
        asyncio.run(load.run())
    except (OSError, asyncio.IncompleteReadError) as error:
        # The server ended first, as it does when the demo is interrupted.
        print(json.dumps({**load.truth(), "ended_by": type(error).__name__}), flush=True)
    else:
        print(json.dumps(load.truth()), flush=True)
