"""Which functions are inlined where in a function."""

from __future__ import annotations

from bisect import bisect_left
from typing import Iterator, List, NamedTuple, Tuple

from udsprobe.symbols.dwarf import library
from udsprobe.symbols.dwarf.library import Die, Place, Span

CALLS_MAX = 5000
SPANS_MAX = 10_000
DEPTH_MAX = 64
"""Of functions in one another, and of blocks."""

OWN = -1
_BLOCKS = frozenset((library.BLOCK, library.TRY, library.CATCH))


class Call(NamedTuple):
    """A function that is inlined. `caller`: number of the call that it is in, or `OWN`."""

    place: Place
    caller: int


class Stretch(NamedTuple):
    """Where the same functions are inlined; `call`: the innermost, or `OWN`."""

    start: int
    end: int
    call: int


class TooMany(Exception):
    """More than any function has: half of them would name callers for those that are left out."""


def inlined(function: Die) -> Tuple[List[Call], List[Stretch]]:
    """All calls of a function, and stretches of those that have code, in their order.

    Raises:
        TooMany: above `CALLS_MAX` or `DEPTH_MAX`.
    """
    calls: List[Call] = []
    painted: List[Tuple[Span, int]] = []
    _add(function, OWN, 0, calls, painted)
    return calls, list(_stretches(painted))


def _add(
    within: Die, caller: int, depth: int, calls: List[Call], painted: List[Tuple[Span, int]]
) -> None:
    if depth > DEPTH_MAX:
        raise TooMany
    for kind, die in library.children(within):
        if kind in _BLOCKS:
            _add(die, caller, depth + 1, calls, painted)
        elif kind == library.INLINED:
            number = len(calls)
            painted += [(span, number) for span in library.spans(die)]
            calls.append(Call(library.place(die), caller))
            if len(calls) > CALLS_MAX or len(painted) > SPANS_MAX:
                raise TooMany
            _add(die, number, depth + 1, calls, painted)


def _stretches(painted: List[Tuple[Span, int]]) -> Iterator[Stretch]:
    """Those that are inlined in others come behind these, and have what is theirs."""
    edges = sorted({edge for span, _ in painted for edge in span})
    inside = [OWN] * len(edges)
    for (start, end), number in painted:
        first, last = bisect_left(edges, start), bisect_left(edges, end)
        inside[first:last] = [number] * (last - first)
    for start, end, number in zip(edges, edges[1:], inside):
        if number != OWN:
            yield Stretch(start, end, number)
