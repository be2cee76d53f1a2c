"""Starts `upstream_actor.py` as a process of its own and talks to it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import List

from tests.patience import PATIENCE_S
from tests.workloads.commanded import Answer, Commanded

ACTOR = Path(__file__).resolve().parent / "upstream_actor.py"
KINDS = ("stream", "seqpacket", "tcp4", "tcp6")
HOSTS = {"tcp4": "127.0.0.1", "tcp6": "::1"}


class Actor(Commanded):
    """A client or a server that acts at our word, called `name` in its comm."""

    def __init__(self, name: str) -> None:
        super().__init__(ACTOR)
        self.name = name

    def begin(self) -> None:
        self.do("call_yourself", name=self.name)

    def finish(self) -> Answer:
        """The answer to what was asked."""
        answer = super().finish()
        assert "error" not in answer, f"{self.name}: {answer}"
        return answer

    def hand_over(self, number: int, to: Actor) -> int:
        """Pass a socket by SCM_RIGHTS; what the other one calls it."""
        self.do("give", socket_number=number)
        try:
            taken: int = to.do("take", fds=self.inbox)["socket"]
            return taken
        finally:
            for fd in self.inbox:
                os.close(fd)

    def wait_until_asleep(self) -> None:
        """Until it sleeps in a send call for want of room."""
        give_up_at = time.monotonic() + PATIENCE_S
        where = Path(f"/proc/{self.pid}/wchan")
        while where.read_text() not in ("sock_alloc_send_pskb", "wait_woken"):
            assert time.monotonic() < give_up_at, where.read_text()
            time.sleep(0.001)


class Place:
    """A listener of `server` of one kind, and what the report calls it.

    Attributes:
        address: where clients connect.
        shown: the address in a report.
        transport: `unix` or `tcp`.
    """

    def __init__(self, server: Actor, kind: str, folder: Path, name: str = "s") -> None:
        if kind in HOSTS:
            heard = server.do("listen", address={"host": HOSTS[kind], "port": 0})
            self.address = {"host": HOSTS[kind], "port": heard["port"]}
            host = f"[{HOSTS[kind]}]" if kind == "tcp6" else HOSTS[kind]
            self.shown = f"{host}:{heard['port']}"
        else:
            self.shown = str(folder / name)
            self.address = {"unix": self.shown, "kind": kind}
            heard = server.do("listen", address=self.address)
        self.transport = "tcp" if kind in HOSTS else "unix"
        self.listener: int = heard["socket"]


def connected(client: Actor, place: Place, count: int = 1, waits: bool = True) -> List[int]:
    """Numbers of so many connections of `client` to `place`."""
    answer = client.do("connect", address=place.address, count=count, waits=waits)
    sockets: List[int] = answer["sockets"]
    return sockets
