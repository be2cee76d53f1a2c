"""Whether code unlocks a lock next, and for which one a goroutine waits; hostile memory as well."""

from __future__ import annotations

import random
import struct
from typing import Dict, Optional, Sequence, Set

import pytest

from tests.unit.test_goroutines import Memory
from udsprobe.symbols.go.goroutines import Parked
from udsprobe.symbols.go.locks.instructions import Instructions
from udsprobe.symbols.go.locks.semaphores import Semaphores
from udsprobe.symbols.go.locks.unlocking import STEPS_OF_ONE_MAX, Lock, Next, Unlocking
from udsprobe.symbols.go.locks.wrappers import Wrappers
from udsprobe.symbols.unwinding import RED_ZONE_BYTES

CODE, OTHER_CODE, STACK, STORE, G = 0x40_0000, 0x41_0000, 0xC1_0000_0000, 0xC0_0000_0000, 0xC2_0000
MUTEX = Lock(STORE + 0x10, False)
SHARED = Lock(STORE + 0x10, True)
UNLOCKS, READ, OTHER, RETURNS = Next.UNLOCKS, Next.READ_UNLOCKS, Next.OTHER, Next.RETURNS

LOADS = "488b4c2428"  # mov rcx, [rsp+0x28], where the store is
TAKES = "bbffffffff f00fc15910"  # mov ebx, -1; lock xadd [rcx+0x10], ebx
LOCKS = "f00fb15910"  # lock cmpxchg [rcx+0x10], ebx
READERS = "bbffffffff f00fc15920"  # of readerCount, 16 bytes behind
ENTERS = "bb01000000 f00fc15920"
RET, DEAD, TEST = "c3", "0f0b", "84db"  # test bl, bl: not known


def memory_of(code: str, other: str = RET) -> Memory:
    """Of a process whose stack has the store, and a closure with the lock."""
    memory = Memory()
    memory.put(CODE, bytes.fromhex(code.replace(" ", "")) + bytes(16))
    memory.put(OTHER_CODE, bytes.fromhex(other.replace(" ", "")) + bytes(16))
    memory.put(STACK, struct.pack("<32Q", *[0] * 5, STORE, STACK + 0x38, OTHER_CODE, *[STORE] * 24))
    memory.put(STORE, bytes(64))
    return memory


