"""What strangers to the lab take of the host's CPUs, from /proc: beside them nothing is certain."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Sequence, Tuple

# Of the host's CPU time: more changes latencies, and what is true.
STRANGERS_SHARE_MAX = 0.1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Reading = Tuple[float, float, float]  # seconds: passed on all CPUs, of those busy, of those ours


def read(own: Sequence[int]) -> Reading:
    """The host's CPU time so far, and what these processes and their ended children had of it."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    ours = sum(map(_ticks_of, own))
    return sum(ticks) / TICKS_PER_S, (sum(ticks) - idle) / TICKS_PER_S, ours / TICKS_PER_S


def _ticks_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(word) for word in fields[11:15])  # utime stime cutime cstime
    return 0


def strangers_share(before: Reading, after: Reading) -> float:
    """The part of the host's CPU time between two readings that others had."""
    passed, busy, ours = (now - then for then, now in zip(before, after))
    return max(0.0, busy - ours) / passed if passed else 0.0
