"""A process that acts at our word: one JSON object each way, over a SEQPACKET socket.

What it can be told is its program's matter: `queue_actor.py`, `upstream_actor.py`.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, TypeVar

from tests.patience import PATIENCE_S

MESSAGE_MAX = 262_144
Answer = Dict[str, Any]
_Self = TypeVar("_Self", bound="Commanded")


class Commanded:
    """Such a process, until the block is left.

    Args:
        program: the Python file that it runs.
        prefix: a command that runs it, such as `unshare --net`; it must exec.

    Attributes:
        pid: its process id.
        inbox: descriptors that came with the last answer.
    """

    def __init__(self, program: Path, *prefix: str) -> None:
        self._command = [*prefix, sys.executable, str(program)]
        self.inbox: List[int] = []

    def __enter__(self: _Self) -> _Self:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(PATIENCE_S)
        with theirs:
            command = [*self._command, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self.pid = self._process.pid
        self.begin()
        return self

    def begin(self) -> None:
        """The first thing it is told."""

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
        """Its answer, which comes when it is done; errors as of `finish`."""
        self.start(command, fds, **arguments)
        return self.finish()

    def start(self, command: str, fds: Sequence[int] = (), **arguments: Any) -> None:
        """Ask, and do not wait."""
        request = json.dumps({"do": command, **arguments}).encode()
        socket.send_fds(self._channel, [request], list(fds))

    def finish(self) -> Answer:
        """The answer to what was asked; with "error" where a system call failed."""
        message, self.inbox, _, _ = socket.recv_fds(self._channel, MESSAGE_MAX, 4)
        answer: Answer = json.loads(message)
        return answer
