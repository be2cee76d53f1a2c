"""What a service is asleep for in the middle of its requests, by the waits of its threads."""

from __future__ import annotations

from typing import Dict, Optional

from udsprobe.model.report import Report
from udsprobe.rules.accounts.authors import KINDS, waited_us, waits_of
from udsprobe.rules.accounts.service import Service

TIMER = "timer"
"""A wait for a lock, or on a condition, with a time limit that ended it."""
_MOST = 0.5


def waited_for(service: Service, part: str, part_us: float) -> Optional[str]:
    """The kind that most of these waits are of, `timer` for locks whose time limit ended them.

    None where the waits of the threads that serve do not tell.

    Args:
        part: `lock`, `timer` or `sleep`. part_us: how much of request time it is.
    """
    spent: Dict[str, float] = {}
    for row in waits_of(service, part, part_us):
        by_timer_us = sum(each.total_us for each in row.authors if each.by == "timer")
        timed_us = by_timer_us if row.kind == "lock" else 0.0
        spent[TIMER] = spent.get(TIMER, 0.0) + timed_us
        spent[row.kind] = spent.get(row.kind, 0.0) + max(0.0, waited_us(service, row) - timed_us)
    most = max(spent, key=lambda kind: spent[kind], default="")
    return most if spent and spent[most] > _MOST * sum(spent.values()) else None


def slept_in(report: Report, service: Service, part: str) -> Optional[str]:
    """The system call in which requests that were kept whole slept most; None where none is.

    Args:
        part: as of `waited_for`.
    """
    kept = (*(report.requests.slowest or ()), *(report.requests.sampled or ()))
    spent: Dict[str, float] = {}
    for request in kept:
        if service.pids and request.pid not in service.pids:
            continue
        for call in request.calls or ():
            if call.waits_for in KINDS.get(part, ()):
                spent[call.name] = spent.get(call.name, 0.0) + call.asleep_us
    most = max(spent, key=lambda name: spent[name], default="")
    return most if spent and spent[most] > _MOST * sum(spent.values()) else None
