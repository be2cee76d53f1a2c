"""The stacks of async functions that wait: each with those that wait for it."""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import suppress
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.process_names import JIT, CodeFrame, ParkedStack
from udsprobe.symbols.v8.awaits.async_functions import AsyncFunctions, Suspended, TooMany
from udsprobe.symbols.v8.awaits.heap_pages import Pages
from udsprobe.symbols.v8.awaits.layouts import AwaitsLayout
from udsprobe.symbols.v8.awaits.promises import Promises
from udsprobe.symbols.v8.awaits.requests import Requests
from udsprobe.symbols.v8.functions import V8Function, V8Functions
from udsprobe.symbols.v8.heap import V8Heap
from udsprobe.symbols.v8.layouts import Layout, NamesLayout

LOOKING_SHARE_MAX = 0.05
"""Of the time: a large heap is searched less often, and what was there counts until then."""

_FRAMES_MAX, _GENERATORS_MAX = 32, 4
# Scripts of Node itself, whose functions nobody waits in by choice.
_INTERNAL = "node:"
# Of Node, what waits for bytes of a connection or a file.
_FOR_BYTES = re.compile(r"node:(internal/((web)?streams|fs/streams|readline)/|readline|stream)")


class _Waiting(NamedTuple):
    """One that waits; addresses of its function, and of the one that waits for it.

    Attributes:
        has_response: of one that no other waits for.
        inner: functions of async generators whose next value it waits for, the outermost first.
    """

    function: int
    waited_for_by: Optional[int]
    has_response: bool
    inner: Tuple[int, ...]


class _LookedAt(V8Heap):
    """Of one look: many objects have the same map."""

    def __init__(self, layout: NamesLayout, memory: ProcessMemory) -> None:
        super().__init__(layout, memory)
        self.begin_round()

    def begin_round(self) -> None:
        """Another map may be where one was."""
        self._types: Dict[int, int] = {}

    def type_of_map(self, address: int) -> int:
        """Of the objects that have this map; OSError: it cannot be read."""
        if address not in self._types:
            self._types[address] = super().type_of_map(address)
        return self._types[address]


class AwaitStacks:
    """Of one process that runs V8.

    Args:
        functions: the names of its functions.
        pages: where its objects may be now; none: it has too many.
    """

    def __init__(
        self,
        layout: Layout,
        awaits: AwaitsLayout,
        functions: V8Functions,
        memory: ProcessMemory,
        pages: Callable[[], List[Pages]],
    ) -> None:
        heap = _LookedAt(layout.names, memory)
        self._shared_at, self._functions = layout.frames.function_shared, functions
        self._heap = heap
        self._all = AsyncFunctions(layout, awaits, heap, memory, pages)
        self._promises = Promises(awaits, heap, self._is_of_script)
        self._requests = Requests(awaits, heap, functions, self._shared_at)
        self._found: List[ParkedStack] = []
        self._next_s = 0.0

    def waiting(self) -> List[ParkedStack]:
        """Those that wait now, but for others of them; or did at the last look, if that was short
        ago for what it costs.
        """
        if time.monotonic() >= self._next_s:
            began_s = time.thread_time()
            self._heap.begin_round()
            self._requests.begin_round()
            self._found = self._look()
            cost_s = time.thread_time() - began_s
            self._next_s = time.monotonic() + cost_s / LOOKING_SHARE_MAX
        return self._found

    def _look(self) -> List[ParkedStack]:
        try:
            found: Dict[int, _Waiting] = {}
            for one in self._all.waiting():
                self._add(one, found)
        except TooMany:
            return []
        # What was moved while they were looked for may be among them twice.
        found = {at: one for at, one in found.items() if self._all.is_one(at)}
        waited_for = {one.waited_for_by for one in found.values()}
        chains = [_chain(at, found) for at in found if at not in waited_for]
        told = Counter(
            (frames, chain[-1].has_response) for chain in chains if (frames := self._frames(chain))
        )
        return [
            ParkedStack(list(frames), True, is_owing, count)
            for (frames, is_owing), count in told.items()
        ]

    def _add(self, first: Suspended, found: Dict[int, _Waiting]) -> None:
        """It, and the async generators that wait for it."""
        one: Optional[Suspended] = first
        while one is not None and one.address not in found:
            after = self._promises.after(one.promise)
            is_outermost = after.function is None
            has_response = is_outermost and self._requests.has_response(one, after.contexts)
            inner = tuple(self._generators_of(one))
            found[one.address] = _Waiting(one.function, after.function, has_response, inner)
            one = None if after.function is None else self._all.generator_at(after.function)

    def _generators_of(self, one: Suspended) -> Iterator[int]:
        """Functions of async generators whose next value it waits for, the outermost first."""
        for _ in range(_GENERATORS_MAX):
            asked = map(self._all.generator_at, self._requests.generators(one.registers))
            known = (each for each in asked if each is not None)
            found = next((each for each in known if self._is_asked_by(each, one)), None)
            if found is None:
                return
            yield found.function
            one = found

    def _is_asked_by(self, generator: Suspended, one: Suspended) -> bool:
        return self._promises.after(generator.promise).function == one.address

    def _frames(self, chain: Sequence[_Waiting]) -> Tuple[CodeFrame, ...]:
        """None where it is not known whose it is, or where the kernel sees what it waits for."""
        functions = (*reversed(chain[0].inner), *(one.function for one in chain))
        named = [found for each in functions if (found := self._named(each)) is not None]
        files = [each.file or "" for each in named]
        if len(named) != len(functions) or not all(files) or any(map(_FOR_BYTES.match, files)):
            return ()
        if all(each.startswith(_INTERNAL) for each in files):
            return ()
        return tuple(CodeFrame(each.name, JIT, each.file, each.line) for each in named)

    def _named(self, function: int) -> Optional[V8Function]:
        with suppress(OSError):
            return self._functions.of(self._heap.object(function + self._shared_at))
        return None

    def _is_of_script(self, function: int) -> Optional[bool]:
        """None: it is no function."""
        with suppress(OSError):
            return self._functions.is_of_script(self._heap.object(function + self._shared_at))
        return None


def _chain(first: int, found: Mapping[int, _Waiting]) -> List[_Waiting]:
    """It, who waits for it, and so on."""
    chain, seen = [found[first]], {first}
    while len(chain) < _FRAMES_MAX:
        at = chain[-1].waited_for_by
        if at is None or at in seen or at not in found:
            break
        seen.add(at)
        chain.append(found[at])
    return chain
