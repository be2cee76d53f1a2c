"""From which age on a request without a reply hangs."""

from __future__ import annotations

from typing import Optional

from udsprobe.model.report import Report, ServedBy
from udsprobe.rules.thresholds import HUNG_US_MIN, SLOW_REQUESTS_MIN


def hung_after_us(report: Report, comm: Optional[str]) -> float:
    """One second, or what the slow ones of those took that processes of that name answered.

    Where all requests take two seconds, one that is a second old is as good as any. Of few it is
    not known what they take as a rule.
    """
    rows = [row for row in report.requests.served_by or [] if row.count and row.comm == comm]
    if sum(row.count for row in rows) < SLOW_REQUESTS_MIN:
        return HUNG_US_MIN
    return max(HUNG_US_MIN, *(slow_us(row) for row in rows))


def slow_us(row: ServedBy) -> float:
    """Of those that a process answered, the slow ones."""
    return row.latency_us.p99 or row.latency_us.max or 0.0
