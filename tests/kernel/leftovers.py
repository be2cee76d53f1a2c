"""BPF programs and links that nobody holds any more and that are still there.

Other users of the machine load programs too: one that a living process holds
is theirs, or belongs to an udsprobe which still runs.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import FrozenSet, NamedTuple, Set

from tests.kernel.kernel_objects import listed
from tests.patience import PATIENCE_S

HELD = re.compile(r"^(prog_id|link_id):\s+(\d+)$", re.MULTILINE)


class Loaded(NamedTuple):
    """Ids, as `bpftool prog list` and `bpftool link list` print them."""

    programs: FrozenSet[int]
    links: FrozenSet[int]

    def without(self, other: Loaded) -> Loaded:
        return Loaded(self.programs - other.programs, self.links - other.links)


def loaded() -> Loaded:
    """What is loaded now, by anyone."""
    return Loaded(listed("prog"), listed("link"))


def left_over_since(before: Loaded) -> Loaded:
    """What was loaded after `before` and outlives its owner by `PATIENCE_S`."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        left = loaded().without(before)
        if any(left):
            left = left.without(_held())
        if not any(left) or time.monotonic() > give_up_at:
            return left


def _held() -> Loaded:
    programs: Set[int] = set()
    links: Set[int] = set()
    for process in Path("/proc").iterdir():
        for kind, number in HELD.findall(_descriptors(process)):
            (programs if kind == "prog_id" else links).add(int(number))
    return Loaded(frozenset(programs), frozenset(links))


def _descriptors(process: Path) -> str:
    try:
        return "".join(map(_read, (process / "fdinfo").iterdir()))
    except OSError:  # no process, or it has ended
        return ""


def _read(descriptor: Path) -> str:
    try:
        return descriptor.read_text()
    except OSError:  # closed since it was listed
        return ""