def ahead(
    code: str,
    lock: Lock = MUTEX,
    *,
    other: str = RET,
    names: Optional[Dict[int, str]] = None,
) -> Set[Next]:
    """What is done to the lock from the code's begin on."""
    memory = memory_of(code, other)
    known = {CODE: "main.put", **(names or {})}
    bounds = {OTHER_CODE: (OTHER_CODE, len(other) // 2)}

    def function_at(address: int) -> Optional[str]:
        return known.get(address & ~0xFFFF) or known.get(address)

    wrappers = Wrappers(memory.read, function_at, bounds.get)
    unlocking = Unlocking(memory.read, Instructions(memory.read), function_at, wrappers)
    return unlocking.next_of(frozenset({lock}), CODE, STACK)[lock]


def calls(at: int, target: int = OTHER_CODE) -> str:
    """`call`, so many bytes behind the code's begin."""
    return "e8" + struct.pack("<i", target - (CODE + at + 5)).hex()


def test_who_unlocks_on_all_ways_holds() -> None:
    assert ahead(LOADS + TAKES + RET) == {UNLOCKS}
    both = f"{LOADS}{TEST}740b{TAKES}{RET}"
    assert ahead(both + TAKES + RET) == {UNLOCKS}
    assert ahead(both + RET) == {UNLOCKS, RETURNS}
    assert ahead(both + DEAD) == {UNLOCKS}


def test_who_locks_first_does_not_hold() -> None:
    assert ahead(LOADS + LOCKS + TAKES + RET) == {OTHER}
    assert ahead(LOADS + TEST + "7405" + LOCKS + TAKES + RET) == {OTHER, UNLOCKS}


def test_a_branch_that_memory_decides_goes_one_way() -> None:
    """cmp qword [rsp], 0."""
    assert ahead(LOADS + "48833c2400" + "7401" + RET + TAKES + RET) == {UNLOCKS}
    assert ahead(LOADS + "48833c2400" + "7501" + RET + TAKES + RET) == {RETURNS}


def test_another_lock_or_one_that_is_not_known_is_none() -> None:
    assert ahead(LOADS + TAKES + RET, Lock(STORE + 0x18, False)) == {RETURNS}
    assert ahead(TAKES + RET) == {RETURNS}
    # It may be this one that is locked.
    assert ahead(LOCKS + RET) == {OTHER}


def test_readers() -> None:
    assert ahead(LOADS + READERS + RET, SHARED) == {READ}
    assert ahead(LOADS + ENTERS + READERS + RET, SHARED) == {OTHER}
    assert ahead(LOADS + READERS + RET, MUTEX) == {RETURNS}


def test_functions_of_sync_are_known_by_their_names() -> None:
    """With the lock's address in rax."""
    code = LOADS + "488d4110" + calls(9) + RET
    for name, does in (
        ("sync.(*RWMutex).Unlock", UNLOCKS),
        ("sync.(*RWMutex).RUnlock", READ),
        ("sync.(*RWMutex).Lock", OTHER),
        ("internal/sync.(*Mutex).lockSlow", OTHER),
        ("main.(*Store).Unlock", RETURNS),
    ):
        assert ahead(code, SHARED, names={OTHER_CODE: name}) == {does}


def test_what_is_deferred_is_followed() -> None:
    """A closure in the frame, its lock behind its code: mov rdx, [rsp+0x30]; call [rdx]."""
    deferred = "488b4a08 bbffffffff f00fc15910 c3"
    code = "488b542430 488b0a ffd1" + RET
    assert ahead(code, other=deferred, names={OTHER_CODE: "main.put.deferwrap1"}) == {UNLOCKS}
    assert ahead(code, other=deferred, names={OTHER_CODE: "main.get.func1"}) == {RETURNS}


def test_what_locks_and_returns_may_have_locked_it() -> None:
    """A method `lock` of the program that counts, too."""
    code = calls(0) + LOADS + TAKES + RET
    slow = "e8" + struct.pack("<i", 0x42_0000 - (OTHER_CODE + 5)).hex()
    lock, unlock = "sync.(*RWMutex).Lock", "sync.(*Mutex).Unlock"
    names = {OTHER_CODE: "main.lock", 0x42_0000: lock}
    assert ahead(code, other=slow + RET, names=names) == {OTHER}
    assert ahead(code, other=slow + RET, names={**names, 0x42_0000: unlock}) == {UNLOCKS}


def test_loops_end() -> None:
    assert ahead("ebfe") == set()
    # inc qword [rsp]; jmp back: each turn is another state, until what may be followed is.
    assert ahead("48ff0424ebfa") in (set(), {OTHER})
    assert ahead("90" * (STEPS_OF_ONE_MAX + 1) + LOADS + TAKES + RET) == {OTHER}


def test_any_bytes_are_followed_to_an_end() -> None:
    chosen = random.Random(7)
    for _ in range(300):
        code = bytes(chosen.choice((0xF0, 0x0F, 0x48, chosen.randrange(256))) for _ in range(60))
        assert ahead(code.hex()) <= set(Next)


WAITS = ("runtime.semacquire1", "internal/sync.runtime_SemacquireMutex")
SLOW = "internal/sync.(*Mutex).lockSlow"


@pytest.mark.parametrize("elem_at", [3, 4])
@pytest.mark.parametrize(
    ("callers", "before", "has_readers"),
    [
        ((SLOW, "sync.(*Mutex).Lock", "main.put"), 4, False),
        ((SLOW, "sync.(*Mutex).Lock", "sync.(*RWMutex).Lock", "main.put"), 4, True),
        (("sync.(*RWMutex).Lock", "main.put"), 8, True),
        (("sync.(*RWMutex).RLock", "main.put"), 12, True),
    ],
)
def test_the_lock_that_is_waited_for(
    callers: Sequence[str], before: int, has_readers: bool, elem_at: int
) -> None:
    semaphore, sudog = STORE + 0x40, STORE + 0x100
    memory = Memory()
    fields = [G, 0, 0, 0, 0]
    fields[elem_at] = semaphore
    memory.put(sudog, struct.pack("<5Q", *fields))
    stack = bytes(RED_ZONE_BYTES) + struct.pack("<6Q", 1, G, sudog, 0, semaphore, 9)
    one = Parked(CODE, STACK, stack, G)
    found = Semaphores(memory.read, RED_ZONE_BYTES).lock_of(one, (*WAITS, *callers))
    assert found == Lock(semaphore - before, has_readers)
    # Out of the queue, or another one's.
    for gone in ([G, 0, 0, 0, 0], [G + 8, *fields[1:]]):
        memory.put(sudog, struct.pack("<5Q", *gone))
        assert Semaphores(memory.read, RED_ZONE_BYTES).lock_of(one, (*WAITS, *callers)) is None


def test_other_waits_are_for_no_lock() -> None:
    one = Parked(CODE, STACK, bytes(512), G)
    for functions in (
        ("runtime.semacquire1", "sync.runtime_SemacquireWaitGroup", "sync.(*WaitGroup).Wait"),
        ("runtime.semacquire1", "internal/poll.runtime_Semacquire", "main.put"),
        ("runtime.chanrecv1", "main.put"),
    ):
        assert Semaphores(Memory().read, RED_ZONE_BYTES).lock_of(one, functions) is None
