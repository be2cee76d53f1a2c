"""Goroutines that wait, and where: no thread sleeps for them, so the kernel does not see it.

Source: runtime2.go (`g`, `gobuf`), proc.go (allgadd, gopark, mcall) of Go 1.16 to 1.26. What has
been parked has the place and the stack pointer at which it goes on in `g.sched`; of what runs that
pointer is 0 (gogo), and of what is in a system call the place is another one, which is in
`g.syscallsp` and `g.syscallpc` as well (reentersyscall).
"""

from __future__ import annotations

import struct
from collections import Counter
from contextlib import suppress
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory

LOOKED_AT_MAX = 500
"""Goroutines of a process, at one look; of more than these it is each second one, or third."""

HEADS_MAX, RARE_MAX = 10_000, 100
"""Of which it is looked at how deep their stacks are; those that are looked at beside, if few have
stacks as deep."""

STACK_BYTES_MAX = 8192
"""Of one, that are copied."""

ADDS, PARKS = b"runtime.allgadd", b"runtime.gopark"
# Behind the distance to what an instruction uses there may be a number, of one byte or of four.
_DISTANCE, _NUMBERS = struct.Struct("<i"), (0, 1, 4)
_SLICE, _G = struct.Struct("<QQQ"), struct.Struct("<QQ40xQQ")
# Words of `g` up to `syscallpc`; `gobuf` had one more before Go 1.25.
_HEAD_WORDS, _IN_CALL_AT = 16, (13, 14)
_HEADS_AT_ONCE, _FEW = 512, 8
_WORD_BYTES, _CODE_BYTES_MAX, _CAPACITY_MAX = 8, 4096, 1 << 24
_STACK_MAX, _PROVED_BY = 1 << 30, 4


class Parked(NamedTuple):
    """One that waits.

    Attributes:
        ip: where it goes on. sp: its stack pointer then. memory: of its stack, from `below` bytes
            below `sp` on.
        address: of its `g`. is_in_call: it is in a system call. is_chosen: it stands for others as
            well; those that are not are few, and may have what others wait for.
    """

    ip: int
    sp: int
    memory: bytes
    address: int = 0
    is_in_call: bool = False
    is_chosen: bool = True


class _Head(NamedTuple):
    address: int
    sp: int
    ip: int
    depth: int


