"""Accept queues that targets find full when they connect: of a listener that is not a target's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from udsprobe.model.harm import Harm
from udsprobe.model.report import Connect, Evidence, Peer, Report
from udsprobe.rules.harm import FAILED, REFUSED, SLOW, connects
from udsprobe.rules.peers.connecting import (
    answered_late,
    late_us,
    never_answered,
    owner_of,
)
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import CRITICAL, WARNING, Suspect
from udsprobe.rules.thresholds import WAIT_MEAN_US_MIN
from udsprobe.rules.wording import count, duration, evidence, place


def full_elsewhere(report: Report, row: Connect) -> Optional[Suspect]:
    """The queue that a target found full when it wanted to connect."""
    met = _met_elsewhere(report, row)
    if met is None:
        return None
    subject, owner = place(row), owner_of(row, report)
    return Suspect(
        cause="accept-queue-full",
        name=f"accept-queue-full:{subject}",
        severity=CRITICAL if met.lost else WARNING,
        is_pressure=met.lost > 0 or met.mean_us >= WAIT_MEAN_US_MIN,
        share_pct=met.harm.share_pct or 0.0,
        subject=subject,
        headline=f"accept queue of {subject}{_named(owner)} is full",
        evidence=met.evidence,
        actions=choice.full_elsewhere(row.transport, row.address, owner),
        seen=met.lost or row.calls,
        pids=frozenset() if owner is None or not owner.pid else frozenset({owner.pid}),
        harm=met.harm,
    )


@dataclass(frozen=True)
class _Met:
    """What connects of the targets met at a full queue.

    `lost` of them were refused or never taken; `mean_us` is what the others waited, of all.
    """

    lost: int
    mean_us: float
    harm: Harm
    evidence: Tuple[Evidence, ...]


def _met_elsewhere(report: Report, row: Connect) -> Optional[_Met]:
    return _met_by_unix(row) if row.transport == "unix" else _met_by_tcp(report, row)


def _met_by_unix(row: Connect) -> Optional[_Met]:
    refused, mean_us = row.errors.get("EAGAIN", 0), row.latency_us.mean or 0.0
    if not refused and not (row.calls and mean_us >= WAIT_MEAN_US_MIN):
        return None
    what = f"{count(refused, 'connect')} of {row.calls:,} failed with EAGAIN"
    if not refused:
        what = f"connect() takes {duration(mean_us)} on average"
    facts = (
        evidence("connects_refused", refused, "connects", f"{what}: no room in the queue", 1),
        evidence("connect_mean_us", mean_us, "µs", f"connect() took {duration(mean_us)}"),
    )
    return _Met(refused, mean_us, _kept_waiting(row, refused, mean_us), facts)


def _met_by_tcp(report: Report, row: Connect) -> Optional[_Met]:
    lost, late = never_answered(row, report), answered_late(row, report)
    if not lost + late:
        return None
    facts = []
    if lost:
        says = f"{count(lost, 'connect')} of {row.calls:,} ended before anybody answered"
        facts.append(evidence("connects_never_answered", lost, "connects", says, 1))
    if late:
        says = f"{count(late, 'connect')} of {row.calls:,} took {duration(late_us(row))} on average"
        says += ": their first packet was not answered"
        facts.append(evidence("connects_answered_late", late, "connects", says))
    if lost:
        harm = connects(FAILED, lost, row.calls, f"to {place(row)} get no answer")
    else:
        took = f"to {place(row)} take {duration(late_us(row))} on average"
        harm = connects(SLOW, late, row.calls, took)
    return _Met(lost, late * late_us(row) / max(row.calls, 1), harm, tuple(facts))


def _named(owner: Optional[Peer]) -> str:
    """` of node 4711`, where somebody was seen to answer there."""
    return "" if owner is None else f" of {owner.comm or 'pid'} {owner.pid}"


def _kept_waiting(row: Connect, refused: int, mean_us: float) -> Harm:
    if refused:
        return connects(REFUSED, refused, row.calls, "refused")
    return Harm(SLOW, 100.0, row.calls, None, f"connects take {duration(mean_us)} on average")
