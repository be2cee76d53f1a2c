"""The stacks of goroutines that wait for one another, for a lock or for time."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Set, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.go.goroutines import ADDS, PARKS, Goroutines, Parked
from udsprobe.symbols.go.locks.holders import LockHolders, Met
from udsprobe.symbols.go.origins import Begun, Origin, Origins
from udsprobe.symbols.process_names import CodeFrame, ParkedStack, ProcessNames
from udsprobe.symbols.unwinding import RED_ZONE_BYTES, Activation, State, Unwinder

# In these a goroutine waits for bytes of a connection, which the kernel sees.
_FOR_BYTES = re.compile(
    r"internal/poll\.runtime_pollWait|net/http\.\(\*persistConn\)\.roundTrip"
    r"|(net/http\.\(\*http2|golang\.org/x/net/http2\.\(\*)ClientConn\)\.\w*[rR]oundTrip"
    r"|google\.golang\.org/grpc\.\(\*clientStream\)\.\w+"
)
# Of these, its client's: what it sends, or the body of its request.
_FOR_CLIENT = re.compile(r"internal/poll\.\(\*FD\)\.Write\w*|net/http\.\(\*connReader\)\.Read")
_ACCEPTS = re.compile(r"internal/poll\.\(\*FD\)\.Accept")
_READS = re.compile(r"net\.\(\*conn\)\.Read")
# Below these a goroutine has a request to answer, whoever has started it.
_HANDLES = re.compile(
    r"net/http\.serverHandler\.ServeHTTP|net/rpc\.\(\*service\)\.call"
    r"|google\.golang\.org/grpc\.\(\*Server\)\.handleStream"
    r"|github\.com/valyala/fasthttp\.\(\*Server\)\.serveConn"
)
# In these a goroutine may wait for those that it has started.
_FOR_OTHERS = re.compile(r"sync\.\(\*WaitGroup\)\.Wait|runtime\.(chanrecv[12]?|selectgo)")
_STANDARD = re.compile(
    r"(bufio|context|crypto|database|encoding|internal|io|log|net|os|runtime|sync|syscall|time"
    r"|vendor)(/[\w./]+)?\."
)
_PACKAGE = re.compile(r"((?:[^/(\[]*/)*[^/.(\[]*)\.")
_WAITS_WITH = re.compile(r"((internal/)?runtime|internal/sync|sync)(/[\w/]+)?\..*")
_RUNTIME = "runtime."


_Addresses = Tuple[int, ...]


class _Group(NamedTuple):
    """Of goroutines that wait alike."""

    calls: _Addresses
    is_whole: bool
    for_request: Optional[bool]
    held_by: Optional[Tuple[_Addresses, ...]]


class GoroutineStacks:
    """Of one process, which may be none of Go.

    Args:
        unwinder: None where callers cannot be found.
    """

    def __init__(
        self, names: ProcessNames, memory: ProcessMemory, unwinder: Optional[Unwinder]
    ) -> None:
        self._names, self._memory, self._unwinder = names, memory, unwinder
        self.forget()

    def forget(self) -> None:
        """Another program may run in the process now."""
        self._goroutines: Optional[Goroutines] = None
        self._was_sought = False
        self._acceptors: Set[str] = set()
        self._readers: Set[str] = set()
        self._outlive: Set[int] = set()

    def waiting(self) -> List[ParkedStack]:
        """Those that wait at this moment: for bytes only those that a request has ask for them, and
        none of the runtime's own.

        None of a process that is no program of Go, or whose memory cannot be read.
        """
        if not self._was_sought:
            self._goroutines, self._was_sought = self._sought(), True
        if self._goroutines is None or self._unwinder is None:
            return []
        with suppress(OSError):
            parked, each = self._goroutines.parked()
            groups = self._groups(parked, self._unwinder)
            named = [
                (group, self._frames(group.calls), each * count) for group, count in groups.items()
            ]
            for _, frames, _ in named:
                self._learn(frames)
            return [
                ParkedStack(
                    *(frames, group.is_whole, self._is_owing(group, frames), count),
                    held_by=self._held_by(group),
                    for_bytes=_is_in(frames, _FOR_BYTES),
                )
                for group, frames, count in named
                if _is_of_program(frames)
                and (not _is_in(frames, _FOR_BYTES) or _asks(group, frames))
            ]
        return []

    def _groups(self, parked: Sequence[Parked], unwinder: Unwinder) -> Counter[_Group]:
        """Of those that wait; of the others none waits for a lock, but may have one."""
        found = [_calls(one, unwinder) for one in parked]
        calls = [tuple(call.address for call in activations) for activations, _ in found]
        all_met = [
            Met(one, activations, self._functions(addresses))
            for one, (activations, _), addresses in zip(parked, found, calls)
        ]
        waits, holders = self._holders.look(all_met)
        held_by = {
            lock: tuple(sorted(calls[at] for at in those)) for lock, those in holders.items()
        }
        begun = [Begun(one, activations) for one, (activations, _) in zip(parked, found)]
        started, stand_back = self._for_requests(all_met, self._origins.of(begun))
        return Counter(
            _Group(
                *(calls[at], found[at][1], True if at in started else None),
                None if lock is None else held_by.get(lock, ()),
            )
            for at, (one, lock) in enumerate(zip(parked, waits))
            if one.is_chosen and not one.is_in_call and at not in stand_back
        )

    def _for_requests(
        self, all_met: Sequence[Met], origins: Sequence[Optional[Origin]]
    ) -> Tuple[FrozenSet[int], FrozenSet[int]]:
        """Those that a request has started and waits for, and those that wait for them.

        What these wait for is told in place of that.
        """
        started: Set[int] = set()
        stand_back: Set[int] = set()
        children = self._children(all_met, origins)
        left = [at for at, met in enumerate(all_met) if self._serves(met.functions)]
        while left:
            parent = left.pop()
            mine = [] if parent in stand_back else children.get(parent, [])
            awaited = [at for at in mine if _awaits(all_met[parent], self._started_in(origins[at]))]
            started.update(awaited)
            stand_back.update([parent] if awaited else [])
            left += awaited
        return frozenset(started), frozenset(stand_back)

    def _children(
        self, all_met: Sequence[Met], origins: Sequence[Optional[Origin]]
    ) -> Dict[int, List[int]]:
        """By the one that has started them: those of the program that do not outlive a request."""
        found: Dict[int, List[int]] = {}
        for at, origin in enumerate(origins):
            if origin is None or origin.parent is None or _is_standard(all_met[at].functions):
                continue
            if self._reads(all_met[origin.parent].functions):
                self._outlive.add(origin.place)
            found.setdefault(origin.parent, []).append(at)
        return {
            parent: [at for at in those if _place(origins[at]) not in self._outlive]
            for parent, those in found.items()
        }

    def _started_in(self, origin: Optional[Origin]) -> List[str]:
        return [] if origin is None else self._functions([origin.place - 1])

    def _serves(self, functions: Sequence[str]) -> bool:
        return self._has_request([CodeFrame(each, None) for each in functions])

    def _reads(self, functions: Sequence[str]) -> bool:
        """It waits for the next request of its connection."""
        return any(map(_READS.fullmatch, functions)) and not any(map(_HANDLES.fullmatch, functions))

    def _is_owing(self, group: _Group, frames: Sequence[CodeFrame]) -> bool:
        return group.for_request or self._has_request(frames)

    def _held_by(self, group: _Group) -> Optional[List[List[CodeFrame]]]:
        return None if group.held_by is None else [self._frames(each) for each in group.held_by]

    def _functions(self, calls: Sequence[int]) -> List[str]:
        return [frame.function or "" for frame in self._frames(calls)]

    def _frames(self, calls: Sequence[int]) -> List[CodeFrame]:
        return [frame for address in calls for frame in self._names.frames(address)]

    def _learn(self, frames: Sequence[CodeFrame]) -> None:
        """Who accepts connections, and who reads from connections."""
        if _is_in(frames, _ACCEPTS):
            self._acceptors.update(frame.function for frame in frames if frame.function)
        elif _is_in(frames, _READS):
            self._readers.add(_begins_in(frames))

    def _has_request(self, frames: Sequence[CodeFrame]) -> bool:
        """It serves a connection, and waits for something else than its next request.

        One that is started with what an acceptor has accepted begins in a function that the
        compiler has made in that: `main.serve.gowrap1`, `main.serve.func2`.
        """
        begins_in = _begins_in(frames)
        started_by = begins_in.rpartition(".")[0]
        serves = begins_in in self._readers and started_by in self._acceptors
        return serves or _is_in(frames, _HANDLES)

    def _sought(self) -> Optional[Goroutines]:
        adds, parks = map(self._names.go_function, (ADDS, PARKS))
        if adds is None or parks is None:
            return None
        begin, size_bytes = parks
        code = range(begin, begin + size_bytes)
        found = Goroutines(self._memory, adds, code.__contains__, RED_ZONE_BYTES)
        names = (self._function_at, self._names.function_bounds)
        self._holders = LockHolders(self._memory, *names)
        self._origins = Origins(self._memory.words, *names)
        return found if found.is_there else None

    def _function_at(self, address: int) -> Optional[str]:
        return self._names.frame(address).function


def _calls(one: Parked, unwinder: Unwinder) -> Tuple[Sequence[Activation], bool]:
    """The innermost first; whether they reach its outermost function."""
    return unwinder.callers(State(one.ip, one.sp, 0, None), one.memory)


def _awaits(parent: Met, started_in: Sequence[str]) -> bool:
    """It waits where what it has started is waited for: in the package that started it."""
    if not any(map(_FOR_OTHERS.fullmatch, parent.functions)):
        return False
    inner = [at for at, name in enumerate(parent.functions) if not _WAITS_WITH.fullmatch(name)]
    waits_in = parent.functions[: inner[0] + 1] if inner else parent.functions
    packages = set(map(_package, waits_in)) - {"runtime"}
    return not packages.isdisjoint(map(_package, started_in))


def _asks(group: _Group, frames: Sequence[CodeFrame]) -> bool:
    """It waits for an answer. One that serves a connection by itself may wait for its client."""
    has_request = group.for_request or _is_in(frames, _HANDLES)
    return has_request and not _is_in(frames, _FOR_CLIENT)


def _place(origin: Optional[Origin]) -> int:
    return 0 if origin is None else origin.place


def _package(function: str) -> str:
    found = _PACKAGE.match(function)
    return found.group(1) if found else ""


def _is_standard(functions: Sequence[str]) -> bool:
    """No program has called it: what a library keeps for a connection, say."""
    return all(_STANDARD.match(each) for each in functions)


def _is_of_program(frames: Sequence[CodeFrame]) -> bool:
    return not all(_is_runtimes(frame.function or "") for frame in frames)


def _begins_in(frames: Sequence[CodeFrame]) -> str:
    """The outermost function of the program; none of the runtime's is below it."""
    names = (frame.function or "" for frame in reversed(frames))
    return next((name for name in names if not _is_runtimes(name)), "")


def _is_runtimes(function: str) -> bool:
    return function.startswith(_RUNTIME)


def _is_in(frames: Sequence[CodeFrame], functions: re.Pattern[str]) -> bool:
    return any(functions.fullmatch(frame.function or "") for frame in frames)
