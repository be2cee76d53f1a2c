"""Whether a goroutine that goes on from a place unlocks a lock before anything else is done to it.

Who does so holds it: Go ends a program that unlocks what is not locked. Source: packages sync and
internal/sync of Go 1.19 to 1.26 (mutex.go, rwmutex.go): the fast ways of Lock, Unlock, RLock and
RUnlock are inlined, as `lock cmpxchg` and `lock xadd` of the lock's own words.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Callable, Dict, FrozenSet, NamedTuple, Optional, Sequence, Set, Tuple

from udsprobe.symbols.go.locks.instructions import Instruction, Instructions
from udsprobe.symbols.go.locks.machine import Machine
from udsprobe.symbols.go.locks.wrappers import LOCKS, UNLOCKS, Wrappers

STEPS_MAX, STEPS_OF_ONE_MAX = 10_000, 600
"""Instructions that are followed at one look, and from one place."""

READERS_AT = 16
"""Bytes: of `readerCount` in sync.RWMutex."""

# They do not return; the stack grows, and the function begins again.
_ENDS = re.compile(r"runtime\.(panic|goPanic|gopanic|throw|fatal|Goexit|morestack)\w*(\.abi0)?")
_STOPS = frozenset(("ud2", "int3", "hlt"))
_DEPTH_MAX, _WORD_BYTES = 2, 4


class Lock(NamedTuple):
    """One of package sync.

    Attributes:
        address: where it begins. has_readers: it is an RWMutex.
    """

    address: int
    has_readers: bool


class Next(Enum):
    """What is done to a lock on one way ahead."""

    UNLOCKS = "unlocks"
    READ_UNLOCKS = "read-unlocks"
    OTHER = "locks, or is not known"
    RETURNS = "returns"


class _Way(NamedTuple):
    """One that it may go.

    Attributes:
        depth: calls that were followed. left: locks that nothing was done to so far.
        is_branch: it may be one that was seen.
    """

    at: int
    machine: Machine
    depth: int
    left: FrozenSet[Lock]
    is_branch: bool = False


_Done = Dict[Lock, Next]


class Unlocking:
    """Of one process, at one look.

    Args:
        read: address, size in bytes → memory; raises OSError.
        function_at: the name of the function that an instruction is of.
        wrappers: of locks. left: so many instructions it may follow.

    Attributes:
        left: how many of these are left.
    """

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        instructions: Instructions,
        function_at: Callable[[int], Optional[str]],
        wrappers: Wrappers,
        left: int = STEPS_MAX,
    ) -> None:
        self._read, self._instructions, self._function_at = read, instructions, function_at
        self._wrappers = wrappers
        self.left = left

    def next_of(self, locks: FrozenSet[Lock], ip: int, sp: int) -> Dict[Lock, Set[Next]]:
        """On all ways ahead, until the function there returns; those that end in a panic are none.

        Args:
            ip, sp: where it goes on.
        """
        machine = Machine(self._read, {"rsp": sp})
        found: Dict[Lock, Set[Next]] = {each: set() for each in locks}
        if self._follow(_Way(ip, machine, 0, locks), found):
            return found
        if len(locks) == 1:
            return {each: {Next.OTHER} for each in locks}
        # Of one alone less is to be followed.
        return {
            lock: self.next_of(frozenset({lock}), ip, sp)[lock]
            if does & {Next.UNLOCKS, Next.READ_UNLOCKS}
            else {Next.OTHER}
            for lock, does in found.items()
        }

    def _follow(self, first: _Way, found: Dict[Lock, Set[Next]]) -> bool:
        """Adds what is done on all ways; whether there was room for all."""
        ways = [first]
        seen: Set[object] = set()
        last = max(0, self.left - STEPS_OF_ONE_MAX)
        while ways:
            way = ways.pop()
            if way.is_branch:
                key = way.at, way.depth, way.left, way.machine.key()
                if key in seen:
                    continue
                seen.add(key)
            if self.left <= last:
                return False
            self.left -= 1
            done, ahead = self._step(way)
            for lock, does in done.items():
                found[lock].add(does)
            left = way.left.difference(done)
            if left:
                ways += [each._replace(left=left) for each in ahead] if done else ahead
        return True

    def _step(self, way: _Way) -> Tuple[_Done, Sequence[_Way]]:
        """What is done to which locks, and the ways that it may go on; none after a panic."""
        one = self._instructions.at(way.at)
        if one is None:
            return dict.fromkeys(way.left, Next.OTHER), ()
        if one.name == "call":
            return self._call(way, one)
        if one.name == "ret":
            back = way.machine.pop()
            if way.depth and back is not None:
                return {}, [way._replace(at=back, depth=way.depth - 1, is_branch=False)]
            return dict.fromkeys(way.left, Next.OTHER if way.depth else Next.RETURNS), ()
        if one.name.startswith("j"):
            return _jump(way, one)
        if one.name in _STOPS:
            return {}, ()
        done = _done_to(way.left, one, way.machine) if one.is_atomic else {}
        way.machine.does(one)
        return done, [way._replace(at=one.end, is_branch=False)]

    def _call(self, way: _Way, one: Instruction) -> Tuple[_Done, Sequence[_Way]]:
        machine, target = way.machine, way.machine.value(one.operands[0])
        name = "" if target is None else self._function_at(target) or ""
        if _ENDS.fullmatch(name):
            return {}, ()
        done = _asked_of(way.left, name, machine.registers["rax"])
        if target is not None and way.depth < _DEPTH_MAX and self._is_part(name, way.at):
            machine.push(one.end)
            return done, [way._replace(at=target, depth=way.depth + 1, is_branch=True)]
        if target is not None and self._wrappers.locks(target):
            return {**dict.fromkeys(way.left, Next.OTHER), **done}, ()
        machine.returns_unknown()
        return done, [way._replace(at=one.end, is_branch=False)]

    def _is_part(self, name: str, caller: int) -> bool:
        """What a function defers is one that the compiler has made in it."""
        within = self._function_at(caller)
        return bool(within) and name.startswith(f"{within}.")


def _jump(way: _Way, one: Instruction) -> Tuple[_Done, Sequence[_Way]]:
    target = way.machine.value(one.operands[0])
    if target is None:
        return dict.fromkeys(way.left, Next.OTHER), ()
    there = way._replace(at=target, is_branch=True)
    if one.name == "jmp":
        return {}, [there]
    on, takes = way._replace(at=one.end, is_branch=True), way.machine.jumps(one.name)
    if takes is None:
        return {}, [on, there._replace(machine=way.machine.copy())]
    return {}, [there if takes else on]


def _done_to(locks: FrozenSet[Lock], one: Instruction, machine: Machine) -> _Done:
    """By an atomic instruction."""
    into = next((each for each in one.operands if each.is_memory), None)
    if into is None:
        return {}
    address = machine.address(into)
    added = machine.value(one.operands[1]) if one.name == "xadd" else None
    takes_one = added == (1 << 8 * into.size_bytes) - 1
    if address is None:
        # To unlock anything changes nothing: only a lock that is not seen would.
        is_none = takes_one or into.size_bytes != _WORD_BYTES
        return {} if is_none else dict.fromkeys(locks, Next.OTHER)
    found: _Done = {}
    for lock in locks:
        if address == lock.address:
            found[lock] = Next.UNLOCKS if takes_one else Next.OTHER
        elif lock.has_readers and address == lock.address + READERS_AT:
            found[lock] = Next.READ_UNLOCKS if takes_one else Next.OTHER
    return found


def _asked_of(locks: FrozenSet[Lock], name: str, receiver: Optional[int]) -> _Done:
    """By a call of package sync."""
    if UNLOCKS.fullmatch(name):
        is_readers = name.lower().endswith((".runlock", ".runlockslow"))
        does = Next.READ_UNLOCKS if is_readers else Next.UNLOCKS
        return {lock: does for lock in locks if lock.address == receiver}
    if LOCKS.fullmatch(name):
        return {lock: Next.OTHER for lock in locks if receiver in (None, lock.address)}
    return {}
