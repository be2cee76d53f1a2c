"""How much of the time somebody waits for locks: then they are held, and near their limit.

What holds a lock is not seen, nor for how long. That threads of requests wait for it is; no more of
them can wait at once than all that ever did but the one that holds it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Optional, Tuple

from udsprobe.model.report import Lock, Report
from udsprobe.rules.accounts.authors import KINDS, waits_of
from udsprobe.rules.accounts.request_time import RequestTime
from udsprobe.rules.accounts.service import Service
from udsprobe.rules.thresholds import (
    AUTHOR_SHARE_MIN,
    WAITED_TIMES_REQUESTS_MAX,
    WAITING_MIN,
)

_US_PER_S = 1e6


@dataclass(frozen=True)
class LockUse:
    """The lock that is held most, as far as that shows.

    Attributes:
        share: of the window, in which it is held while others wait for it, at least.
    """

    lock: Lock
    share: float


def busiest_lock(report: Report, service: Service) -> Optional[LockUse]:
    """None where requests wait for no lock, or waits are not measured.

    A lock that is waited for longer than requests wait for locks is one that threads without
    work wait for.
    """
    in_requests_us = service.app_us("lock")
    uses = [
        LockUse(lock, _share(lock, service.duration_s))
        for lock in report.locks or []
        if service.pids is None or lock.pid in service.pids
        if lock.total_us <= WAITED_TIMES_REQUESTS_MAX * in_requests_us
    ]
    return max(uses, key=lambda use: use.share, default=None)


def _share(lock: Lock, duration_s: float) -> float:
    at_once = max(1, lock.waiters - 1)
    return min(1.0, lock.total_us / _US_PER_S / duration_s / at_once) if duration_s else 0.0


def queue_at_locks(service: Service, time: RequestTime) -> bool:
    """Requests wait for each other at a lock, several at a time: whoever has it is followed by the
    next at once, and what they spend elsewhere is no time that this lock would have left.

    Who ends such a wait mostly waited there as well, or is always the same thread, which takes one
    after the other. Where each has a thread of its own to wait for, neither is so.
    """
    if not service.duration_s or time.locked_us / _US_PER_S / service.duration_s < WAITING_MIN:
        return False
    rows = waits_of(service, "lock", time.asleep_us("lock"))
    ended = [each for row in rows for each in row.authors if each.by == "thread"]
    by_thread: Counter[Tuple[Optional[int], Optional[int]]] = Counter()
    for each in ended:
        by_thread[each.pid, each.tid] += round(each.total_us)
    waiting_us = sum(each.total_us for each in ended if each.was in KINDS["lock"])
    longest_us = max((waiting_us, *by_thread.values()))
    return bool(ended) and longest_us >= AUTHOR_SHARE_MIN * sum(each.total_us for each in ended)
