"""HTTP/1 replies of a window, and those that say that the server failed."""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Optional, Sequence

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
    statuses = {status: count for status, count in grew.statuses.items() if count}
    return HttpReplies(
        grew.count,
        grew.failed,
        _mean_us(grew.failed_ns, grew.failed),
        statuses,
        grew.in_pieces,
        _mean_us(grew.transfer_ns, grew.in_pieces),
        _mean_us(grew.paused_ns, grew.in_pieces),
    )


def paused_us(http: Optional[HttpReplies]) -> float:
    """All pauses of its replies together; 0 where they are not measured."""
    if http is None or not http.in_pieces:
        return 0.0
    return http.in_pieces * (http.paused_mean_us or 0.0)


def _mean_us(total_ns: Optional[int], count: Optional[int]) -> Optional[float]:
    return total_ns / count / _NS_PER_US if count and total_ns is not None else None


def most_first(statuses: Mapping[str, int]) -> List[str]:
    """The statuses of failed replies, in the order in which they are told."""
    return sorted(statuses, key=lambda status: (-statuses[status], status))


def in_one(rows: Iterable[Optional[HttpReplies]]) -> Optional[HttpReplies]:
    """Of several rows; None when none of them is measured."""
    known = [each for each in rows if each is not None]
    if not known:
        return None
    failed = sum(each.failed for each in known)
    failed_us = sum((each.failed_mean_us or 0.0) * each.failed for each in known)
    pieces = [each for each in known if each.in_pieces is not None]
    in_pieces = sum(each.in_pieces or 0 for each in pieces)
    transfer_us = sum((each.transfer_mean_us or 0.0) * (each.in_pieces or 0) for each in pieces)
    return HttpReplies(
        sum(each.count for each in known),
        failed,
        failed_us / failed if failed else None,
        _added(each.statuses for each in known),
        in_pieces if pieces else None,
        transfer_us / in_pieces if in_pieces else None,
        sum(map(paused_us, pieces)) / in_pieces if in_pieces else None,
    )


def together(counts: Iterable[Optional[HttpReplyCounts]]) -> Optional[HttpReplyCounts]:
    """Of several counters; None when none of them is measured."""
    known = [each for each in counts if each is not None]
    if not known:
        return None
    return HttpReplyCounts(
        sum(each.count for each in known),
        sum(each.failed for each in known),
        sum(each.failed_ns for each in known),
        _added(each.statuses for each in known),
        *(_sum_if_measured(known, name) for name in ("in_pieces", "transfer_ns", "paused_ns")),
    )


def _sum_if_measured(counts: Sequence[HttpReplyCounts], name: str) -> Optional[int]:
    known = [getattr(each, name) for each in counts if getattr(each, name) is not None]
    return sum(known) if known else None


def _added(by_status: Iterable[Mapping[str, int]]) -> Dict[str, int]:
    total: Dict[str, int] = {}
    for statuses in by_status:
        for status, count in statuses.items():
            total[status] = total.get(status, 0) + count
    return total
