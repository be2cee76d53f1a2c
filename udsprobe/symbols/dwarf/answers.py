"""What the child tells of a function: a line of JSON, which its reader does not trust."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from functools import lru_cache
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.compiled_sources import COMPILED
from udsprobe.printable import printable
from udsprobe.symbols.demangled import function_name
from udsprobe.symbols.dwarf.inlining import OWN, Call, Stretch
from udsprobe.symbols.dwarf.library import Place, Span

END = b"end"
"""Behind the last line: nothing is missing."""

# Headers of C, C++ and the compiler, and Rust's sources.
_LIBRARY = re.compile(
    r"(.*/)?include/([\w.+-]+/)?c\+\+/|/usr/include/([\w.+-]+/)?(bits|sys)/"
    r"|.*/lib(64)?/(gcc|clang|llvm)[^/]*/(.*/)?include/"
    r"|(.*/)?rustc[-/][^/]+/library/|/rust/deps/"
    r"|(.*/lib/rustlib/src/rust/)?library/(core|alloc|std)/"
)


class Source(NamedTuple):
    """A function that debug information tells.

    Attributes:
        file, line: where it is declared.
        is_library: it is of a language's library, or of the compiler.
    """

    name: Optional[str]
    file: Optional[str] = None
    line: Optional[int] = None
    is_library: bool = False


class Told(NamedTuple):
    """Of a function with code of its own.

    Attributes:
        spans: where it is.
        calls: what is inlined in it, each with the number of the one it is in, or `OWN`.
        starts, ends, inside: stretches of code in their order, and the innermost call of each.
    """

    own: Source
    spans: Sequence[Span]
    calls: Sequence[Tuple[Source, int]]
    starts: Sequence[int]
    ends: Sequence[int]
    inside: Sequence[int]

    def inlined_at(self, address: int) -> List[Source]:
        """The innermost first.

        One without a name, or of a library, counts as the function around it: it would hide who
        used it.
        """
        return [each for each in self.calls_at(address) if each.name and not each.is_library]

    def calls_at(self, address: int) -> List[Source]:
        """All that are inlined there, the innermost first."""
        place = bisect_right(self.starts, address) - 1
        found: List[Source] = []
        number = self.inside[place] if place >= 0 and address < self.ends[place] else OWN
        while number != OWN:
            source, number = self.calls[number]
            found.append(source)
        return found


def written(
    own: Place, spans: Sequence[Span], calls: Sequence[Call], stretches: Sequence[Stretch]
) -> str:
    """One function; names are bytes, of which each is a letter, and each place is told once."""
    places = list(dict.fromkeys((own, *(each.place for each in calls))))
    numbers = {place: number for number, place in enumerate(places)}
    told = {
        "places": [_plain(each) for each in places],
        "spans": spans,
        "calls": [(numbers[each.place], each.caller) for each in calls],
        "stretches": stretches,
    }
    return json.dumps(told, separators=(",", ":"))


def read(line: bytes) -> Told:
    """What `written` wrote.

    Raises:
        ValueError: it is nothing of that kind.
    """
    try:
        told = json.loads(line)
        places = [_source(*row) for row in told["places"]]
        calls = [(places[_number(place)], _number(up, OWN)) for place, up in told["calls"]]
        rows = [_stretch(*row) for row in told["stretches"]]
        spans = [(_number(start), _number(end)) for start, end in told["spans"]]
        own = places[0]
    except (KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("not what the child writes") from error
    is_one = all(caller < number for number, (_, caller) in enumerate(calls))
    if not is_one or any(row.call >= len(calls) for row in rows) or rows != sorted(rows):
        raise ValueError("not what the child writes")
    starts, ends, inside = zip(*rows) if rows else ((), (), ())
    return Told(own, spans, calls, array("Q", starts), array("Q", ends), array("i", inside))


def _stretch(*numbers: Any) -> Stretch:
    return Stretch(*map(_number, numbers))


def _plain(place: Place) -> List[Any]:
    texts = (each and each.decode("latin-1") for each in (place.name, place.file))
    return [*texts, place.line]


@lru_cache(maxsize=20_000)
def _source(name: Optional[str], file: Optional[str], line: Any) -> Source:
    function = None if name is None else function_name(name.encode("latin-1"))
    is_library = file is not None and _LIBRARY.match(file) is not None
    return Source(function, *_where(file, line), is_library)


def _where(file: Optional[str], line: Any) -> Tuple[Optional[str], Optional[int]]:
    """None of a file that could be a script: a header without a suffix, a generator's input."""
    if file is None or not file.endswith(COMPILED):
        return None, None
    return printable(file.encode("latin-1")), None if line is None else _number(line)


def _number(found: Any, least: int = 0) -> int:
    if type(found) is not int or not least <= found < 1 << 64:
        raise ValueError("not a number of ours")
    return found
