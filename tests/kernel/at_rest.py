"""Whether processes sleep: who has sent a reply may not have returned from its call yet.

A client that has the reply can be ahead of a server that lost its CPU inside send(), by as long
as a neighbour keeps it. A window that ends meanwhile has not seen the call return.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Iterable, List

from tests.patience import PATIENCE_S
from tests.scenarios.bench import family_of

AT_MOST_S = 2.0
ASLEEP = frozenset("SIZTtX")


def wait_until_at_rest(pids: Iterable[int]) -> None:
    """Until every thread of these processes, and of their children, sleeps or has ended.

    Of some that never does: not for long.
    """
    give_up_at = time.monotonic() + AT_MOST_S
    watched = [pid for pid in pids if pid != os.getpid()]
    while not all(map(_sleeps, watched)) and time.monotonic() < give_up_at:
        time.sleep(0.001)


def wait_until_asleep(pid: int, tids: List[int]) -> None:
    """Until each sleeps and has not run between two looks."""
    give_up_at = time.monotonic() + PATIENCE_S
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


def _sleeps(first: int) -> bool:
    for pid in family_of(first):
        for task in Path(f"/proc/{pid}/task").glob("*/stat"):
            with suppress(OSError):
                if task.read_text().rpartition(") ")[2][0] not in ASLEEP:
                    return False
    return True
