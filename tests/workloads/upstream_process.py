"""Starts `upstream_actor.py` as a process of its own and talks to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from tests.patience import PATIENCE_S

ACTOR = Path(__file__).resolve().parent / "upstream_actor.py"
MESSAGE_MAX = 262_144
KINDS = ("stream", "seqpacket", "tcp4", "tcp6")
HOSTS = {"tcp4": "127.0.0.1", "tcp6": "::1"}
Answer = Dict[str, Any]


class Actor:
    """A client or a server that acts at our word, called `name` in its comm.

    Attributes:
        pid: its process id.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Actor:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(PATIENCE_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(ACTOR), str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )
        self.pid = self._process.pid
        self.do("call_yourself", name=self.name)
        return self

    def __exit__(self, failed: Optional[type], *_: object) -> None:
        self._channel.close()
        if failed is not None:  # it may be in a call that nothing will end
            self._process.kill()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def do(self, command: str, fds: Sequence[int] = (), **arguments: Any) -> Answer:
        """Its answer, which comes when it is done."""
        self.start(command, fds, **arguments)
        return self.finish()

    def start(self, command: str, fds: Sequence[int] = (), **arguments: Any) -> None:
        """Ask, and do not wait."""
        request = json.dumps({"do": command, **arguments}).encode()
        socket.send_fds(self._channel, [request], list(fds))

    def finish(self) -> Answer:
        """The answer to what was asked."""
        message, self._inbox, _, _ = socket.recv_fds(self._channel, MESSAGE_MAX, 4)
        answer: Answer = json.loads(message)
        assert "error" not in answer, f"{self.name}: {answer}"
        return answer

    def hand_over(self, number: int, to: Actor) -> int:
        """Pass a socket by SCM_RIGHTS; what the other one calls it."""
        self.do("give", socket_number=number)
        try:
            taken: int = to.do("take", fds=self._inbox)["socket"]
            return taken
        finally:
            for fd in self._inbox:
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
