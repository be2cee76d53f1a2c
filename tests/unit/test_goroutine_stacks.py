"""Which goroutines have a request to answer, and what each way to wait is called."""

from __future__ import annotations

import struct
from typing import Dict, List, Optional, Sequence, Tuple

import pytest

from tests.unit.test_goroutines import GOPARK, process
from tests.unit.test_goroutines import goroutine as parked_at
from udsprobe.rules.remedy import choice
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
BEGINS, NUMBER_AT, PARENT_AT = 0x7000_0000, 20, 41
SERVES = ("main.serve", "main.listen.gowrap1", *ENDS)
HANDLES = ("main.buy", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve", *ENDS)


class Names:
    """Functions by their addresses, which are their numbers."""

    def __init__(self, stacks: Sequence[Sequence[str]]) -> None:
        self.stacks = stacks

    def frames(self, address: int) -> Tuple[CodeFrame, ...]:
        if address >= BEGINS:
            return (CodeFrame(self._functions()[(address - BEGINS) // 16], "shop"),)
        stack, at = divmod(address, 1000)
        return (CodeFrame(self.stacks[stack][at], "shop"),)

    def frame(self, address: int) -> CodeFrame:
        return self.frames(address)[0]

    def function_bounds(self, address: int) -> Optional[Tuple[int, int]]:
        return BEGINS + 16 * self._functions().index(self.frame(address).function), 16

    def place(self, function: str) -> int:
        """Behind an instruction of it."""
        functions = self._functions()
        return BEGINS + 16 * functions.index(function) + 8 if function in functions else 0

    def _functions(self) -> List[Optional[str]]:
        return list(dict.fromkeys(function for stack in self.stacks for function in stack))

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


def waiting(
    *stacks: Sequence[str], started: Optional[Dict[int, Tuple[int, str]]] = None
) -> List[Tuple[str, bool]]:
    """Of each that is told: the program's innermost function, and whether it owes a reply.

    Args:
        started: as of `parked`.
    """
    return [(_own(stack), stack.is_owing) for stack in parked(*stacks, started=started)]


def parked(
    *stacks: Sequence[str], started: Optional[Dict[int, Tuple[int, str]]] = None
) -> List[ParkedStack]:
    """Those that are told.

    Args:
        started: of some, the number of the one that has started it, and the function that did.
    """
    names, rows = Names(stacks), []
    for number, stack in enumerate(stacks):
        by, function = (started or {}).get(number, (0, "runtime.main"))
        row = bytearray(parked_at(number).ljust(512, b"\0"))
        begin, _ = names.function_bounds(1000 * number + len(stack) - 2) or (0, 0)
        struct.pack_into("<Q", row, 8 * NUMBER_AT, number + 1)
        struct.pack_into("<QQQQ", row, 8 * PARENT_AT, by + 1, names.place(function), 0, begin)
        rows.append(bytes(row))
    memory, _ = process(rows)
    found = GoroutineStacks(Names(stacks), memory, Callers(stacks))  # type: ignore[arg-type]
    return found.waiting()


def _own(stack: ParkedStack) -> str:
    names = [frame.function or "" for frame in stack.frames]
    return next((name for name in names if name.startswith("main.")), names[1])


def test_a_handler_has_a_request_and_a_worker_need_not() -> None:
    worker = (*PARKS, "runtime.chanrecv", "runtime.chanrecv2", "main.work", *ENDS)
    found = waiting((*LOCKS, *HANDLES), worker)
    assert found == [("main.buy", True), ("main.work", False)]


def test_what_waits_for_a_client_and_what_the_runtime_has_are_not_told() -> None:
    body = (*READS, "net/http.(*connReader).Read", "net/http.(*body).Read", *HANDLES)
    sends = (*PARKS, "internal/poll.runtime_pollWait", "internal/poll.(*FD).Write", *HANDLES)
    between = (*READS, "net/http.(*conn).serve", *ENDS)
    sweeps = (*PARKS, "runtime.bgsweep", "runtime.gcenable.gowrap1", *ENDS)
    assert waiting(body, sends, between, sweeps, ACCEPTS) == []


def test_who_has_a_request_and_waits_for_an_answer_is_told_as_such() -> None:
    asks = (*PARKS, "runtime.selectgo", "net/http.(*persistConn).roundTrip", *HANDLES)
    found = parked((*READS, "database/sql.(*DB).QueryContext", *HANDLES), asks, LOCKS)
    assert [(each.for_bytes, each.is_owing) for each in found] == [
        (True, True),
        (True, True),
        (False, False),
    ]


def test_who_serves_a_connection_has_a_request_while_it_does_not_read() -> None:
    """Started by who accepts; known once one of its kind was met reading."""
    busy, idle = (*LOCKS, *SERVES), (*READS, *SERVES)
    assert waiting(busy, idle, ACCEPTS) == [("main.serve", True)]
    assert waiting(busy, ACCEPTS) == [("main.serve", False)]
    assert waiting(busy, idle) == [("main.serve", False)]


MAIN = (*ACCEPTS[:-1], "main.main", "runtime.main", *ENDS)
JOINS = (
    *PARKS,
    "runtime.semacquire1",
    "sync.runtime_SemacquireWaitGroup",
    "sync.(*WaitGroup).Wait",
)
PART = (*PARKS, "time.Sleep", "main.price", "main.buy.func1", *ENDS)
LATE = ("net/http.(*timeoutHandler).ServeHTTP", *HANDLES[1:])


def test_what_a_request_starts_and_waits_for_is_told_in_its_place() -> None:
    """Who is started may do the same again."""
    deeper = (*PARKS, "runtime.chanrecv1", "main.price", "main.buy.func1", *ENDS)
    found = waiting(
        *(MAIN, (*JOINS, *HANDLES), deeper, (*LOCKS, "main.stock", "main.price.func1", *ENDS)),
        started={2: (1, "main.buy"), 3: (2, "main.price")},
    )
    assert found == [("main.stock", True)]


def test_a_handler_with_a_time_limit_runs_in_a_goroutine_of_its_own() -> None:
    waits = (*PARKS, "runtime.selectgo", *LATE)
    runs = (*PARKS, "time.Sleep", "main.buy", "net/http.(*timeoutHandler).ServeHTTP.func1", *ENDS)
    found = waiting(MAIN, waits, runs, started={2: (1, LATE[0])})
    assert found == [("main.buy", True)]


def test_what_a_request_has_started_and_waits_for_an_answer() -> None:
    asks = (*READS, "main.fetch", "main.buy.func1", *ENDS)
    (found,) = parked(MAIN, (*JOINS, *HANDLES), asks, started={2: (1, "main.buy")})
    assert found.for_bytes and found.is_owing


def test_what_a_request_does_not_wait_for_is_not_its() -> None:
    """It waits for something else; a library's goroutine; one that was met beside no request."""
    buys, started = (*JOINS, *HANDLES), {2: (1, "main.buy")}
    assert waiting(MAIN, (*LOCKS, *HANDLES), PART, started=started) == [
        ("main.buy", True),
        ("main.price", False),
    ]
    pool = (*PARKS, "runtime.selectgo", "database/sql.(*DB).conn", *HANDLES)
    assert waiting(MAIN, pool, PART, started=started)[0] == ("main.buy", True)
    keeps = (*PARKS, "runtime.selectgo", "net/http.(*persistConn).writeLoop", *ENDS)
    assert waiting(MAIN, buys, keeps, started=started)[0] == ("main.buy", True)
    between = (*READS, "net/http.(*conn).serve", *ENDS)
    idle = {3: (2, "main.buy"), 4: (1, "main.buy")}
    found = waiting(MAIN, buys, between, PART, PART, started=idle)
    assert found == [("main.buy", True), ("main.price", False), ("main.price", False)]


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
    "wait for a limit of its own (errgroup.SetLimit)": (
        *("runtime.chansend1", "golang.org/x/sync/errgroup.(*Group).Go", "main.buy"),
    ),
    "wait for what another one asks for already (singleflight)": (
        *("sync.(*WaitGroup).Wait", "golang.org/x/sync/singleflight.(*Group).Do", "main.buy"),
    ),
    "wait for a limit of its own (semaphore)": (
        *("runtime.selectgo", "golang.org/x/sync/semaphore.(*Weighted).Acquire", "main.buy"),
    ),
}


@pytest.mark.parametrize(
    "function",
    [
        "github.com/jackc/puddle/v2.(*Pool[go.shape.*uint8]).Acquire",
        "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).waitTurn",
        "github.com/gomodule/redigo/redis.(*Pool).waitVacantConn",
        "net/http.(*Transport).getConn",
    ],
)
def test_pools_of_connections(function: str) -> None:
    found = goroutine_wait(["runtime.selectgo (shop)", f"{function} (shop)", "main.buy (shop)"])
    assert found is not None and found.kind == "go-pool"
    _, shorter = choice.parked(found, "main.buy (shop.go:41)")
    assert shorter.say.startswith("hold a connection for less long")
    assert shorter.say.endswith("main.buy (shop.go:41)")


@pytest.mark.parametrize("says", WAYS)
def test_what_is_waited_for(says: str) -> None:
    found = goroutine_wait([f"{name} (shop)" for name in WAYS[says]])
    assert found is not None and found.does == says


def test_a_proxy_that_tries_again() -> None:
    caddy = "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
    stack = ["runtime.selectgo", f"{caddy}.LoadBalancing.tryAgain", f"{caddy}.(*Handler).ServeHTTP"]
    found = goroutine_wait([f"{name} (caddy)" for name in stack])
    assert found is not None and found.kind == "retry-in"


def test_who_asks_for_all_is_told_by_what_it_does() -> None:
    group = "golang.org/x/sync/singleflight.(*Group)"
    stack = ["time.Sleep", "main.load", f"{group}.doCall", f"{group}.Do", "main.buy"]
    found = goroutine_wait([f"{name} (shop)" for name in stack])
    assert found is not None and found.does == "sleep (time.Sleep)"


def test_of_other_functions_nothing_is_said() -> None:
    assert goroutine_wait(["main.buy (shop)", "main.(*Mutex).Lock (shop)"]) is None
