"""Requests of a window that ended without a byte of reply."""

from __future__ import annotations

from typing import Optional, Union

from udsprobe.model.counters import mean_us
from udsprobe.model.growth import growth
from udsprobe.model.report import GivenUp, Unanswered
from udsprobe.sample import UnansweredCounts


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
    grew = growth(f"{name} unanswered", now, before)
    return Unanswered(grew.count, mean_us(grew.total_ns, grew.count))


def ended(*counts: Union[Unanswered, GivenUp, None]) -> int:
    """How many requests all of these are; what is not measured is none."""
    return sum(each.count for each in counts if each is not None)
