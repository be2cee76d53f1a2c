"""The server of workloads/leaving_server.py, from its first line on, and its clients."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Dict

from tests.patience import PATIENCE_S
from tests.workloads import leaving_server


class Server:
    """The workload; `account` once it has ended."""

    def __init__(self, kind: str, folder: Path, how: str) -> None:
        self.transport, self._place = kind, folder / kind
        argv = [sys.executable, leaving_server.__file__, kind, str(self._place), how]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        self.account: Dict[str, int] = {}

    @property
    def port(self) -> int:
        return int(self._place.read_text(encoding="ascii"))

    def client(self) -> socket.socket:
        if self.transport == "tcp":
            return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE_S)
        sock.connect(str(self._place))
        return sock

    def wait(self) -> None:
        self._process.communicate(timeout=PATIENCE_S)

    def end(self) -> None:
        said, _ = self._process.communicate(timeout=PATIENCE_S)
        self.account = json.loads(said)
