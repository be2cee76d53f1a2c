"""A full window of a recording, read as a recording of its own."""

from __future__ import annotations

import sqlite3
from typing import List, NamedTuple, Optional, Tuple


class WindowTime(NamedTuple):
    """When a full window was open, seconds since the epoch."""

    number: int
    first_unix_s: float
    last_unix_s: float


def window_times(store: sqlite3.Connection) -> Tuple[WindowTime, ...]:
    """Of the windows with two samples or more, in their order."""
    rows = store.execute(
        "SELECT number, min(first_unix_s), max(last_unix_s) FROM full_sample GROUP BY number "
        "HAVING max(last_sequence) > min(first_sequence) ORDER BY number"
    )
    return tuple(WindowTime(int(number), start, end) for number, start, end in rows)


def overlapping(
    windows: Tuple[WindowTime, ...], from_unix_s: float, to_unix_s: float
) -> Optional[WindowTime]:
    """The one with the most of a time; None: none has any of it."""
    found: List[Tuple[float, WindowTime]] = [
        (min(each.last_unix_s, to_unix_s) - max(each.first_unix_s, from_unix_s), each)
        for each in windows
    ]
    length_s, window = max(found, default=(-1.0, None))
    return window if length_s > 0 else None
