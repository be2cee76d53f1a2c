"""Dataclasses as JSON text and back: for what is written once, and for people to read."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, fields, is_dataclass
from typing import Any, Dict, Type, TypeVar, cast

from udsprobe.recording.bodies.leaves import UnknownFieldError, fits, hints, kind_of, not_recorded

Value = TypeVar("Value")


def to_json(value: Any) -> str:
    """One object, its fields in their order; ASCII."""
    return json.dumps(asdict(value), separators=(",", ":"))


def from_json(kind: Type[Value], text: str) -> Value:
    """What `to_json` was given.

    Raises:
        ValueError: it is no such value; `UnknownFieldError`.
    """
    return cast(Value, _object(kind, json.loads(text)))


def _object(kind: type, given: Any) -> Any:
    if not isinstance(given, dict):
        raise ValueError(f"no {kind.__name__}")
    known = hints(kind)
    for name in given:
        if name not in known:
            raise UnknownFieldError(f"{kind.__name__}.{name}")
    found: Dict[str, Any] = {}
    for each in fields(kind):
        if each.name in given:
            found[each.name] = _value(known[each.name], given[each.name])
        elif each.default is MISSING and each.default_factory is MISSING:
            found[each.name] = not_recorded(kind, each.name, known[each.name])
    return kind(**found)


def _value(hint: Any, given: Any) -> Any:
    kind = kind_of(hint)
    if given is None and kind.is_optional:
        return None
    if is_dataclass(kind.what):
        return _object(cast(type, kind.what), given)
    if kind.what is tuple and isinstance(given, list):
        return tuple(_value(kind.of, each) for each in given)
    if kind.what is dict and isinstance(given, dict):
        return {kind.key(key): _value(kind.of, each) for key, each in given.items()}
    if not isinstance(kind.what, type) or not fits(given, kind.what):
        raise ValueError(f"{given!r} is no {kind.what}")
    return given
