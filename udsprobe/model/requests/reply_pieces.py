"""Replies that came in pieces: how long they went on, and what their pauses were spent on."""

from __future__ import annotations

from typing import Dict, Iterable, List, Optional, Sequence, Union

from udsprobe.model.growth import growth
from udsprobe.model.report import InPieces, ServedBy, Upstream
from udsprobe.model.requests.served_requests import app_parts_ns, shares_pct
from udsprobe.sample import PieceCounts

UNKNOWN = "poll"
"""What is said of pauses whose thread is not known: it waits for an event."""
_NS_PER_US = 1000
# Sleep that can be a wait for the rest of an answer, likeliest first.
_MAYBE_UPSTREAM = ("poll", "lock", "other")


def in_pieces(
    name: str, now: Optional[PieceCounts], before: Optional[PieceCounts]
) -> Optional[InPieces]:
    """Those of a window; None when not measured.

    Args:
        name: of whose they are, for messages.

    Raises:
        UnsoundError: a counter went backwards.
    """
    if now is None:
        return None
    grew = growth(f"{name} replies in pieces", now, before)
    if not grew.count:
        return InPieces(0, None, None)
    return InPieces(
        grew.count,
        grew.transfer_ns / grew.count / _NS_PER_US,
        grew.paused_ns / grew.count / _NS_PER_US,
        shares_pct(app_parts_ns(grew.paused_activity_ns, 0)),
    )


def paused_us(row: Union[ServedBy, Upstream]) -> float:
    """All pauses of its replies together; 0 where they are not measured."""
    pieces = row.in_pieces
    return pieces.count * (pieces.paused_mean_us or 0.0) if pieces is not None else 0.0


def in_all(rows: Iterable[Union[ServedBy, Upstream]]) -> InPieces:
    """Those of several rows; `paused_time_pct` is None."""
    known: List[InPieces] = [row.in_pieces for row in rows if row.in_pieces is not None]
    count = sum(each.count for each in known)
    if not count:
        return InPieces(0, None, None)
    transfer_us = sum(each.count * (each.transfer_mean_us or 0.0) for each in known)
    whole_us = sum(each.count * (each.paused_mean_us or 0.0) for each in known)
    return InPieces(count, transfer_us / count, whole_us / count)


def pause_parts_us(rows: Sequence[ServedBy], answers_us: float) -> Dict[str, float]:
    """The pauses of all replies of some processes in µs, by the parts of `app_time_pct`.

    While an answer of theirs pauses, a proxy that passes it on has nothing to send: so much of its
    sleep is `upstream`.

    Args:
        answers_us: the pauses of answers to these processes.
    """
    parts: Dict[str, float] = {}
    for row in rows:
        pct = row.in_pieces.paused_time_pct if row.in_pieces is not None else None
        for name, part in (pct or {UNKNOWN: 100.0}).items():
            parts[name] = parts.get(name, 0.0) + paused_us(row) * part / 100
    theirs_us = answers_us - parts.get("upstream", 0.0)
    for name in _MAYBE_UPSTREAM:
        moved_us = min(max(0.0, theirs_us), parts.get(name, 0.0))
        if moved_us:
            parts[name] -= moved_us
            parts["upstream"] = parts.get("upstream", 0.0) + moved_us
            theirs_us -= moved_us
    return parts
