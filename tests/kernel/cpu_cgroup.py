"""A real CPU cgroup with a quota, and a process in it that burns what it is told to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Dict

from tests.kernel.hierarchy import hierarchy
from tests.patience import PATIENCE_S

QUOTA_US, PERIOD_US = 20_000, 100_000
BURNER = """
import sys, time
print("ready", flush=True)
for line in sys.stdin:
    end = time.process_time() + float(line)
    while time.process_time() < end:
        pass
    print("burnt", flush=True)
"""


class Quota:
    """A cgroup allowed a fifth of a CPU, with one below it that has no quota of its own.

    Attributes:
        path: of the one with the quota.
        below: where the burner lives.
    """

    def __init__(self) -> None:
        self.version, root = hierarchy("cpu")
        self.path = root / f"udsprobe-test-{os.getpid()}"
        self.below = self.path / "below"

    def __enter__(self) -> Quota:
        self.path.mkdir()
        if self.version == 2:
            (self.path / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")
        else:
            (self.path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.path / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
        self.below.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        self.below.rmdir()
        self.path.rmdir()

    def counters(self) -> Dict[str, int]:
        """`cpu.stat`, once the period timer has come to rest."""
        give_up_at, shown = time.monotonic() + PATIENCE_S, [self._stat()]
        while len(shown) < 5 or shown[-5:] != [shown[-1]] * 5:
            assert time.monotonic() < give_up_at, shown[-3:]
            time.sleep(PERIOD_US / 1e6)
            shown.append(self._stat())
        return shown[-1]

    def _stat(self) -> Dict[str, int]:
        pairs = [line.split() for line in (self.path / "cpu.stat").read_text().splitlines()]
        names = ("nr_periods", "nr_throttled", "throttled_time", "throttled_usec")
        return {name: int(value) for name, value in pairs if name in names}


class Burner:
    """A process below a quota; idle until it is told to burn."""

    def __init__(self, quota: Quota) -> None:
        self._procs = quota.below / "cgroup.procs"

    def __enter__(self) -> Burner:
        self._process = subprocess.Popen(
            [sys.executable, "-c", BURNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self._procs.write_text(str(self.pid))
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def burn(self, cpu_s: float) -> None:
        """So much CPU time; returns when it is spent."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{cpu_s}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "burnt\n"

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
