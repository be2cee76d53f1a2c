"""Samples turned on their side: for each leaf of the tree, when it changed and to what."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Protocol, Sequence, Tuple

from udsprobe.recording.bodies.leaves import Component, Leaves, Nodes

ABSENT: Any = object()
"""The value of a leaf that is not there any more."""

Column = Tuple[Sequence[int], Sequence[Any]]
"""Indices of the samples in which a leaf changed, ascending, and its values from then on.

Before the first of them it was not there.
"""


class Columns(NamedTuple):
    """What a body holds.

    Attributes:
        samples: how many.
        first_node: number of the first of `nodes`; 1 begins anew.
        nodes: (parent, component) of the nodes that were not known before.
        columns: node → its changes.
    """

    samples: int
    first_node: int
    nodes: Sequence[Any]
    columns: Mapping[int, Column]


class PackedColumn(Protocol):
    """A column that is made when it is asked for: most readers want few of them."""

    def column(self) -> Column:
        """When it changed and to what.

        Raises:
            What `unpack` raises.
        """


class PackedColumns(NamedTuple):
    """As `Columns`, of a body that was read."""

    samples: int
    first_node: int
    nodes: Sequence[Any]
    columns: Mapping[int, PackedColumn]


def shapes(first_node: int, nodes: Sequence[Any]) -> Dict[int, int]:
    """Node → a number that nodes share which differ in their rows or indices: they look alike."""
    found: Dict[int, int] = {0: 0}
    ids: Dict[Any, int] = {}
    for number, (parent, component) in enumerate(nodes, first_node):
        step: Component = component
        if not isinstance(component, str):
            step = "*" if isinstance(component, list) else "0"
        found[number] = ids.setdefault((found.get(parent, 0), step), len(ids) + 1)
    return found


class Gathered:
    """Columns that grow sample by sample, from one that needs nothing before it.

    Attributes:
        count: samples in them.
        changes: of all columns.
    """

    def __init__(self) -> None:
        self.count = 0
        self.changes = 0
        self._columns: Dict[int, Tuple[List[int], List[Any]]] = {}

    def add(self, change: Columns) -> None:
        """The next sample, as `change_of` the one before; the first one of nothing."""
        for node, (_, values) in change.columns.items():
            column = self._columns.get(node)
            if column is None:
                column = self._columns[node] = ([], [])
            column[0].append(self.count)
            column[1].append(values[0])
        self.changes += len(change.columns)
        self.count += 1

    def columns(self, nodes: Nodes) -> Columns:
        """All of them; `nodes` are those of the leaves."""
        return Columns(self.count, 1, _places(nodes, 1), self._columns)


def change_of(nodes: Nodes, known: int, before: Leaves, after: Leaves) -> Columns:
    """One sample that follows another.

    Args:
        known: nodes that there were at the sample before.
    """
    changed: Dict[int, Column] = {
        node: (_FIRST, (value,))
        for node, value in after.items()
        if before.get(node, ABSENT) is not value and before.get(node, ABSENT) != value
    }
    changed.update((node, (_FIRST, (ABSENT,))) for node in before if node not in after)
    return Columns(1, known, _places(nodes, known), changed)


_FIRST = (0,)


def _places(nodes: Nodes, known: int) -> List[Any]:
    return list(zip(nodes.parents[known:], nodes.components[known:]))
