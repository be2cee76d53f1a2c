"""Starts `queue_actor.py` as a process of its own and talks to it."""

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

ACTOR = Path(__file__).resolve().parent / "queue_actor.py"
MESSAGE_MAX = 262_144
OWN_NETWORK = ("unshare", "--net")
Answer = Dict[str, Any]


class Refused(Exception):
    """The process could not do it; the text names the errno."""


class Actor:
    """A process that listens, accepts and connects at our word.

    Args:
        prefix: a command that runs it, such as `unshare --net`; it must exec.

    Attributes:
        pid: its process id.
        inbox: descriptors that came with the last answer.
    """

    def __init__(self, *prefix: str) -> None:
        self._prefix = prefix
        self.inbox: List[int] = []

    def __enter__(self) -> Actor:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(PATIENCE_S)
        command = [*self._prefix, sys.executable, str(ACTOR), str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self.pid = self._process.pid
        self.do("chdir", folder="/")
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
        """Its answer, which comes when it is done.

        Raises:
            Refused: a system call failed which must not.
        """
        self.start(command, fds, **arguments)
        return self.finish()

    def start(self, command: str, fds: Sequence[int] = (), **arguments: Any) -> None:
        """Ask, and do not wait."""
        request = json.dumps({"do": command, **arguments}).encode()
        socket.send_fds(self._channel, [request], list(fds))

    def finish(self) -> Answer:
        """The answer to what was asked."""
        message, self.inbox, _, _ = socket.recv_fds(self._channel, MESSAGE_MAX, 4)
        answer: Answer = json.loads(message)
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
