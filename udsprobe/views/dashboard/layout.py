"""How many lines each panel gets: a function of the screen's height and nothing else."""

from __future__ import annotations

from typing import Dict, Mapping

LEAST = {"requests": 3, "listeners": 3, "system calls": 6, "targets": 3}
"""Lines with the panel's rule, on the smallest screen that is usable (80×24)."""

_COMFORT = {"requests": 10, "listeners": 5, "system calls": 13, "targets": 4}
_TALL = 36
_WIDE = 132


def is_tall(height: int) -> bool:
    """Room for more than one line of history."""
    return height >= _TALL


def is_roomy(width: int, height: int) -> bool:
    """Room for what the stage `app` consisted of."""
    return is_tall(height) or width >= _WIDE


def allot(room: int, wanted: Mapping[str, int]) -> Dict[str, int]:
    """Lines of each panel, rule included; together exactly `room`.

    Args:
        wanted: lines each panel could fill. What is left over separates the
            panels, and the rest follows the last.
    """
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
    return heights


def _largest(heights: Mapping[str, int]) -> str:
    return max(heights, key=lambda name: heights[name])
