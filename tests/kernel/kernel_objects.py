"""The BPF objects of one process, and waiting until the kernel has freed them."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Dict, FrozenSet

from tests.patience import PATIENCE_S

# The kernel frees programs some RCU grace periods after their last user.
KINDS = ("prog", "map", "link")
_ID = re.compile(r"^(prog|map|link)_id:\s+(\d+)$", re.MULTILINE)

Objects = Dict[str, FrozenSet[int]]


def held_by(pid: int) -> Objects:
    """What a process has descriptors of: kind → ids."""
    texts = [_text(path) for path in Path(f"/proc/{pid}/fdinfo").iterdir()]
    found = [match for text in texts for match in _ID.findall(text)]
    return {kind: frozenset(int(number) for k, number in found if k == kind) for kind in KINDS}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:  # closed since it was listed
        return ""


def left_of(objects: Objects) -> Objects:
    """Those that outlive their owner by `PATIENCE_S`, by kind; {} when none does."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        left = {kind: ids & listed(kind) for kind, ids in objects.items()}
        left = {kind: ids for kind, ids in left.items() if ids}
        if not left or time.monotonic() > give_up_at:
            return left
        time.sleep(0.02)


def listed(kind: str) -> FrozenSet[int]:
    """Ids of everything of a kind, `prog`, `map` or `link`, whoever holds it."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        done = subprocess.run(["bpftool", "--json", kind, "list"], capture_output=True, text=True)
        # It fails when one goes while it lists: others on this machine come and go.
        if done.returncode == 0 or time.monotonic() > give_up_at:
            done.check_returncode()
            return frozenset(entry["id"] for entry in json.loads(done.stdout))
