"""Bodies → the values in them, any of them, of which a few at a time are made."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

from udsprobe.recording.bodies.body import unpack
from udsprobe.recording.bodies.columns import ABSENT
from udsprobe.recording.bodies.leaves import Builder, Leaf
from udsprobe.recording.bodies.limits import Limits

VALUES_AT_ONCE = 32
"""A value costs little more together with its neighbours: they differ by little."""

_CHUNKS_KEPT = 8

_Change = Tuple[List[int], List[Any]]
"""Leaves that changed from one value to the next, and what to."""


class Series:
    """The values of bodies that follow from each other.

    Args:
        kind: the dataclass that was flattened.
        bodies: the first self-contained, each other one after the one before it.
        is_part: `kind` has some of the fields only; the others are not read.

    Raises:
        What `unpack` raises. Reading values raises ValueError and `UnknownFieldError`.
    """

    def __init__(self, kind: type, bodies: Iterable[bytes], *, is_part: bool = False) -> None:
        self._kind, self._is_part = kind, is_part
        self._nodes: List[Any] = []
        self._changes: List[_Change] = []
        self._chunks: OrderedDict[int, Sequence[Any]] = OrderedDict()
        self._builder, self._built = self._new_builder(), 0
        self._limits = Limits()
        for body in bodies:
            self._add(body)

    def __len__(self) -> int:
        return len(self._changes)

    def __getitem__(self, index: int) -> Any:
        """The value with this number.

        Raises:
            IndexError: there is none.
        """
        if not 0 <= index < len(self):
            raise IndexError(index)
        number, at = divmod(index, VALUES_AT_ONCE)
        chunk = self._chunks.pop(number, None)
        if chunk is None:
            start = number * VALUES_AT_ONCE
            self._go_to(start)
            chunk = tuple(self._build(start, min(start + VALUES_AT_ONCE, len(self))))
        self._chunks[number] = chunk
        if len(self._chunks) > _CHUNKS_KEPT:
            self._chunks.popitem(last=False)
        return chunk[at]

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self[index]

    def _new_builder(self) -> Builder:
        builder = Builder(self._kind, is_part=self._is_part)
        builder.add_nodes(self._nodes)
        return builder

    def _add(self, body: bytes) -> None:
        packed = unpack(body, self._limits)
        if packed.first_node != len(self._nodes) + 1:
            raise ValueError("a sample without the one before it")
        nodes = [(parent, part) for parent, part in packed.nodes]
        self._nodes += nodes
        self._builder.add_nodes(nodes)
        first = len(self._changes)
        self._changes += [([], []) for _ in range(packed.samples)]
        for node, column in packed.columns.items():
            if self._builder.wants(node):
                for index, value in zip(*column.column()):
                    changed, values = self._changes[first + index]
                    changed.append(node)
                    values.append(value)

    def _go_to(self, index: int) -> None:
        """The builder as it is before the value with this number."""
        if self._built > index:
            self._builder, self._built = self._new_builder(), 0
        if self._built < index:
            merged: Dict[int, Any] = {}
            for changed, values in self._changes[self._built : index]:
                merged.update(zip(changed, values))
            self._apply(merged.items())
            self._built = index

    def _apply(self, change: Iterable[Tuple[int, Any]]) -> None:
        changed: Dict[int, Leaf] = {}
        gone = []
        for node, value in change:
            if value is ABSENT:
                gone.append(node)
            else:
                changed[node] = value
        self._builder.change(changed, gone)

    def _build(self, start: int, end: int) -> Iterator[Any]:
        for change in self._changes[start:end]:
            self._apply(zip(*change))
            self._built += 1
            yield self._builder.build()
