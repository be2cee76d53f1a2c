"""Bars against a limit, and sparklines: drawings made of characters, told by no colour."""

from __future__ import annotations

from typing import Optional, Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
_ROUND = (0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
_TICK = "╎"


def limit_bar(
    now: Optional[int], limit: Optional[int], width: int, *, peak: Optional[int] = None
) -> str:
    """`▕███╎  ▏`: filled is now, the tick the high-water mark, the right end the limit.

    Args:
        width: cells in all, the two ends included; the limit is never drawn
            as full before it is reached, and what is not zero is never empty.
    """
    inner = width - 2
    if now is None or not limit:
        return "▕" + "·" * inner + "▏"
    cells = list(_filled(now, limit, inner))
    if peak is not None and peak > now:
        at = min(inner - 1, peak * inner // limit)
        cells[at] = _TICK
    return "▕" + "".join(cells) + "▏"


def _filled(now: int, limit: int, cells: int) -> str:
    eighths = min(cells * 8, now * cells * 8 // limit)
    if now > 0:
        eighths = max(1, eighths)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[part] if part else "")).ljust(cells)


def sparkline(values: Sequence[Optional[float]], width: int, ceiling: float) -> str:
    """The last `width` values, newest at the right; a gap where nothing was measured."""
    shown = list(values)[-width:]
    return "".join(_level(value, ceiling) for value in shown).rjust(width)


def _level(value: Optional[float], ceiling: float) -> str:
    if value is None:
        return " "
    if value <= 0 or ceiling <= 0:
        return "▁"
    return _LEVELS[min(len(_LEVELS) - 1, int(value / ceiling * len(_LEVELS)))]


def steady_ceiling(values: Sequence[Optional[float]]) -> float:
    """A round number at or above the largest value: a scale that seldom moves."""
    largest = max((value for value in values if value is not None), default=0.0)
    if largest <= 0:
        return 1.0
    power = 1.0
    while power < largest:
        power *= 10
    while power / 10 >= largest:
        power /= 10
    return next(power * step for step in _ROUND if power * step >= largest)
