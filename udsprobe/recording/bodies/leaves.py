"""Dataclasses as numbered leaves, and back: what a recording stores of any sample.

Generic over the dataclasses: a field that is added to a sample is carried
without a change here. Supported are int, float, bool, str, dataclasses,
`Optional`, `Tuple[X, ...]` and `Mapping[str | int, X]`.

A value is a tree. Every place in it is a *node* with a number; a component
leads from its parent to it: a field's name, an index, or a key in a list.
Scalars are leaves. A tuple of dataclasses and a mapping are also leaves, whose
value is the order of their children. Zeros of a `Tuple[int, ...]` are left
out: histograms are sparse. So is a None that is its field's default.
"""

from __future__ import annotations

import collections.abc
import math
import typing
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Set, Tuple, Union, cast

Component = Union[str, int, List[Any]]
Order = Tuple[int, ...]
Scalar = Union[None, bool, int, float, str]
Leaf = Union[Scalar, Order]
Leaves = Dict[int, Leaf]

NODES_MAX = 2_000_000
"""Places in the samples of one block: ten times those of 5,000 threads."""

NUMBERS_MAX = 1 << 27
"""Numbers put in all tuples of a block's samples together: a gigabyte."""

ROWS_MAX = 1 << 26
"""Rows of all its samples together: 600 samples of 100,000."""

DEPTH_MAX = 32
_NUMBERS_KEPT_MAX = 1 << 24
_LENGTH_MAX = 1 << 16
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1
ROOT = 0
LENGTH = "#"
_SCALARS = (bool, int, float, str)
_PLAIN = frozenset((*_SCALARS, type(None)))
# Of earlier versions, read by nothing: a recording that has them is no newer one.
FORMER = frozenset({"in_progress_again"})
_NAMING = frozenset({"pid", "tid", "inode", "netns"})


class UnknownFieldError(ValueError):
    """The tree has a field that the dataclass does not: a newer version wrote it."""


class Nodes:
    """The numbers of places. 0 is the root; a parent's is lower than its children's."""

    def __init__(self) -> None:
        self.parents: List[int] = [-1]
        self.components: List[Component] = [""]
        self._ids: Dict[Tuple[int, Any], int] = {}

    def __len__(self) -> int:
        return len(self.parents)

    def child(self, parent: int, component: Any) -> int:
        """The node below `parent`, made when it is new; lists are given as tuples."""
        known = self._ids.get((parent, component))
        if known is not None:
            return known
        written = list(component) if isinstance(component, tuple) else component
        self._ids[parent, component] = len(self.parents)
        self.parents.append(parent)
        self.components.append(written)
        return len(self.parents) - 1


@cache
def hints(kind: Any) -> Dict[str, Any]:
    """Types of a dataclass's fields, in their order."""
    resolved = typing.get_type_hints(kind)
    return {each.name: resolved[each.name] for each in fields(kind)}


@cache
def _none_by_default(kind: Any) -> FrozenSet[str]:
    """Fields that are None where there is nothing of them: they need no leaf for that."""
    return frozenset(each.name for each in fields(kind) if each.default is None)


