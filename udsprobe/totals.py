"""How a sample's dataclasses say which of their numbers accumulate."""

from __future__ import annotations

import typing
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Tuple

_ACCUMULATES = object()
Total = Annotated[int, _ACCUMULATES]
"""A count, or a sum of bytes or ns, that only grows; every other `int` is a state."""


@cache
def totals(kind: Any) -> Tuple[str, ...]:
    """Fields of a dataclass that are a `Total`, or one that may be None; in their order."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(each.name for each in fields(kind) if is_total(hints[each.name]))


def is_total(hint: Any) -> bool:
    """Whether a type, its marks included, is a `Total`, or one that may be None."""
    parts = (hint, *typing.get_args(hint))
    return any(_ACCUMULATES in getattr(part, "__metadata__", ()) for part in parts)
