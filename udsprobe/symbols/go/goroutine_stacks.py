"""The stacks of goroutines that wait for one another, for a lock or for time."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from typing import List, NamedTuple, Optional, Sequence, Set, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.go.goroutines import ADDS, PARKS, Goroutines, Parked
from udsprobe.symbols.process_names import CodeFrame, ProcessNames
from udsprobe.symbols.unwinding import RED_ZONE_BYTES, State, Unwinder

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


class GoroutineStack(NamedTuple):
    """Of those that wait in one place.

    Attributes:
        frames: the innermost first. is_whole: they reach its outermost function.
        is_owing: they have requests to answer. goroutines: how many they are.
    """

    frames: Sequence[CodeFrame]
    is_whole: bool
    is_owing: bool
    goroutines: int


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

    def waiting(self) -> List[GoroutineStack]:
        """Those that wait at this moment, but for bytes of a connection, or as the runtime's own.

        None of a process that is no program of Go, or whose memory cannot be read.
        """
        if not self._was_sought:
            self._goroutines, self._was_sought = self._sought(), True
        if self._goroutines is None or self._unwinder is None:
            return []
        with suppress(OSError):
            parked, each = self._goroutines.parked()
            places = Counter(_calls(one, self._unwinder) for one in parked)
            named = [
                (self._frames(calls), is_whole, each * count)
                for (calls, is_whole), count in places.items()
            ]
            for frames, _, _ in named:
                self._learn(frames)
            return [
                GoroutineStack(frames, is_whole, self._has_request(frames), count)
                for frames, is_whole, count in named
                if _is_of_program(frames)
            ]
        return []

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
        return found if found.is_there else None


def _calls(one: Parked, unwinder: Unwinder) -> Tuple[Tuple[int, ...], bool]:
    """Their addresses, the innermost first; whether they reach its outermost function."""
    found, is_whole = unwinder.callers(State(one.ip, one.sp, 0, None), one.memory)
    return tuple(call.address for call in found), is_whole


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
