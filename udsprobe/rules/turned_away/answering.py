"""Who answers requests to an upstream, for suspects that are about its answers."""

from __future__ import annotations

from typing import FrozenSet, Optional

from udsprobe.model.report import Report, Upstream
from udsprobe.rules.wording import named_place, place, process


def pid_of(row: Upstream) -> Optional[int]:
    """None where the process is not known, or has ended."""
    return row.peer.pid or None if row.peer is not None and row.peer.comm else None


def pids_of(row: Upstream) -> FrozenSet[int]:
    """None or one: for `Suspect.waits_for`."""
    pid = row.peer.pid if row.peer is not None else None
    return frozenset([pid]) if pid else frozenset()


def listening_there(report: Report, row: Upstream) -> FrozenSet[int]:
    """Targets that listen at its address: who has ended without an answer was one of them."""
    rows = [each for each in report.listeners or () if place(each) == place(row)]
    return frozenset(pid for each in rows for pid in each.pids or ())


def who(row: Upstream) -> str:
    """`node 812`; its address where it is not known, or has ended."""
    peer = row.peer
    if peer is None or not peer.comm:
        return named_place(place(row))
    return process(peer.pid, peer.comm)


def who_there(row: Upstream) -> str:
    """`node 812 at tcp:127.0.0.1:3000`."""
    found, where = who(row), place(row)
    return found if found.endswith(where) else f"{found} at {where}"
