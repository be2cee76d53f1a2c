"""Times as users write them: `03:12`, `2026-11-21T03:12:41`, `+10m`, `-5m`. UTC, as reports are."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from udsprobe.commands.options.lengths import seconds
from udsprobe.errors import UsageError

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?")
_DAY = timedelta(days=1)


def moment_unix_s(text: str, start_unix_s: float, end_unix_s: float) -> float:
    """Seconds since the epoch.

    Args:
        text: a clock time is the first of its kind from a minute before the start on;
            `+10m` is after the start, `-5m` before the end.

    Raises:
        UsageError: `usage`, it is no time.
    """
    said = text.strip()
    length_s = seconds(said[1:]) if said[:1] in ("+", "-") else None
    if length_s is not None:
        return start_unix_s + length_s if said[0] == "+" else end_unix_s - length_s
    clock = _CLOCK.fullmatch(said)
    try:
        if clock is not None:
            return _of_clock(clock, start_unix_s)
        moment = datetime.fromisoformat(said[:-1] + "+00:00" if said.endswith("Z") else said)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            "usage",
            f"{text!r} is not a time",
            "give 03:12, 2026-11-21T03:12:41 (UTC), +10m after the start or -5m before the end",
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _of_clock(clock: re.Match[str], start_unix_s: float) -> float:
    start = datetime.fromtimestamp(start_unix_s, tz=timezone.utc)
    moment = start.replace(
        hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0
    ) + timedelta(seconds=float(clock[3] or 0))
    if moment < start - timedelta(minutes=1):
        moment += _DAY
    return moment.timestamp()
