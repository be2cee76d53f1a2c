"""The child's part: reads addresses, writes what debug information tells of them, and ends."""

from __future__ import annotations

import sys
import time
from typing import IO, Iterator, List, Optional, Sequence

from udsprobe.symbols.dwarf import library
from udsprobe.symbols.dwarf.answers import END, written
from udsprobe.symbols.dwarf.confined import confine
from udsprobe.symbols.dwarf.debug_info import DebugInfo, Function
from udsprobe.symbols.dwarf.inlining import TooMany, inlined


def main(arguments: Sequence[str]) -> None:
    """Addresses in hexadecimal come one a line; a line is written for each function of theirs.

    Args:
        arguments: seconds that it should take; descriptors of the file, and of the one it shares
            information with, where there is one.
    """
    began_s = time.monotonic()
    seconds, (file, *alt) = float(arguments[0]), map(int, arguments[1:])
    library.libdw()
    confine(int(seconds) + 1)
    for line in answered(sys.stdin, file, alt[0] if alt else None):
        print(line, flush=True)
        if time.monotonic() - began_s > seconds:
            break
    print(END.decode(), end="", flush=True)


def answered(asked: IO[str], file: int, alt: Optional[int]) -> Iterator[str]:
    """One line for each function, however many of its addresses are asked for."""
    info = DebugInfo(file, alt)
    known: List[Function] = []
    for line in asked:
        address = int(line, 16)
        found = info.at(address)
        if found is not None and found not in known:
            known.append(found)
            yield _told(found)


def _told(function: Function) -> str:
    own = library.place(function.die)
    try:
        return written(own, function.spans, *inlined(function.die))
    except TooMany:
        return written(own, function.spans, (), ())
