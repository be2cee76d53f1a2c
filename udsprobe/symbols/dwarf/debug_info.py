"""From an address to the function that debug information has there."""

from __future__ import annotations

from bisect import bisect_right
from typing import Dict, FrozenSet, Generic, Iterable, List, NamedTuple, Optional, Tuple, TypeVar

from udsprobe.symbols.dwarf import library
from udsprobe.symbols.dwarf.library import Die, Span

UNITS_MAX = 200_000
# Classes have declarations in the first place.
_WITHIN = frozenset((library.NAMESPACE, library.MODULE))
# Lambdas of C++, and functions in functions of GNU C.
_ALSO_WITHIN = _WITHIN | {
    *(library.CLASS, library.STRUCTURE, library.UNION),
    *(library.FUNCTION, library.BLOCK, library.TRY, library.CATCH),
}
Of = TypeVar("Of")


class SpanIndex(Generic[Of]):
    """Which of them an address belongs to; of several the one that begins last."""

    def __init__(self, found: Iterable[Tuple[Span, Of]]) -> None:
        rows = sorted(found, key=lambda row: (row[0][0], -row[0][1]))
        self._starts = [start for (start, _), _ in rows]
        self._rows = rows
        self._reach: List[int] = []
        reach = 0
        for (_, end), _ in rows:
            reach = max(reach, end)
            self._reach.append(reach)

    def at(self, address: int) -> Optional[Of]:
        """None: it belongs to none."""
        place = bisect_right(self._starts, address) - 1
        while place >= 0 and self._reach[place] > address:
            (_, end), found = self._rows[place]
            if address < end:
                return found
            place -= 1
        return None


class Function(NamedTuple):
    """Code of its own; `spans`: where."""

    die: Die
    spans: List[Span]


class DebugInfo:
    """Of one file.

    Args:
        file: descriptor of the file with debug information.
        alt: of the one that it shares a part of it with; None: it does not, or it is not known.

    Raises:
        ValueError: it has none that can be read.
        OSError, AttributeError: there is no libdw.
    """

    def __init__(self, file: int, alt: Optional[int] = None) -> None:
        debug = library.begin(file)
        if debug is None:
            raise ValueError("no debug information that can be read")
        if alt is not None:
            shared = library.begin(alt)
            if shared is not None:
                library.libdw().dwarf_setalt(debug, shared)
        tops = list(_units(debug))
        self._tops = tops
        self._units = SpanIndex(
            (span, number) for number, top in enumerate(tops) for span in library.spans(top)
        )
        self._functions: Dict[Tuple[int, FrozenSet[int]], SpanIndex[Function]] = {}

    def at(self, address: int) -> Optional[Function]:
        """None: no function that it tells is there."""
        unit = self._units.at(address)
        if unit is None:
            return None
        # Most are found at once, which takes a quarter of the time of looking everywhere.
        found = self._index(unit, _WITHIN).at(address)
        return found or self._index(unit, _ALSO_WITHIN).at(address)

    def _index(self, unit: int, within: FrozenSet[int]) -> SpanIndex[Function]:
        key = unit, within
        if key not in self._functions:
            self._functions[key] = SpanIndex(
                (span, each) for each in _functions(self._tops[unit], within) for span in each.spans
            )
        return self._functions[key]


def _units(debug: int) -> Iterable[Die]:
    for count, top in enumerate(library.units(debug)):
        if count >= UNITS_MAX:
            return
        yield top


def _functions(top: Die, within: FrozenSet[int]) -> Iterable[Function]:
    waiting = [top]
    while waiting:
        for kind, die in library.children(waiting.pop()):
            if kind == library.FUNCTION:
                spans = library.spans(die)
                if spans:
                    yield Function(library.copied(die), spans)
            if kind in within:
                waiting.append(library.copied(die))
