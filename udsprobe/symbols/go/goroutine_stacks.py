"""The stacks of goroutines that wait for one another, for a lock or for time."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from typing import List, NamedTuple, Optional, Sequence, Set, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.go.goroutines import ADDS, PARKS, Goroutines, Parked
from udsprobe.symbols.go.locks.holders import LockHolders, Met
from udsprobe.symbols.process_names import CodeFrame, ParkedStack, ProcessNames
from udsprobe.symbols.unwinding import RED_ZONE_BYTES, Activation, State, Unwinder

# What a goroutine waits for in these, the kernel sees: bytes of a connection.
_FOR_BYTES = re.compile(
    r"internal/poll\.runtime_pollWait|net/http\.\(\*persistConn\)\.roundTrip"
    r"|(net/http\.\(\*http2|golang\.org/x/net/http2\.\(\*)ClientConn\)\.\w*[rR]oundTrip"
    r"|google\.golang\.org/grpc\.\(\*clientStream\)\.\w+"
)
_ACCEPTS = re.compile(r"internal/poll\.\(\*FD\)\.Accept")
_READS = re.compile(r"net\.\(\*conn\)\.Read")
# Below these a goroutine has a request to answer, whoever has started it.
_HANDLES = re.compile(
    r"net/http\.serverHandler\.ServeHTTP|net/rpc\.\(\*service\)\.call"
    r"|google\.golang\.org/grpc\.\(\*Server\)\.handleStream"
    r"|github\.com/valyala/fasthttp\.\(\*Server\)\.serveConn"
)
_RUNTIME = "runtime."


_Addresses = Tuple[int, ...]


class _Group(NamedTuple):
    """Of goroutines that wait alike."""

    calls: _Addresses
    is_whole: bool
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

    def waiting(self) -> List[ParkedStack]:
        """Those that wait at this moment, but for bytes of a connection, or as the runtime's own.

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
                    frames, group.is_whole, self._has_request(frames), count, self._held_by(group)
                )
                for group, frames, count in named
                if _is_of_program(frames)
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
        return Counter(
            _Group(addresses, is_whole, None if lock is None else held_by.get(lock, ()))
            for one, (_, is_whole), addresses, lock in zip(parked, found, calls, waits)
            if one.is_chosen and not one.is_in_call
        )

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
        self._holders = LockHolders(self._memory, self._function_at, self._names.function_bounds)
        return found if found.is_there else None

    def _function_at(self, address: int) -> Optional[str]:
        return self._names.frame(address).function


def _calls(one: Parked, unwinder: Unwinder) -> Tuple[Sequence[Activation], bool]:
    """The innermost first; whether they reach its outermost function."""
    return unwinder.callers(State(one.ip, one.sp, 0, None), one.memory)


def _is_of_program(frames: Sequence[CodeFrame]) -> bool:
    names = [frame.function or "" for frame in frames]
    return not all(map(_is_runtimes, names)) and not _is_in(frames, _FOR_BYTES)


def _begins_in(frames: Sequence[CodeFrame]) -> str:
    """The outermost function of the program; none of the runtime's is below it."""
    names = (frame.function or "" for frame in reversed(frames))
    return next((name for name in names if not _is_runtimes(name)), "")


def _is_runtimes(function: str) -> bool:
    return function.startswith(_RUNTIME)


def _is_in(frames: Sequence[CodeFrame], functions: re.Pattern[str]) -> bool:
    return any(functions.fullmatch(frame.function or "") for frame in frames)
