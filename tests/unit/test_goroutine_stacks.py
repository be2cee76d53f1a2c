"""Which goroutines have a request to answer, and what each way to wait is called."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import pytest

from tests.unit.test_goroutines import GOPARK, process
from tests.unit.test_goroutines import goroutine as parked_at
from udsprobe.rules.remedy.goroutine_waits import goroutine_wait
from udsprobe.symbols.go.goroutine_stacks import GoroutineStacks
from udsprobe.symbols.process_names import CodeFrame, ParkedStack
from udsprobe.symbols.unwinding import Activation

# The innermost first, as all here.
PARKS = ("runtime.gopark",)
READS = (
    *(*PARKS, "runtime.netpollblock", "internal/poll.runtime_pollWait"),
    *("internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read"),
)
ACCEPTS = (
    *(*PARKS, "runtime.netpollblock", "internal/poll.runtime_pollWait"),
    *("internal/poll.(*FD).Accept", "net.(*TCPListener).Accept", "main.listen", "main.main"),
)
LOCKS = (*PARKS, "runtime.semacquire1", "sync.runtime_SemacquireMutex", "sync.(*Mutex).lockSlow")
ENDS = ("runtime.goexit",)
SERVES = ("main.serve", "main.listen.gowrap1", *ENDS)
HANDLES = ("main.buy", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve", *ENDS)


class Names:
    """Functions by their addresses, which are their numbers."""

    def __init__(self, stacks: Sequence[Sequence[str]]) -> None:
        self.stacks = stacks

    def frames(self, address: int) -> Tuple[CodeFrame, ...]:
        stack, at = divmod(address, 1000)
        return (CodeFrame(self.stacks[stack][at], "shop"),)

    def function_bounds(self, address: int) -> Optional[Tuple[int, int]]:
        return None

    def go_function(self, name: bytes) -> Optional[Tuple[int, int]]:
        return {b"runtime.gopark": (GOPARK, 256)}.get(name, (0x40_0000, 22))


class Callers:
    """In place of an unwinder: all calls of one stack after the other."""

    def __init__(self, stacks: Sequence[Sequence[str]]) -> None:
        self._stacks, self._next = stacks, 0

    def callers(self, _start: object, _memory: bytes) -> Tuple[List[Activation], bool]:
        number = self._next % len(self._stacks)
        self._next += 1
        calls = range(len(self._stacks[number]))
        return [Activation(1000 * number + at, 0) for at in calls], True


def waiting(*stacks: Sequence[str]) -> List[Tuple[str, bool]]:
    """Of each that is told: the program's innermost function, and whether it owes a reply."""
    memory, _ = process([parked_at(number) for number in range(len(stacks))])
    found = GoroutineStacks(Names(stacks), memory, Callers(stacks))  # type: ignore[arg-type]
    return [(_own(stack), stack.is_owing) for stack in found.waiting()]


def _own(stack: ParkedStack) -> str:
    names = [frame.function or "" for frame in stack.frames]
    return next(name for name in names if name.startswith("main."))


def test_a_handler_has_a_request_and_a_worker_need_not() -> None:
    worker = (*PARKS, "runtime.chanrecv", "runtime.chanrecv2", "main.work", *ENDS)
    found = waiting((*LOCKS, *HANDLES), worker)
    assert found == [("main.buy", True), ("main.work", False)]


def test_what_waits_for_bytes_and_what_the_runtime_has_are_not_told() -> None:
    asks = (*PARKS, "runtime.selectgo", "net/http.(*persistConn).roundTrip", *HANDLES)
    sweeps = (*PARKS, "runtime.bgsweep", "runtime.gcenable.gowrap1", *ENDS)
    assert waiting((*READS, *HANDLES), asks, sweeps, ACCEPTS) == []


def test_who_serves_a_connection_has_a_request_while_it_does_not_read() -> None:
    """Started by who accepts; known once one of its kind was met reading."""
    busy, idle = (*LOCKS, *SERVES), (*READS, *SERVES)
    assert waiting(busy, idle, ACCEPTS) == [("main.serve", True)]
    assert waiting(busy, ACCEPTS) == [("main.serve", False)]
    assert waiting(busy, idle) == [("main.serve", False)]


WAYS: Dict[str, Sequence[str]] = {
    "wait for a mutex": ("internal/sync.(*Mutex).lockSlow", "main.buy"),
    "wait for a read-write mutex": ("sync.runtime_SemacquireRWMutexR", "main.buy"),
    "wait for a free connection of its pool": (
        *("runtime.selectgo", "database/sql.(*DB).conn", "main.buy"),
    ),
    "wait for other goroutines (WaitGroup)": ("sync.(*WaitGroup).Wait", "main.buy"),
    "wait for a condition (sync.Cond)": ("sync.(*Cond).Wait", "main.buy"),
    "wait for room in a channel": ("runtime.chansend1", "main.buy"),
    "wait for a channel": ("runtime.selectgo", "main.buy"),
    "sleep (time.Sleep)": ("time.Sleep", "main.buy"),
    "wait for a limit of its own (semaphore)": (
        *("runtime.selectgo", "golang.org/x/sync/semaphore.(*Weighted).Acquire", "main.buy"),
    ),
}


@pytest.mark.parametrize(
    "function",
    [
        "github.com/jackc/puddle/v2.(*Pool[go.shape.*uint8]).Acquire",
        "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).waitTurn",
        "net/http.(*Transport).getConn",
    ],
)
def test_pools_of_connections(function: str) -> None:
    found = goroutine_wait(["runtime.selectgo (shop)", f"{function} (shop)", "main.buy (shop)"])
    assert found is not None and found.kind == "go-pool"


@pytest.mark.parametrize("says", WAYS)
def test_what_is_waited_for(says: str) -> None:
    found = goroutine_wait([f"{name} (shop)" for name in WAYS[says]])
    assert found is not None and found.does == says


def test_of_other_functions_nothing_is_said() -> None:
    assert goroutine_wait(["main.buy (shop)", "main.(*Mutex).Lock (shop)"]) is None
