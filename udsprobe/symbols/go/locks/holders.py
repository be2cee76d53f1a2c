"""Which goroutines hold a lock that others wait for.

A lock of package sync does not say who has it. Who does unlocks it next, and that is what is looked
for: a goroutine that waits or is in a system call, and from which all ways on unlock this lock
(`unlocking.py`) by the addresses that are in its memory now. An exclusive lock that two seem to
have, nobody is known to have.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from contextlib import suppress
from typing import (
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.go.goroutines import Parked
from udsprobe.symbols.go.locks.ahead import Ahead, ahead_of
from udsprobe.symbols.go.locks.instructions import Instructions
from udsprobe.symbols.go.locks.semaphores import Semaphores
from udsprobe.symbols.go.locks.unlocking import STEPS_MAX, Lock, Next, Unlocking
from udsprobe.symbols.go.locks.wrappers import LOCKS, Wrappers
from udsprobe.symbols.unwinding import RED_ZONE_BYTES, Activation

LOCKS_MAX = 32
"""Of a process, at one look: those with most that wait."""

_PAGE_BYTES, _PAGES_MAX = 4096, 2000
# From where a structure begins, to the lock that is in it.
_INSIDE_BYTES_MAX = 4096
# Of the callers' frame: what a function was given in registers has its place there.
_GIVEN_BYTES = 80
# Their own locks are no others', and what they wait for is known.
_PASSED_OVER = re.compile(r"(runtime|internal/sync|sync|internal/poll|time|syscall)\..*")
# They lock nothing of a program that is not near what they use.
_STANDARD = re.compile(
    r"(bufio|bytes|compress|context|crypto|database|encoding|fmt|html|internal|io|log|mime|net|os"
    r"|path|reflect|sort|strings|testing|text|vendor)(/[\w./]+)?\."
)
_HOLDS = ({Next.UNLOCKS}, {Next.READ_UNLOCKS})
_LETS_GO = "sync.(*Cond).Wait"
_AHEAD_MAX = 1000


class Met(NamedTuple):
    """One that was met.

    Attributes:
        calls: the innermost first. functions: of all of them, what is inlined as well.
    """

    one: Parked
    calls: Sequence[Activation]
    functions: Sequence[str]


class LockHolders:
    """Of one process.

    Args:
        function_at: the name of the function that an instruction is of.
        bounds_of: where that function begins, and its size in bytes.
    """

    def __init__(
        self,
        memory: ProcessMemory,
        function_at: Callable[[int], Optional[str]],
        bounds_of: Callable[[int], Optional[Tuple[int, int]]],
    ) -> None:
        self._pages = _Pages(memory)
        self._function_at = function_at
        self._instructions = Instructions(self._pages.read)
        self._wrappers = Wrappers(self._pages.read, function_at, bounds_of)
        self._semaphores = Semaphores(self._pages.read, RED_ZONE_BYTES)
        self._ahead: Dict[int, Ahead] = {}
        self._steps_left = 0

    def look(self, all_met: Sequence[Met]) -> Tuple[List[Optional[Lock]], Dict[Lock, List[int]]]:
        """The lock that each waits for, None: none that is known; and by whom each is held.

        Holders are told by their numbers in `all_met`; none: not known.
        """
        self._pages.forget()
        self._instructions.begin_round()
        waits = [self._semaphores.lock_of(each.one, each.functions) for each in all_met]
        holding = self._holding(all_met, waits)
        return waits, {lock: _agreed(those) for lock, those in holding.items()}

    def _holding(
        self, all_met: Sequence[Met], waits: Sequence[Optional[Lock]]
    ) -> Dict[Lock, Dict[int, Next]]:
        """Of each lock: the numbers of those that unlock it next, and how."""
        locks = _most_waited_for(waits)
        if not locks or not self._instructions.are_read:
            return {}
        found: Dict[Lock, Dict[int, Next]] = {lock: {} for lock in locks}
        self._steps_left = STEPS_MAX
        for at, (met, waits_for) in enumerate(zip(all_met, waits)):
            # Who is about to get a lock waits for none any more, and has it not yet.
            if waits_for is None and any(map(LOCKS.fullmatch, met.functions)):
                continue
            others = locks - {waits_for}
            for lock, does in self._does(others, met).items() if others else ():
                found[lock][at] = does
        return found

    def _does(self, locks: FrozenSet[Lock], met: Met) -> Dict[Lock, Next]:
        """How it unlocks some of these next: of others it does not, or that is not known."""
        found: Dict[Lock, Next] = {}
        if _LETS_GO in met.functions:
            return found
        left = set(locks)
        unlocking = self._unlocking(met.one)
        for call, caller in zip(met.calls[1:], (*met.calls[2:], None)):
            if _PASSED_OVER.fullmatch(self._function_at(call.address) or ""):
                continue
            near = self._touched(left, met, call, caller)
            if not near:
                continue
            ahead = unlocking.next_of(near, call.address + 1, call.sp)
            for lock, ways in ahead.items():
                if ways in _HOLDS:
                    found[lock] = next(iter(ways))
                if ways != {Next.RETURNS}:
                    left.discard(lock)
        self._steps_left = unlocking.left
        return found

    def _unlocking(self, one: Parked) -> Unlocking:
        """Its stack as it was met: it may have gone on since."""
        begin, end = one.sp - RED_ZONE_BYTES, one.sp - RED_ZONE_BYTES + len(one.memory)

        def read(address: int, size_bytes: int) -> bytes:
            if begin <= address and address + size_bytes <= end:
                return one.memory[address - begin : address - begin + size_bytes]
            return self._pages.read(address, size_bytes)

        return Unlocking(
            read, self._instructions, self._function_at, self._wrappers, self._steps_left
        )

    def _touched(
        self, locks: Set[Lock], met: Met, call: Activation, caller: Optional[Activation]
    ) -> FrozenSet[Lock]:
        """Those that something can be done to ahead: its frame, or its code, has an address near
        the lock's, or locks or unlocks any.
        """
        if not locks:
            return frozenset()
        ahead = self._ahead_of(call.address + 1)
        if ahead.acts and not _STANDARD.match(self._function_at(call.address) or ""):
            return frozenset(locks)
        end = call.sp + _PAGE_BYTES if caller is None else caller.sp + _GIVEN_BYTES
        frame = met.one.memory[_from(met.one, call.sp) : _from(met.one, end)]
        words = {*_words(frame), *ahead.places, *map(self._pages.word, ahead.places)}
        return frozenset(lock for lock in locks if any(_is_near(lock, each) for each in words))

    def _ahead_of(self, address: int) -> Ahead:
        known = self._ahead.get(address)
        if known is None:
            known = ahead_of(address, self._instructions, self._function_at)
            if len(self._ahead) >= _AHEAD_MAX:
                self._ahead.clear()
            if self._instructions.have_room:
                self._ahead[address] = known
        return known


class _Pages:
    """Memory of the process as it was when first asked for at this look."""

    def __init__(self, memory: ProcessMemory) -> None:
        self._memory = memory
        self._pages: Dict[int, bytes] = {}

    def forget(self) -> None:
        """What is there now."""
        self._pages.clear()

    def read(self, address: int, size_bytes: int) -> bytes:
        """Raises OSError."""
        number, inside = divmod(address, _PAGE_BYTES)
        found = self._page(number)[inside : inside + size_bytes]
        return found if len(found) == size_bytes else self._memory.read(address, size_bytes)

    def word(self, address: int) -> int:
        """0: there is none."""
        with suppress(OSError):
            return int.from_bytes(self.read(address, 8), "little")
        return 0

    def _page(self, number: int) -> bytes:
        if number not in self._pages:
            if len(self._pages) >= _PAGES_MAX:
                self._pages.clear()
            self._pages[number] = self._memory.read(number * _PAGE_BYTES, _PAGE_BYTES)
        return self._pages[number]


def _agreed(holding: Dict[int, Next]) -> List[int]:
    """None where they cannot all hold it."""
    is_exclusive = Next.UNLOCKS in holding.values()
    return [] if is_exclusive and len(holding) != 1 else list(holding)


def _most_waited_for(waits: Iterable[Optional[Lock]]) -> FrozenSet[Lock]:
    counts = Counter(each for each in waits if each is not None)
    return frozenset(lock for lock, _ in counts.most_common(LOCKS_MAX))


def _is_near(lock: Lock, address: int) -> bool:
    return lock.address - _INSIDE_BYTES_MAX < address <= lock.address


def _from(one: Parked, address: int) -> int:
    """Where that is in what was copied of its stack."""
    return max(0, address - one.sp + RED_ZONE_BYTES)


def _words(memory: bytes) -> Tuple[int, ...]:
    count = len(memory) // 8
    return struct.unpack_from(f"<{count}Q", memory)
