"""HTTP/1 replies of a window, and those that say that the server failed."""

from __future__ import annotations

from typing import Iterable, List, Mapping, Optional

from udsprobe.model.counters import added_by_key
from udsprobe.model.growth import growth
from udsprobe.model.report import HttpReplies
from udsprobe.sample import HttpReplyCounts

_NS_PER_US = 1000


def http_replies(
    name: str, now: Optional[HttpReplyCounts], before: Optional[HttpReplyCounts]
) -> Optional[HttpReplies]:
    """None when not measured.

    Args:
        name: of whose they are, for messages.

    Raises:
        UnsoundError: a counter went backwards.
    """
    if now is None:
        return None
    grew = growth(f"{name} HTTP replies", now, before)
    mean_us = grew.failed_ns / grew.failed / _NS_PER_US if grew.failed else None
    statuses = {status: count for status, count in grew.statuses.items() if count}
    return HttpReplies(grew.count, grew.failed, mean_us, statuses)


def most_first(statuses: Mapping[str, int]) -> List[str]:
    """The statuses of failed replies, in the order in which they are told."""
    return sorted(statuses, key=lambda status: (-statuses[status], status))


def in_one(rows: Iterable[Optional[HttpReplies]]) -> Optional[HttpReplies]:
    """Of several rows; None when none of them is measured."""
    known = [each for each in rows if each is not None]
    if not known:
        return None
    failed = sum(each.failed for each in known)
    total_us = sum((each.failed_mean_us or 0.0) * each.failed for each in known)
    return HttpReplies(
        sum(each.count for each in known),
        failed,
        total_us / failed if failed else None,
        added_by_key(each.statuses for each in known),
    )
