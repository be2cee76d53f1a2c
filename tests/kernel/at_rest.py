"""Threads that have come to rest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import List

from tests.kernel.pace import SLOWNESS

TIMEOUT_S = 30 * SLOWNESS


def wait_until_asleep(pid: int, tids: List[int]) -> None:
    """Until each sleeps and has not run between two looks."""
    give_up_at = time.monotonic() + TIMEOUT_S
    before: List[str] = []
    while True:
        assert time.monotonic() < give_up_at, "its threads never came to rest"
        folders = [Path(f"/proc/{pid}/task/{tid}") for tid in tids]
        states = [(f / "stat").read_text().rpartition(") ")[2][0] for f in folders]
        switches = [(f / "schedstat").read_text() for f in folders]
        if set(states) == {"S"} and switches == before:
            return
        before = switches
        time.sleep(0.02)
