"""Pauses between the pieces of replies, by what they were spent on."""

from __future__ import annotations

from typing import Dict, Iterable, Sequence

from udsprobe.model.report import ServedBy, Upstream
from udsprobe.model.requests.http_replies import paused_us

UNKNOWN = "poll"
"""What is said of pauses whose thread is not known: it waits for an event."""
# Sleep that can be a wait for the rest of an answer, likeliest first.
_MAYBE_UPSTREAM = ("poll", "lock", "other")


def pause_parts_us(rows: Sequence[ServedBy], upstream: Iterable[Upstream]) -> Dict[str, float]:
    """The pauses of all replies of some processes in µs, by the parts of `app_time_pct`.

    While an answer of theirs pauses, a proxy that passes it on has nothing to send: so much of its
    sleep is `upstream`.

    Args:
        upstream: whom these processes ask.
    """
    parts: Dict[str, float] = {}
    for row in rows:
        for name, pct in (row.paused_time_pct or {UNKNOWN: 100.0}).items():
            parts[name] = parts.get(name, 0.0) + paused_us(row.http) * pct / 100
    theirs_us = sum(paused_us(row.http) for row in upstream) - parts.get("upstream", 0.0)
    for name in _MAYBE_UPSTREAM:
        moved_us = min(max(0.0, theirs_us), parts.get(name, 0.0))
        if moved_us:
            parts[name] -= moved_us
            parts["upstream"] = parts.get("upstream", 0.0) + moved_us
            theirs_us -= moved_us
    return parts
