"""Which goroutine has started which, and where: by what each knows of that itself.

Source: runtime2.go (`g`: goid, parentGoid, gopc, ancestors, startpc) of Go 1.21 to 1.26; before, a
goroutine knew only where it was started. Where in `g` these words are differs by version: `startpc`
is where the function of each begins that it began in, and `goid` is 1 for the main one.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.symbols.go.goroutines import Parked
from udsprobe.symbols.unwinding import Activation

_WORDS = 56
# Words of `g`: behind `sched` and before what signals have.
_NUMBERS = range(14, 24)
_PARENT_BEFORE, _PLACE_BEFORE = 3, 2
_PROVED_BY, _AGREE_MIN, _NUMBER_MAX = 3, 0.8, 1 << 48
_ENDS, _MAIN = ("runtime.goexit", "runtime.goexit.abi0"), "runtime.main"


class Origin(NamedTuple):
    """Of one that was met.

    Attributes:
        parent: the number, among those that were met, of the one that started it; None: it is none
            of them. place: the instruction behind the `go` statement.
    """

    parent: Optional[int]
    place: int


class Begun(NamedTuple):
    """One that was met, and its calls, the innermost first."""

    one: Parked
    calls: Sequence[Activation]


class Origins:
    """Of one process.

    Args:
        read: address, count → so many words of memory; raises OSError.
        function_at: the name of the function that an instruction is of. bounds_of: where that
            function begins, and its size in bytes.
    """

    def __init__(
        self,
        read: Callable[[int, int], Tuple[int, ...]],
        function_at: Callable[[int], Optional[str]],
        bounds_of: Callable[[int], Optional[Tuple[int, int]]],
    ) -> None:
        self._read, self._function_at, self._bounds_of = read, function_at, bounds_of
        self._number_at: Optional[int] = None
        self._begin_at: Optional[int] = None

    def of(self, all_met: Sequence[Begun]) -> List[Optional[Origin]]:
        """Of each; None: not known."""
        words = [self._words(each.one.address) for each in all_met]
        if self._number_at is None or self._begin_at is None:
            self._learn(all_met, words)
        number_at, begin_at = self._number_at, self._begin_at
        if number_at is None or begin_at is None:
            return [None] * len(all_met)
        met = {each[number_at]: at for at, each in enumerate(words) if each}
        return [
            Origin(met.get(each[begin_at - _PARENT_BEFORE]), each[begin_at - _PLACE_BEFORE])
            if each
            else None
            for each in words
        ]

    def _words(self, address: int) -> Tuple[int, ...]:
        """None of one whose memory cannot be read."""
        with suppress(OSError):
            return self._read(address, _WORDS)
        return ()

    def _learn(self, all_met: Sequence[Begun], words: Sequence[Tuple[int, ...]]) -> None:
        begins = [self._begin(each.calls) for each in all_met]
        self._begin_at = _agreed(begins, words)
        mains = [each for each, begin in zip(words, begins) if each and self._is_main(begin)]
        known = [each for each in words if each]
        likely = (at for at in _NUMBERS if len(mains) == 1 and mains[0][at] == 1)
        self._number_at = next((at for at in likely if _are_numbers(known, at)), None)

    def _begin(self, calls: Sequence[Activation]) -> Optional[int]:
        """Where the function begins that it began in."""
        own = (each for each in reversed(calls) if self._function_at(each.address) not in _ENDS)
        outermost = next(own, None)
        bounds = None if outermost is None else self._bounds_of(outermost.address)
        return None if bounds is None else bounds[0]

    def _is_main(self, begin: Optional[int]) -> bool:
        return begin is not None and self._function_at(begin) == _MAIN


def _agreed(begins: Sequence[Optional[int]], words: Sequence[Tuple[int, ...]]) -> Optional[int]:
    """The place of the word that says where each began."""
    votes: Dict[int, int] = Counter(
        at
        for begin, each in zip(begins, words)
        for at, word in enumerate(each)
        if begin is not None and word == begin and at >= _PARENT_BEFORE
    )
    known = sum(begin is not None and bool(each) for begin, each in zip(begins, words))
    most = max(votes, key=lambda at: votes[at], default=0)
    is_sure = known >= _PROVED_BY and votes.get(most, 0) >= _AGREE_MIN * known
    return most if is_sure else None


def _are_numbers(words: Sequence[Tuple[int, ...]], at: int) -> bool:
    found = {each[at] for each in words}
    return len(found) == len(words) and all(0 < number < _NUMBER_MAX for number in found)
