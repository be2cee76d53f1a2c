"""Lengths of time as users write them: `500ms`, `10s`, `5m`, `2h`, `1h30m`; a number is seconds."""

from __future__ import annotations

import math
import re
from typing import Optional

import click

from udsprobe.errors import UsageError

_UNITS_S = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|µs|ms|s|m|h|d)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
# A hundred years: what is longer overflows a clock somewhere.
_LONGEST_S = 100 * 365 * 86400.0


def seconds(text: str) -> Optional[float]:
    """How many seconds the text says; None when it is not a duration, or none above 0."""
    if _NUMBER.fullmatch(text):
        return _possible(float(text))
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    # Rounded to nanoseconds, so that 0.1 + 0.2 is what was written.
    return _possible(round(math.fsum(float(n) * _UNITS_S[unit] for n, unit in parts), 9))


def _possible(length_s: float) -> Optional[float]:
    return length_s if 0 < length_s <= _LONGEST_S else None


def given_s(_: click.Context, option: click.Parameter, text: Optional[str]) -> Optional[float]:
    """A click option's callback: its value in seconds.

    Raises:
        UsageError: `usage`.
    """
    length_s = None if text is None else seconds(text)
    if text is not None and length_s is None:
        raise UsageError(
            "usage",
            f"{option.opts[0]} {text!r} is not a duration",
            "give one such as 500ms, 10s, 5m or 2h; a bare number is seconds",
        )
    return length_s