class Flattener:
    """Values of one type as leaves; unchanged parts of the last one are not looked at again."""

    def __init__(self) -> None:
        self.nodes = Nodes()
        self._seen: Dict[int, Tuple[Any, Leaves]] = {}
        # Of dataclasses: field → its node.
        self._below: Dict[int, Dict[str, int]] = {}

    def leaves(self, value: Any) -> Leaves:
        """Node → scalar or order of all of `value`, a dataclass."""
        return self._object(ROOT, value)

    def _object(self, node: int, value: Any) -> Leaves:
        seen = self._seen.get(node)
        if seen is not None and (seen[0] is value or seen[0] == value):
            return seen[1]
        out: Leaves = {}
        below = self._below.setdefault(node, {})
        kind: Any = type(value)
        none_by_default = _none_by_default(kind)
        for name in hints(kind):
            field = getattr(value, name)
            if field is None and name in none_by_default:
                continue
            child = below.get(name)
            if child is None:
                child = below[name] = self.nodes.child(node, name)
            if type(field) in _PLAIN:
                out[child] = field
            else:
                self._put(child, field, out)
        self._seen[node] = (value, out)
        return out

    def _put(self, node: int, value: Any, out: Leaves) -> None:
        if value is None or isinstance(value, _SCALARS):
            out[node] = value
        elif isinstance(value, tuple):
            self._tuple(node, value, out)
        elif is_dataclass(value):
            out.update(self._object(node, value))
        else:
            keyed = [(self.nodes.child(node, (key,)), each) for key, each in value.items()]
            self._children(node, keyed, out)

    def _tuple(self, node: int, values: Tuple[Any, ...], out: Leaves) -> None:
        if values and type(values[0]) is int:
            out[self.nodes.child(node, LENGTH)] = len(values)
            for index, value in enumerate(values):
                if value:
                    out[self.nodes.child(node, index)] = value
            return
        times: Dict[Tuple[Any, ...], int] = {}
        keyed = []
        for index, value in enumerate(values):
            name = _name_of(value) if is_dataclass(value) else (index,)
            times[name] = times.get(name, 0) + 1
            keyed.append((self.nodes.child(node, (*name, times[name])), value))
        self._children(node, keyed, out)

    def _children(self, node: int, keyed: List[Tuple[int, Any]], out: Leaves) -> None:
        out[node] = tuple(child for child, _ in keyed)
        for child, value in keyed:
            self._put(child, value, out)


def _name_of(row: Any) -> Tuple[Any, ...]:
    """What a row is recognised by in the next sample: its words and its numbers of things."""
    name: List[Any] = []
    kind: Any = type(row)
    for field, is_object, is_number in _naming(kind):
        value = getattr(row, field)
        if is_object:
            name.extend(() if value is None else _name_of(value))
        elif is_number or isinstance(value, str):
            name.append(value)
    return tuple(name)


@cache
def _naming(kind: Any) -> Tuple[Tuple[str, bool, bool], ...]:
    """Fields that a row is recognised by: their names, and what they are."""
    return tuple(
        (field, kind_of(hint).is_object, field in _NAMING)
        for field, hint in hints(kind).items()
        if field in _NAMING or hint is str or kind_of(hint).is_object
    )


@dataclass(frozen=True)
class _Kind:
    """A type hint taken apart: what it is, and whether None is one of its values."""

    is_optional: bool
    what: Any
    of: Any = None
    key: Any = None
    is_object: bool = False


