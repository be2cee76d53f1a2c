"""The demo's server, whose account of itself is the truth."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import Any, Dict, Iterator

from tests.kernel.at_rest import wait_until_at_rest
from tests.kernel.tool import REPOSITORY
from tests.patience import PATIENCE_S

REQUESTS, CONNECTIONS, PER_CONNECTION = 1_009, 4, 10


class Demo:
    """The demo's server, whose account of itself is the truth."""

    def __enter__(self) -> Demo:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "udsprobe.demo", "serve"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        said = self._line()
        self.pid, self.socket = int(said["pid"]), str(said["socket"])
        return self

    def load(self) -> None:
        """So many requests, over connections of ten requests each."""
        command = [sys.executable, "-m", "udsprobe.demo", "load", "--socket", self.socket]
        command += ["--rate", "20000", "--count", str(REQUESTS)]
        command += ["--connections", str(CONNECTIONS)]
        command += ["--requests-per-connection", str(PER_CONNECTION)]
        subprocess.run(
            command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S
        )
        wait_until_at_rest([self.pid])

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Requests while the block lasts."""
        command = [sys.executable, "-m", "udsprobe.demo", "load", "--socket", self.socket]
        command += ["--rate", "500", "--seconds", "600"]
        with subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as load:
            yield
            load.terminate()

    def truth(self) -> Dict[str, int]:
        """End it; what it counted."""
        self._process.terminate()
        return self._line()

    def _line(self) -> Dict[str, Any]:
        assert self._process.stdout is not None
        said: Dict[str, Any] = json.loads(self._process.stdout.readline())
        return said

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=PATIENCE_S)
