"""Requests of a target's own that have no answer yet: they hang, or are long polls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Dict, List, Optional, Tuple

from udsprobe.model.report import Action, Connection, Evidence, Report
from udsprobe.rules.peers.itself import is_own_listener
from udsprobe.rules.remedy import choice
from udsprobe.rules.servers import target_of
from udsprobe.rules.thresholds import HUNG_US_MIN
from udsprobe.rules.wording import count, duration, evidence, process

TOLD_MAX = 2


@dataclass(frozen=True)
class OwnAsks:
    """The requests of one process at one destination, as a fact, and where to look.

    Attributes:
        pid: of who asks.
    """

    pid: int
    fact: Evidence
    actions: Tuple[Action, ...]


def own_asks(report: Report, of: Optional[Collection[int]] = None) -> List[OwnAsks]:
    """Those that have waited longest, for a second or more.

    What a process asks itself (etcd's gateway of HTTP) its other end tells of: whether anybody
    waits for an answer there.

    Args:
        of: the processes that count, by id; None: all.
    """
    waiting: Dict[Tuple[int, str], List[Connection]] = {}
    for row in report.connections or []:
        if (of is not None and row.pid not in of) or _asks_itself(report, row):
            continue
        if (row.asking_us or 0.0) >= HUNG_US_MIN and row.peer is not None and row.peer.address:
            waiting.setdefault((row.pid, f"{row.transport}:{row.peer.address}"), []).append(row)
    found = [_asks(report, pid, place, rows) for (pid, place), rows in waiting.items()]
    return sorted(found, key=lambda each: -each.fact.value)[:TOLD_MAX]


def _asks_itself(report: Report, row: Connection) -> bool:
    address = (row.peer.address if row.peer is not None else None) or ""
    return is_own_listener(report, row.pid, row.transport, address)


def _asks(report: Report, pid: int, place: str, rows: List[Connection]) -> OwnAsks:
    peers = {row.peer.pid: row.peer.comm for row in rows if row.peer is not None and row.peer.pid}
    peer_pid, peer_comm = next(iter(peers.items())) if len(peers) == 1 else (None, None)
    who = place if peer_pid is None else process(peer_pid, peer_comm)
    where = who if who == place else f"{who} at {place}"
    oldest_us = max(row.asking_us or 0.0 for row in rows)
    target = target_of(report, pid)
    asker = process(pid, target.comm if target is not None else None)
    if len(rows) == 1:
        says = f"a request of {asker} has waited {duration(oldest_us)} for {where}: it hangs, or "
        says += "is a long poll"
    else:
        says = f"{count(len(rows), 'request')} of {asker} wait for {where}, the oldest for "
        says += f"{duration(oldest_us)}: they hang, or are long polls"
    return OwnAsks(
        pid,
        evidence("own_asking_us", oldest_us, "µs", says, HUNG_US_MIN),
        choice.upstream(peer_pid, who, place),
    )
