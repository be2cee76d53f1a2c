"""Who answers requests to an upstream, for suspects that are about its answers."""

from __future__ import annotations

from typing import FrozenSet, Optional

from udsprobe.model.report import Upstream
from udsprobe.rules.wording import place, process


def pid_of(row: Upstream) -> Optional[int]:
    """None where the process is not known."""
    return row.peer.pid or None if row.peer is not None else None


def pids_of(row: Upstream) -> FrozenSet[int]:
    """None or one: for `Suspect.waits_for`."""
    pid = pid_of(row)
    return frozenset() if pid is None else frozenset([pid])


def who(row: Upstream) -> str:
    """`node 812`; its address where it is not known, or has ended."""
    peer = row.peer
    return process(peer.pid, peer.comm) if peer is not None and peer.comm else place(row)


def who_there(row: Upstream) -> str:
    """`node 812 at tcp:127.0.0.1:3000`."""
    return who(row) if who(row) == place(row) else f"{who(row)} at {place(row)}"
