"""What happened between two readings of one thing, by what the types of its fields say.

A `Total`, counts by key and a histogram accumulate: what the earlier reading had is taken off.
All else is a state, and the later one stands.
"""

from __future__ import annotations

import collections.abc
import typing
from dataclasses import fields
from functools import cache
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, TypeVar

from udsprobe.model.counters import added_by_key, grown, grown_by_key
from udsprobe.model.histogram import NOTHING, added, subtract
from udsprobe.sample import LatencyCounts, with_changes
from udsprobe.totals import is_total

_Reading = TypeVar("_Reading")
_Less = Callable[[str, Any, Any], Any]


def growth(name: str, last: _Reading, first: Optional[_Reading]) -> _Reading:
    """`last` with what accumulated since `first` in place of what there is.

    Args:
        name: what was read, for the error.
        first: None when it was not there yet. What is None there had not begun, and counts from 0.

    Raises:
        UnsoundError: a counter went backwards.
    """
    kind: Any = type(last)
    grew: Dict[str, Any] = {}
    for field, less, nothing in _accumulating(kind):
        now = getattr(last, field)
        if now is not None:
            grew[field] = less(f"{name} {field}", now, getattr(first, field, nothing) or nothing)
    return with_changes(last, grew)


def together(readings: Iterable[Optional[_Reading]]) -> Optional[_Reading]:
    """Readings of like things as one: what accumulates is added up, else the first one stands.

    None where none of them is measured.
    """
    known = [each for each in readings if each is not None]
    if len(known) < 2:
        return known[0] if known else None
    kind: Any = type(known[0])
    sums: Dict[str, Any] = {}
    for field, less, _ in _accumulating(kind):
        parts = [getattr(each, field) for each in known if getattr(each, field) is not None]
        if parts:
            sums[field] = _MORE[less](parts)
    return with_changes(known[0], sums)


# How what is subtracted so is added up.
_MORE: Dict[_Less, Callable[[List[Any]], Any]] = {
    grown: sum,
    grown_by_key: added_by_key,
    subtract: added,
}


def by_name(grew: object, row: Any) -> Dict[str, Any]:
    """What a row of the report has under the name and type that it has in the sample."""
    kind: Any = type(grew)
    return {name: getattr(grew, name) for name in _shared(kind, row)}


@cache
def _accumulating(kind: Any) -> Tuple[Tuple[str, _Less, Any], ...]:
    """Field, how it is subtracted, and what there was before anything happened."""
    hints = typing.get_type_hints(kind, include_extras=True)
    found = ((each.name, _how(hints[each.name])) for each in fields(kind))
    return tuple((name, *how) for name, how in found if how is not None)


def _how(hint: Any) -> Optional[Tuple[_Less, Any]]:
    parts = {typing.get_origin(each) or each for each in (hint, *typing.get_args(hint))}
    if is_total(hint):
        return grown, 0
    if collections.abc.Mapping in parts:
        return grown_by_key, {}
    return (subtract, NOTHING) if LatencyCounts in parts else None


@cache
def _shared(kind: Any, row: Any) -> Tuple[str, ...]:
    here, there = typing.get_type_hints(kind), typing.get_type_hints(row)
    admit = {name: (hint, Optional[hint]) for name, hint in here.items()}
    return tuple(each.name for each in fields(kind) if there.get(each.name) in admit[each.name])