class Goroutines:
    """Of one process for x86-64.

    Args:
        allgadd: (address in the process, size in bytes) of the function that adds one to all.
        parks: whether the instruction at an address is of the function that parks one.
        below: bytes below a stack pointer that are copied, too.
    """

    def __init__(
        self,
        memory: ProcessMemory,
        allgadd: Tuple[int, int],
        parks: Callable[[int], bool],
        below: int,
    ) -> None:
        self._memory, self._parks, self._below = memory, parks, below
        self._all = self._found(*allgadd)
        self._looks = 0

    @property
    def is_there(self) -> bool:
        """Its list of all goroutines is known."""
        return self._all is not None

    def parked(self) -> Tuple[List[Parked], int]:
        """Those that wait or are in a system call, and how many each that is chosen stands for.

        Raises:
            OSError: the process's memory cannot be read.
        """
        if self._all is None:
            return [], 1
        first, count, _ = self._slice(self._all)
        each = -(-count // LOOKED_AT_MAX) or 1
        self._looks += 1
        chosen = range(self._looks % each, min(count, each * LOOKED_AT_MAX), each)
        heads = self._heads(first, min(count, HEADS_MAX))
        for at in (at for at in chosen if at >= HEADS_MAX):
            heads.update(self._heads(first, 1, at))
        # Who waits alike is many, and goes on waiting; who has what they wait for soon has it not.
        alike = Counter(head.depth for head in heads.values())
        found = [
            self._one(heads[at], is_chosen=at in chosen) for at in _order(heads, alike, chosen)
        ]
        return [one for one in found if one is not None], each

    def _heads(self, first: int, count: int, start: int = 0) -> Dict[int, _Head]:
        """By their numbers, so many from `start` on."""
        end = start + count
        addresses = (
            (begin + at, address)
            for begin in range(start, end, _HEADS_AT_ONCE)
            for at, address in enumerate(self._some(first, begin, end))
        )
        found = ((at, self._head(address)) for at, address in addresses)
        return {at: head for at, head in found if head is not None}

    def _some(self, first: int, begin: int, end: int) -> Tuple[int, ...]:
        return self._memory.words(first + begin * _WORD_BYTES, min(_HEADS_AT_ONCE, end - begin))

    def _head(self, address: int) -> Optional[_Head]:
        """None: it runs, or has ended."""
        with suppress(OSError):
            low, high, sp, ip = _G.unpack(self._memory.read(address, _G.size))
            return _Head(address, sp, ip, high - sp) if low < sp < high else None
        return None

    def _one(self, head: _Head, *, is_chosen: bool) -> Optional[Parked]:
        """None: it runs, or went on while it was looked at."""
        address, sp, ip, depth = head
        with suppress(OSError):
            is_in_call = not self._parks(ip) and self._calls(address, sp, ip)
            if not is_in_call and not self._parks(ip):
                return None
            size_bytes = min(depth, STACK_BYTES_MAX) + self._below
            memory = self._memory.read(sp - self._below, size_bytes)
            _, _, *again = _G.unpack(self._memory.read(address, _G.size))
            if again == [sp, ip] and is_in_call == self._calls(address, sp, ip):
                return Parked(ip, sp, memory, address, is_in_call, is_chosen)
        return None

    def _calls(self, address: int, sp: int, ip: int) -> bool:
        """It is in a system call."""
        head = self._memory.words(address, _HEAD_WORDS)
        return any(head[at : at + 2] == (sp, ip) for at in _IN_CALL_AT)

    def _found(self, begin: int, size_bytes: int) -> Optional[int]:
        """Where `allgs` is: among what the function that appends to it uses, by what is there."""
        with suppress(OSError):
            code = self._memory.read(begin, min(size_bytes, _CODE_BYTES_MAX))
            return next((at for at in _used(code, begin) if self._is_list(at)), None)
        return None

    def _is_list(self, address: int) -> bool:
        with suppress(OSError):
            first, count, capacity = self._slice(address)
            if not first or first % _WORD_BYTES or not 0 < count <= capacity <= _CAPACITY_MAX:
                return False
            return all(map(self._is_one, self._memory.words(first, min(count, _PROVED_BY))))
        return False

    def _is_one(self, address: int) -> bool:
        if not address or address % _WORD_BYTES:
            return False
        low, high, sp, _ = _G.unpack(self._memory.read(address, _G.size))
        # The stack of one that has ended may be given back.
        has_ended = not low and not high
        return has_ended or (low < high <= low + _STACK_MAX and (not sp or low < sp < high))

    def _slice(self, address: int) -> Tuple[int, int, int]:
        first, count, capacity = _SLICE.unpack(self._memory.read(address, _SLICE.size))
        return first, count, capacity


def _order(heads: Dict[int, _Head], alike: Counter[int], chosen: range) -> List[int]:
    """Those that few others wait like first; of who is not chosen only these."""
    ranked = sorted(heads, key=lambda at: alike[heads[at].depth])
    rare = [at for at in ranked if at not in chosen and alike[heads[at].depth] <= _FEW]
    kept = {*rare[:RARE_MAX], *chosen}
    return [at for at in ranked if at in kept]


def _used(code: bytes, begin: int) -> Iterator[int]:
    """All addresses that instructions may mean relative to themselves."""
    for at in range(len(code) - _DISTANCE.size + 1):
        (distance,) = _DISTANCE.unpack_from(code, at)
        for number in _NUMBERS:
            target = begin + at + _DISTANCE.size + number + distance
            if distance and target > 0 and target % _WORD_BYTES == 0:
                yield target
