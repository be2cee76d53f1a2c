"""Requests of a window that ended without a byte of reply."""

from __future__ import annotations

from typing import Iterable, Optional, Union

from udsprobe.model.counters import grown
from udsprobe.model.report import GivenUp, Unanswered
from udsprobe.sample import UnansweredCounts

_NS_PER_US = 1000


def unanswered(
    name: str, now: Optional[UnansweredCounts], before: Optional[UnansweredCounts]
) -> Optional[Unanswered]:
    """None when not measured.

    Args:
        name: of whose they are, for messages.

    Raises:
        UnsoundError: a counter went backwards.
    """
    if now is None:
        return None
    earlier = before or UnansweredCounts(0, 0)
    count = grown(f"{name} unanswered", now.count, earlier.count)
    if not count:
        return Unanswered(0, None)
    waited_ns = grown(f"{name} unanswered ns", now.total_ns, earlier.total_ns)
    return Unanswered(count, waited_ns / count / _NS_PER_US)


def ended(*counts: Union[Unanswered, GivenUp, None]) -> int:
    """How many requests all of these are; what is not measured is none."""
    return sum(each.count for each in counts if each is not None)


def together(counts: Iterable[Optional[UnansweredCounts]]) -> Optional[UnansweredCounts]:
    """Of several counters; None when none of them is measured."""
    known = [each for each in counts if each is not None]
    if not known:
        return None
    return UnansweredCounts(sum(each.count for each in known), sum(each.total_ns for each in known))
