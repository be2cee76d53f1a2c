"""Starts `queue_actor.py` as a process of its own and talks to it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, List, Sequence

from tests.patience import PATIENCE_S
from tests.workloads.commanded import Answer, Commanded

ACTOR = Path(__file__).resolve().parent / "queue_actor.py"
OWN_NETWORK = ("unshare", "--net")


class Refused(Exception):
    """The process could not do it; the text names the errno."""


class Actor(Commanded):
    """A process that listens, accepts and connects at our word.

    Args:
        prefix: as of `Commanded`.
    """

    def __init__(self, *prefix: str) -> None:
        super().__init__(ACTOR, *prefix)

    def begin(self) -> None:
        self.do("chdir", folder="/")

    def finish(self) -> Answer:
        """The answer to what was asked.

        Raises:
            Refused: a system call failed which must not.
        """
        answer = super().finish()
        if "error" in answer:
            raise Refused(answer["text"])
        return answer

    def listen(self, address: Answer, backlog: int) -> Answer:
        return self.do("listen", address=address, backlog=backlog)

    def connect(self, address: Answer, count: int = 1, **how: Any) -> Answer:
        return self.do("connect", address=address, count=count, **how)

    def hand_over(self, listener: int, to: Actor) -> Answer:
        """Pass a listener by SCM_RIGHTS; what the other one calls it."""
        self.do("send_listener", listener=listener)
        try:
            return to.do("receive_listener", fds=self.inbox)
        finally:
            for fd in self.inbox:
                os.close(fd)


def unix(path: Any, kind: str = "stream", tail: bytes = b"") -> Answer:
    """A Unix address: a path, or bytes as they are; `tail` is passed behind it."""
    return {"unix": os.fsencode(path).hex(), "kind": kind, "tail": tail.hex()}


def tcp(host: str, port: int = 0) -> Answer:
    return {"host": host, "port": port}


def inside(other: Actor, *namespaces: str) -> List[str]:
    """The prefix that runs a command in namespaces (`net`, `mount`) of `other`."""
    flags = [
        f"--{name}=/proc/{other.pid}/ns/{'mnt' if name == 'mount' else name}" for name in namespaces
    ]
    return ["nsenter", *flags]


def wait_until_asleep(pids: Sequence[int], where: str = "unix_wait_for_peer") -> None:
    """Until each process sleeps in this kernel function."""
    give_up_at = time.monotonic() + PATIENCE_S
    for pid in pids:
        while (asleep := Path(f"/proc/{pid}/wchan").read_text()) != where:
            assert time.monotonic() < give_up_at, f"{pid} is in {asleep!r}, not {where}"
            time.sleep(0.001)
