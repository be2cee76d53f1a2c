"""Subtraction of cumulative counters that only ever grow.

Knows no sample and no report. A counter that shrinks is a defect in what was
read, and is refused by name rather than shown.
"""

from __future__ import annotations

from typing import Dict, Iterable, Mapping, Optional, TypeVar

COUNTED_SHARE_MIN = 0.5
_Key = TypeVar("_Key", str, int)


class UnsoundError(ValueError):
    """What was read cannot be true, such as a counter that went backwards."""


def grown(name: str, last: int, first: int) -> int:
    """`last - first`.

    Raises:
        UnsoundError: the counter went backwards; the message names it.
    """
    try:
        growth = last - first
    except TypeError as error:  # of a forged recording
        raise UnsoundError(f"counter {name} is no number: {first!r}, {last!r}") from error
    if growth < 0:
        raise UnsoundError(f"counter {name} went backwards: {first} to {last}")
    return growth


def grown_if_measured(name: str, last: Optional[int], first: Optional[int]) -> Optional[int]:
    """`grown`, or None when either reading is not measured."""
    if last is None or first is None:
        return None
    return grown(name, last, first)


def grown_by_key(name: str, last: Mapping[_Key, int], first: Mapping[_Key, int]) -> Dict[_Key, int]:
    """`grown` by key, keys that did not grow left out; the largest first, then by key.

    Raises:
        UnsoundError: the counter of a key went backwards or the key is gone.
    """
    if last == first:
        return {}
    keys = set(last).union(first)
    growth = {key: grown(f"{name}[{key}]", last.get(key, 0), first.get(key, 0)) for key in keys}
    order = sorted(keys, key=lambda key: (-growth[key], key))
    return {key: growth[key] for key in order if growth[key]}


def added_by_key(parts: Iterable[Mapping[_Key, int]]) -> Dict[_Key, int]:
    """Counts by key, all parts together."""
    whole: Dict[_Key, int] = {}
    for part in parts:
        for key, count in part.items():
            whole[key] = whole.get(key, 0) + count
    return whole


def ratio(part: float, whole: float) -> Optional[float]:
    """`part / whole`; None when `whole` is zero."""
    return part / whole if whole else None


def counted_share(window: float, took: float, is_first: bool) -> float:
    """The part of a window in which things end that are counted, half of it at least.

    Where the observation began with the window (`is_first`), those that were under way then are
    not: of what takes a second that is the first second. What takes longer than half of the window
    tells too little.

    Args:
        window, took: in one unit.
    """
    return max(COUNTED_SHARE_MIN, 1 - took / window) if is_first and window else 1.0


def mean_us(total_ns: Optional[int], count: int) -> Optional[float]:
    """In µs; None when not measured, or of nothing."""
    return total_ns / count / 1000 if total_ns is not None and count else None


def percent(part: Optional[float], whole: Optional[float]) -> Optional[float]:
    """`part` in % of `whole`; None when either is not measured or `whole` is zero."""
    if part is None or whole is None:
        return None
    share = ratio(part, whole)
    return None if share is None else 100 * share
