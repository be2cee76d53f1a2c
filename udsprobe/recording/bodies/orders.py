"""Orders of rows as what moved: from one sample to the next most rows keep their place.

Of each row its place, from 1 on, among those of the order before that are left; of a row that is
new 0, and its node, less that of the new one before.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from udsprobe.recording.bodies.leaves import Order
from udsprobe.recording.bodies.limits import Limits


def moves_of(orders: Sequence[Any]) -> Iterator[Any]:
    """A list of numbers in the place of each order; None and what is absent stay."""
    before: Order = ()
    for order in orders:
        if isinstance(order, tuple):
            yield list(_moves(order, before))
            before = order
        else:
            yield order


def _moves(order: Order, before: Order) -> Iterator[int]:
    left, known, last = list(before), set(before), 0
    for node in order:
        if node in known:
            place = left.index(node)
            del left[place]
            yield place + 1
        else:
            yield from (0, node - last)
            last = node


def orders_of(
    lengths: Sequence[Optional[int]], moves: Sequence[int], limits: Limits
) -> Iterator[Optional[Order]]:
    """The orders again.

    Args:
        lengths: how many of the `moves` are of each order; None is none.

    Raises:
        ValueError: they have rows twice, or rows that are none, or move more than any.
    """
    numbers = iter(moves)
    before: Tuple[int, ...] = ()
    for length in lengths:
        if length is None:
            yield None
            continue
        before = tuple(_rows(islice(numbers, length), list(before), limits))
        if before and (min(before) < 1 or len(set(before)) != len(before)):
            raise ValueError("rows that are repeated or missing")
        yield before


def _rows(moves: Iterator[int], left: List[int], limits: Limits) -> Iterator[int]:
    node = 0
    for place in moves:
        if not 0 <= place <= len(left):
            raise ValueError("rows that are repeated or missing")
        if place:
            limits.take("moves in orders", len(left) - place)
            yield left.pop(place - 1)
        else:
            node += next(moves, 0)
            yield node
