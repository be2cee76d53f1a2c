"""Threads and processes that targets started in a window, and those that they could not start."""

from __future__ import annotations

from typing import List, Optional

from udsprobe.model.growth import by_name, growth
from udsprobe.model.report import StartLimit, Starts
from udsprobe.sample import Sample, StartCounts


def start_rows(first: Sample, last: Sample) -> Optional[List[Starts]]:
    """One row for each program that started or was refused any, most refused first."""
    if first.starts is None or last.starts is None:
        return None
    before = {each.comm: each for each in first.starts}
    rows = [_row(each, before.get(each.comm)) for each in last.starts]
    told = [row for row in rows if row.started or row.refused]
    return sorted(told, key=lambda row: (-row.refused, -row.started))


def _row(now: StartCounts, before: Optional[StartCounts]) -> Starts:
    grew = growth(f"starts of {now.comm}", now, before)
    refused, limit = dict(grew.refused), now.limit
    return Starts(
        comm=now.comm,
        started=grew.started,
        refused=sum(refused.values()),
        refused_by_errno=refused,
        pids=list(now.pids) if refused else [],
        limit=None if limit is None or not refused else StartLimit(**by_name(limit, StartLimit)),
    )
