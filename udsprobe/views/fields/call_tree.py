"""Stacks put together: who called whom, and how much of the whole each call had."""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from udsprobe.model.report import CodeStack

WIDTH = 1000.0
NARROWEST = 1.0
"""A box that is narrower, of 1000, is left out; the table has its function."""

DEPTH_MAX = 60


class Box(NamedTuple):
    """One function, called from the one above: where it is, of WIDTH, and its samples or µs."""

    name: str
    depth: int
    left: float
    width: float
    samples: int


class Node:
    """A function where one path of calls led to it; `weight` of samples, or µs asleep."""

    def __init__(self) -> None:
        self.weight = 0
        self.below: Dict[str, Node] = {}

    def dearest_first(self) -> List[Tuple[str, Node]]:
        """What it called."""
        return sorted(self.below.items(), key=lambda item: (-item[1].weight, item[0]))


def weight_of(stack: CodeStack) -> int:
    """Samples of what ran, µs of what slept."""
    return stack.samples if stack.total_us is None else round(stack.total_us)


def call_tree(stacks: Sequence[CodeStack]) -> Node:
    """All of one kind, from the outermost functions down."""
    whole = Node()
    for stack in stacks:
        node, weight = whole, weight_of(stack)
        node.weight += weight
        for frame in stack.frames[:DEPTH_MAX]:
            node = node.below.setdefault(frame, Node())
            node.weight += weight
    return whole


def boxes(stacks: Sequence[CodeStack], narrowest: float = NARROWEST) -> List[Box]:
    """From the outermost functions down; those called most often are to the left."""
    whole = call_tree(stacks)
    if not whole.weight:
        return []
    return list(_boxes(whole, 0, 0.0, WIDTH / whole.weight, narrowest))


def _boxes(node: Node, depth: int, left: float, scale: float, narrowest: float) -> Iterator[Box]:
    for name, below in node.dearest_first():
        width = below.weight * scale
        if width >= narrowest:
            yield Box(name, depth, left, width, below.weight)
            yield from _boxes(below, depth + 1, left, scale, narrowest)
        left += width
