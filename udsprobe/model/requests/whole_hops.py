"""Which of the requests that are kept waited for which: by their connections, and by time.

A connection has one request at a time. Both ends of one on a Unix socket know the inode of the
other; of TCP each end has the address that the other one sends to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import FrozenSet, List, NamedTuple, Sequence, Set, Tuple, Union

from udsprobe.model.report import WholeHop, WholeRequest

End = Union[int, str]
"""The inode of a socket, or its address."""

NOBODY: Set[End] = {0, ""}

# The wall clock of two samples may have been set a little.
_SLACK_US = 100


class Asked(NamedTuple):
    """A call about a connection to an upstream: its own end, and from when until when."""

    ends: FrozenSet[End]
    begin_us: int
    end_us: int


class Known(NamedTuple):
    """A request with what tells it from others: its arrival (µs since 1970) and its client."""

    row: WholeRequest
    arrived_us: int
    client: FrozenSet[End]
    asked: Tuple[Asked, ...]


def with_upstream(known: Known, every: Sequence[Known]) -> WholeRequest:
    """The row, with those of the others that it waited for."""
    found = {(other.arrived_us, other.row.tid): other for other in every if _waited(known, other)}
    hops = sorted((_hop(known, other) for other in found.values()), key=lambda hop: hop.at_us)
    return replace(known.row, upstream=hops) if hops else known.row


def _hop(known: Known, other: Known) -> WholeHop:
    return WholeHop(
        pid=other.row.pid,
        tid=other.row.tid,
        comm=other.row.comm,
        address=other.row.address,
        at_us=float(other.arrived_us - known.arrived_us),
        latency_us=other.row.latency_us,
        parts_us=other.row.parts_us,
    )


def _waited(known: Known, other: Known) -> bool:
    """It arrived on a connection of `known` while that one asked, or waited for the answer."""
    calls: List[Asked] = [each for each in known.asked if each.ends & other.client]
    if not calls or other.row is known.row:
        return False
    at_us = other.arrived_us - known.arrived_us
    begin_us = min(each.begin_us for each in calls) - _SLACK_US
    return begin_us <= at_us <= max(each.end_us for each in calls)