@cache
def kind_of(hint: Any) -> _Kind:
    """A hint as this module understands it.

    Raises:
        TypeError: it is none of the supported types.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Union:
        inner = [each for each in arguments if each is not type(None)]
        if len(inner) != 1:
            raise TypeError(f"{hint} cannot be recorded")
        plain = kind_of(inner[0])
        return replace(plain, is_optional=True)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _Kind(False, tuple, arguments[0])
    if origin in (dict, collections.abc.Mapping) and arguments[0] in (str, int):
        return _Kind(False, dict, arguments[1], arguments[0])
    if hint in _SCALARS or is_dataclass(hint):
        return _Kind(False, hint, is_object=is_dataclass(hint))
    raise TypeError(f"{hint} cannot be recorded")


class Builder:
    """Values of one type from leaves; parts in which nothing changed are kept.

    Args:
        kind: the dataclass.
        is_part: the tree has fields that `kind` does not, and need not have.
    """

    def __init__(self, kind: type, *, is_part: bool = False) -> None:
        self._kind = kind
        self._is_part = is_part
        self._numbers_left, self._rows_left = NUMBERS_MAX, ROWS_MAX
        self._numbers_kept = 0
        self._depths: List[int] = [0]
        # How many leaves there are at a node and below.
        self._held: List[int] = [0]
        self._parents: List[int] = [-1]
        self._components: List[Component] = [""]
        self._children: List[Dict[Any, int]] = [{}]
        self._leaves: Leaves = {}
        self._built: Dict[int, Any] = {}
        # What a node was built from, and which of its children changed since.
        self._fields_of: Dict[int, Dict[str, Any]] = {}
        self._numbers_of: Dict[int, List[int]] = {}
        self._changed: Dict[int, Set[int]] = {}
        self._wanted: List[bool] = [True]

    def add_nodes(self, nodes: List[Tuple[int, Component]]) -> None:
        """Places in the order of their numbers.

        Raises:
            ValueError: a parent is not known, or there are more than any sample has.
        """
        if len(nodes) + self.count > NODES_MAX:
            raise ValueError("too many places to be samples")
        known = hints(self._kind)
        for parent, component in nodes:
            if not 0 <= parent < len(self._parents) or self._depths[parent] >= DEPTH_MAX:
                raise ValueError(f"no node {parent}")
            self._depths.append(self._depths[parent] + 1)
            self._held.append(0)
            is_left_out = self._is_part and parent == ROOT and component not in known
            is_wanted = self._wanted[parent] and not is_left_out
            if is_wanted:
                key = tuple(component) if isinstance(component, list) else component
                self._children[parent][key] = len(self._parents)
            self._parents.append(parent)
            self._components.append(component)
            self._children.append({})
            self._wanted.append(is_wanted)

    @property
    def count(self) -> int:
        """Nodes known."""
        return len(self._parents)

    def wants(self, node: int) -> bool:
        """Whether a leaf there is part of the value."""
        return self._wanted[node]

    def change(self, changed: Mapping[int, Leaf], gone: Iterable[int]) -> None:
        """Set leaves, and take away those that are gone."""
        for node in gone:
            if node in self._leaves:
                del self._leaves[node]
                self._hold(node, -1)
            self._forget(node)
        for node in changed:
            if node not in self._leaves:
                self._hold(node, 1)
            self._forget(node)
        self._leaves.update(changed)

    def _hold(self, node: int, leaves: int) -> None:
        while node >= ROOT:
            self._held[node] += leaves
            node = self._parents[node]

    def _forget(self, node: int) -> None:
        """What is above a node that changed has to be built again."""
        self._built.pop(node, None)
        while node > ROOT:
            parent = self._parents[node]
            changed = self._changed.setdefault(parent, set())
            if node in changed:
                return
            changed.add(node)
            self._built.pop(parent, None)
            node = parent

    def build(self) -> Any:
        """The value as the leaves are now.

        Raises:
            ValueError: the leaves are of no such value; `UnknownFieldError`.
        """
        return self._object(ROOT, self._kind)

    def _object(self, node: int, kind: type) -> Any:
        built = self._built.get(node)
        if built is None:
            fields_now = self._fields_again(node, kind) or self._fields(node, kind)
            self._fields_of[node] = fields_now
            built = self._built[node] = kind(**fields_now)
        return built

    def _fields_again(self, node: int, kind: type) -> Optional[Dict[str, Any]]:
        """The fields with what changed in them; None when that is not all there is to do."""
        changed, found = self._changed.pop(node, set()), self._fields_of.get(node)
        if found is None:
            return None
        known = hints(kind)
        for child in changed:
            name = self._components[child]
            if name not in found or not self._is_there(child):
                return None
            found[str(name)] = self._value(child, known[str(name)])
        return found

    def _fields(self, node: int, kind: type) -> Dict[str, Any]:
        below, known = self._children[node], hints(kind)
        unknown = [name for name in below if name not in known and name not in FORMER]
        if unknown:
            raise UnknownFieldError(f"{kind.__name__}.{unknown[0]}")
        found: Dict[str, Any] = {}
        for each in fields(kind):
            child = below.get(each.name)
            if child is not None and self._is_there(child):
                found[each.name] = self._value(child, known[each.name])
            elif each.default is MISSING and each.default_factory is MISSING:
                found[each.name] = not_recorded(kind, each.name, known[each.name])
        return found

    def _is_there(self, node: int) -> bool:
        return self._held[node] > 0

    def _value(self, node: int, hint: Any) -> Any:
        kind = kind_of(hint)
        leaf = self._leaves.get(node, self)
        if leaf is None and kind.is_optional:
            return None
        if kind.is_object:
            return self._object(node, cast(type, kind.what))
        if kind.what is tuple and kind.of is int:
            return self._numbers(node, leaf)
        if kind.what in (tuple, dict):
            return self._rows(node, kind, leaf)
        if leaf is self or not fits(leaf, kind.what):
            raise ValueError(f"{leaf!r} is no {kind.what.__name__}")
        return leaf

    def _rows(self, node: int, kind: _Kind, order: Any) -> Any:
        of_this = isinstance(order, tuple) and len(order) <= len(self._children[node])
        if not of_this or any(self._parents[each] != node for each in order):
            raise ValueError("rows without an order")
        self._rows_left -= len(order)
        if self._rows_left < 0:
            raise ValueError("too many rows to be samples")
        self._changed.pop(node, None)
        if kind.what is tuple:
            return tuple(self._value(child, kind.of) for child in order)
        return {self._key(child, kind.key): self._value(child, kind.of) for child in order}

    def _key(self, node: int, kind: type) -> Any:
        component = self._components[node]
        if isinstance(component, list) and len(component) == 1 and fits(component[0], kind):
            return component[0]
        raise ValueError(f"{component!r} is no key")

    def _numbers(self, node: int, leaf: Any) -> Tuple[int, ...]:
        changed: Iterable[int] = self._changed.pop(node, ())
        if leaf == ():
            self._numbers_of.pop(node, None)
            return ()
        length = self._leaves.get(self._children[node].get(LENGTH, -1))
        if type(length) is not int or not 0 <= length <= _LENGTH_MAX:
            raise ValueError("numbers without a length")
        numbers = self._numbers_of.get(node)
        if numbers is None or len(numbers) != length:
            numbers = self._new_numbers(node, length)
            changed = self._children[node].values()
            self._spend(len(self._children[node]))
        self._spend(length)
        for child in changed:
            self._set_number(numbers, child)
        return tuple(numbers)

    def _new_numbers(self, node: int, length: int) -> List[int]:
        self._numbers_kept += length
        if self._numbers_kept > _NUMBERS_KEPT_MAX:
            self._numbers_of.clear()
            self._numbers_kept = length
        numbers = self._numbers_of[node] = [0] * length
        return numbers

    def _spend(self, numbers: int) -> None:
        self._numbers_left -= numbers
        if self._numbers_left < 0:
            raise ValueError("too many numbers to be samples")

    def _set_number(self, numbers: List[int], child: int) -> None:
        index, value = self._components[child], self._leaves.get(child, 0)
        if index == LENGTH:
            return
        if type(index) is not int or index < 0 or not fits(value, int):
            raise ValueError(f"{value!r} at {index!r}")
        if index < len(numbers):
            numbers[index] = cast(int, value)
        elif child in self._leaves:
            raise ValueError(f"{value!r} at {index!r}")


def fits(value: Any, kind: type) -> bool:
    """Whether a scalar is of this type, finite and of 64 bits; a whole number is a float too."""
    if type(value) is int and kind in (int, float):
        return _INT_MIN <= value <= _INT_MAX
    return type(value) is kind and not (isinstance(value, float) and not math.isfinite(value))


def not_recorded(kind: type, name: str, hint: Any) -> Optional[Any]:
    """None for a field without a default that an older version did not write.

    Raises:
        ValueError: the field cannot be None.
    """
    if kind_of(hint).is_optional:
        return None
    raise ValueError(f"{kind.__name__}.{name} is not in it")
