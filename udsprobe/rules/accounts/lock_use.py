"""How much of the time somebody waits for one lock: then it is held, and near its limit.

What holds a lock is not seen, nor for how long. That threads of requests wait for it is; no more of
them can wait at once than all that ever did but the one that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from udsprobe.model.report import Lock, Report
from udsprobe.rules.accounts.service import Service
from udsprobe.rules.thresholds import WAITED_TIMES_REQUESTS_MAX

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
    in_requests_us = service.stage_sums_us.get("app", 0.0) * service.app_pct.get("lock", 0.0) / 100
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
