"""How many lines each panel gets: a function of the screen's height and nothing else."""

from __future__ import annotations

from typing import Dict, Mapping

LEAST = {
    "findings": 2,
    "requests": 3,
    "listeners": 3,
    "system calls": 6,
    "targets": 3,
    "connections": 2,
}
"""Lines with the panel's rule; on 80×24 those that `shown` leaves."""

_COMFORT = {
    "findings": 3,
    "requests": 10,
    "listeners": 5,
    "system calls": 12,
    "targets": 4,
    "connections": 3,
}
_ON_TALL_SCREENS = ("findings", "connections")
_TALL = 36
_WIDE = 132


def is_tall(height: int) -> bool:
    """Room for more than one line of history."""
    return height >= _TALL


def is_roomy(width: int, height: int) -> bool:
    """Room for what the stage `app` consisted of."""
    return is_tall(height) or width >= _WIDE


def shown(wanted: Mapping[str, int], height: int) -> Dict[str, int]:
    """`wanted`, with nothing for the panels that only a tall screen has room for."""
    hidden = () if is_tall(height) else _ON_TALL_SCREENS
    return {name: 0 if name in hidden else lines for name, lines in wanted.items()}


def allot(room: int, wanted: Mapping[str, int]) -> Dict[str, int]:
    """Lines of each panel, rule included; together exactly `room`.

    Args:
        wanted: lines each panel could fill, 0 for one that is not shown. What is
            left over separates the panels, and the rest follows the last.
    """
    hidden = {name: 0 for name, lines in wanted.items() if not lines}
    wanted = {name: lines for name, lines in wanted.items() if lines}
    heights = {name: min(LEAST[name], lines) for name, lines in wanted.items()}
    for limits in (_COMFORT, wanted):
        for name in wanted:
            spare = room - sum(heights.values())
            target = min(wanted[name], max(limits[name], heights[name]))
            heights[name] += max(0, min(spare, target - heights[name]))
    while sum(heights.values()) > max(0, room):
        heights[_largest(heights)] -= 1
    for name in list(wanted)[:-1]:
        heights[name] += 1 if room > sum(heights.values()) else 0
    heights[list(wanted)[-1]] += max(0, room - sum(heights.values()))
    return {**heights, **hidden}


def _largest(heights: Mapping[str, int]) -> str:
    return max(heights, key=lambda name: heights[name])
