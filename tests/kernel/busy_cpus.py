"""Processes that burn CPU beside what is tested."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import Iterator


@contextmanager
def busy_cpus(processes: int) -> Iterator[None]:
    """So many processes that never sleep, until the end of the block."""
    spinning = [
        subprocess.Popen(
            [sys.executable, "-c", "print('spins', flush=True)\nwhile True: pass"],
            stdout=subprocess.PIPE,
        )
        for _ in range(processes)
    ]
    try:
        for each in spinning:
            assert each.stdout is not None and each.stdout.readline() == b"spins\n"
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()
            if each.stdout is not None:
                each.stdout.close()
