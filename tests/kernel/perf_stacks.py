"""Where perf, which unwinds and names by its own means, finds a process computing."""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path
from typing import Dict, List

from tests.patience import PATIENCE_S

SAMPLES = 150
SIGMAS = 4.5
_UNNAMED = "[unknown]"
_FRAME = re.compile(r"^\s*[0-9a-f]+ (\S+)", re.MULTILINE)


def taken(perf: str, pid: int, folder: Path) -> List[List[str]]:
    """Names of some hundred stacks, the innermost first."""
    recorded = str(folder / "perf.data")
    argv = [perf, "record", "-q", "-e", "cpu-clock", "-F", "99", "--call-graph", "dwarf,16384"]
    for seconds in ("4", "12", "36"):
        command = [*argv, "-p", str(pid), "-o", recorded, "sleep", seconds]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
        asked = [perf, "script", "-i", recorded, "-F", "ip,sym"]
        told = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        stacks = [found for each in told.split("\n\n") if (found := _FRAME.findall(each))]
        if len(stacks) >= SAMPLES:
            break
    return stacks


def assert_is_where(stacks: List[List[str]], function: str) -> None:
    """Half of the time is in it, and of what it calls nothing that has a name has half."""
    assert len(stacks) >= SAMPLES
    tolerance = SIGMAS * math.sqrt(0.25 / len(stacks))
    mine = [each[: each.index(function)] for each in stacks if function in each]
    assert len(mine) / len(stacks) > 0.5 - tolerance
    called: Dict[str, int] = {}
    for names in mine:
        for name in set(names) - {_UNNAMED}:
            called[name] = called.get(name, 0) + 1
    assert max(called.values(), default=0) / len(stacks) < 0.5 + tolerance, called
