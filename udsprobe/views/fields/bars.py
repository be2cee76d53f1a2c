"""Bars against a limit, and sparklines: drawings made of characters, told by no colour."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.views.fields import numbers

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


class Part(NamedTuple):
    """A part of a whole in a stacked bar; `share` is 0 to 1."""

    name: str
    share: float
    fill: str


PROGRAM, KERNEL, RUN_QUEUE, WAITING = "█▓▒░"
"""Fills of a stacked bar: the darker, the more is done for the request."""

NOT_KEPT = "·"
"""Fill of a time of which nothing is known any more."""

_LEAST_DRAWN = 0.005
_LEAST_NAMED = 0.0005


def stacked_bar(parts: Sequence[Part], width: int, room: int) -> Tuple[str, str]:
    """A bar of `width` cells divided as the whole is, and a list of what it could not name.

    A part that is wide enough carries its name and percentage; the list, of at
    most `room` cells, names the others in their order, the largest if not all.
    """
    inner = width - 2
    drawn: List[str] = []
    unnamed: List[Part] = []
    fill_before = ""
    for part, cells in zip(parts, _cells(parts, inner)):
        divider = "│" if part.fill == fill_before and cells > 1 else ""
        free, label = cells - len(divider), _named(part)
        fits = free >= len(label)
        body = (f" {label} " if free > len(label) + 1 else label) if fits else ""
        drawn.append(divider + body.center(free, part.fill))
        if cells:
            fill_before = part.fill
        if not fits and part.share >= _LEAST_NAMED:
            unnamed.append(part)
    return "▕" + "".join(drawn).ljust(inner) + "▏", _list(unnamed, room)


def _cells(parts: Sequence[Part], inner: int) -> List[int]:
    """Whole cells for each part, `inner` together; what is worth drawing gets at least one."""
    whole = sum(part.share for part in parts)
    if whole <= 0:
        return [0] * len(parts)
    exact = [part.share / whole * inner for part in parts]
    cells = [
        max(int(size), 1 if part.share >= _LEAST_DRAWN else 0) for part, size in zip(parts, exact)
    ]
    while sum(cells) < inner:
        cells[_most(exact, cells, 1)] += 1
    while sum(cells) > inner:
        cells[_most(exact, cells, -1)] -= 1
    return cells


def _most(exact: Sequence[float], cells: Sequence[int], sign: int) -> int:
    """The part that deviates most from its exact size; one that has a single cell keeps it."""
    movable = [i for i in range(len(cells)) if sign > 0 or cells[i] > 1]
    return max(movable or range(len(cells)), key=lambda i: sign * (exact[i] - cells[i]))


def _named(part: Part) -> str:
    return f"{part.name} {numbers.share(part.share)}"


def _list(parts: Sequence[Part], room: int) -> str:
    kept = list(parts)
    while kept and len(_joined(kept)) > room:
        kept.remove(min(kept, key=lambda part: part.share))
    return _joined(kept)


def _joined(parts: Sequence[Part]) -> str:
    return " · ".join(map(_named, parts))


def share_bar(part: float, whole: float, width: int) -> str:
    """`███▌    `: a part of a whole, without ends; what is not zero is never empty."""
    if whole <= 0 or part <= 0:
        return " " * width
    eighths = max(1, min(width * 8, int(part / whole * width * 8)))
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)
