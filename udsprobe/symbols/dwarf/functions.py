"""What is known of the functions of one file by its debug information, each asked for once."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from typing import List, Optional, Set, Tuple

from udsprobe.symbols.dwarf.answers import Told, read
from udsprobe.symbols.dwarf.child import Answer, ask

ONCE_S_MAX = 4.0
"""That one look may take, also where others have the CPUs: a file that takes longer is not asked
again."""

FIRST_S, PART_MAX = 3.0, 0.01
"""CPU time that all looks may take: so much, and so much of the time that passes."""

TOLD_BYTES_MAX = 16 << 20
"""Of answers, which are kept: those of Rust and C++ have 3 to 30 KB for a function."""

ADDRESSES_MAX = 2000
"""In one look."""

_ADDRESSES_KNOWN_MAX = 50_000


class Allowance:
    """For looks at the debug information of all files, and what they took.

    Args:
        once_s, first_s: as `ONCE_S_MAX` and `FIRST_S`.

    Attributes:
        cpu_ns: CPU time of the children.
        pids: that these had.
    """

    def __init__(self, once_s: float = ONCE_S_MAX, first_s: float = FIRST_S) -> None:
        self._once_s, self._first_s = once_s, first_s
        self._began_s = time.monotonic()
        self._took_s = 0.0
        self._told_bytes = 0
        self.cpu_ns = 0
        self.pids: Set[int] = set()

    def seconds(self) -> float:
        """That the next one may take; 0: none may be."""
        passed_s = time.monotonic() - self._began_s
        is_left = self._took_s < self._first_s + PART_MAX * passed_s
        return self._once_s if is_left and self._told_bytes <= TOLD_BYTES_MAX else 0.0

    def add(self, seconds: float, answer: Answer) -> None:
        """What one took, and told.

        Args:
            seconds: that passed. They count as a whole where the child had to be ended: it may
                have waited for something.
        """
        self._took_s += answer.cpu_ns / 1e9 if answer.is_whole else seconds
        self._told_bytes += sum(map(len, answer.lines))
        self.cpu_ns += answer.cpu_ns
        self.pids.add(answer.pid)


class DebugFunctions:
    """Of one file. Addresses are its own.

    Args:
        file, alt: descriptors, as `DebugInfo` has them; they are kept until `close`.
    """

    def __init__(self, file: int, alt: Optional[int], allowance: Allowance) -> None:
        self._file, self._alt, self._allowance = file, alt, allowance
        self._wanted: Counter[int] = Counter()
        self._without: Set[int] = set()
        self._told: List[Told] = []
        self._spans: List[Tuple[int, int, int]] = []
        self._is_over = False

    def want(self, address: int) -> None:
        """To be asked for with the next look, where it is not known."""
        if not self._is_over and address not in self._without and self.at(address) is None:
            self._wanted[address] += 1

    def look(self) -> bool:
        """Ask for all that are wanted, those first that are wanted most often.

        What is not told now stays as it is. Whether more is known than before.
        """
        asked = [address for address, _ in self._wanted.most_common(ADDRESSES_MAX)]
        self._wanted.clear()
        seconds = self._allowance.seconds()
        if self._is_over or not asked:
            return False
        before = len(self._told)
        if seconds:
            self._ask(asked, seconds)
        self._settle(asked)
        return len(self._told) > before

    def at(self, address: int) -> Optional[Told]:
        """The function that has it; None: not told."""
        place = bisect_right(self._spans, (address, 1 << 64, 0)) - 1
        if place < 0:
            return None
        _, end, number = self._spans[place]
        return self._told[number] if address < end else None

    def close(self) -> None:
        """Give the files back. May be called twice."""
        self._is_over = True
        for descriptor in (self._file, self._alt):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self._file, self._alt = -1, None

    def _ask(self, asked: List[int], seconds: float) -> None:
        began_s = time.monotonic()
        answer = ask(self._file, self._alt, asked, seconds)
        with suppress(ValueError):
            for line in answer.lines:
                self._add(read(line))
        self._spans.sort()
        self._allowance.add(time.monotonic() - began_s, answer)
        self._is_over = not answer.is_whole

    def _add(self, told: Told) -> None:
        self._told.append(told)
        self._spans += [(start, end, len(self._told) - 1) for start, end in told.spans]

    def _settle(self, asked: List[int]) -> None:
        """A name that is given once is given always."""
        if len(self._without) > _ADDRESSES_KNOWN_MAX:
            self._is_over = True
        self._without.update(each for each in asked if self.at(each) is None)
