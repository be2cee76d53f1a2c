"""Whether an async function has a request to answer: it has the response, or a connection that the
server has accepted, at hand.

That is an object of Node's `ServerResponse` or `Http2ServerResponse` (lib/_http_server.js,
lib/internal/http2/compat.js), or a `Socket` with its `Server` (lib/net.js, onconnection), among its
arguments and variables, those of functions around it, its `this`, or what a callback has that is
called when it is done; or in one of these, as the context of Koa, the reply of Fastify or the
request of hapi has it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set

from udsprobe.symbols.v8.awaits.async_functions import Suspended
from udsprobe.symbols.v8.awaits.layouts import AwaitsLayout
from udsprobe.symbols.v8.functions import V8Functions
from udsprobe.symbols.v8.heap import V8Heap

_RESPONSES = ("ServerResponse", "Http2ServerResponse")
_SOCKETS, _SERVER = ("Socket", "TLSSocket"), "Server"
_DEPTH, _OBJECTS_MAX, _WORDS_MAX, _MAPS_BACK_MAX, _KINDS_MAX = 2, 200, 48, 100, 10_000
_HEAD_WORDS = 3
# Of a context: the one around it.
_PREVIOUS, _AROUND_MAX = 24, 3


class _Kind(NamedTuple):
    """Of all objects that have one map.

    Attributes:
        words: of an object, its head with them; 0: it is none of JavaScript.
        name: of its constructor.
    """

    words: int
    name: str


_NONE = _Kind(0, "")


class Requests:
    """Of one process.

    Args:
        function_shared: offset in bytes.
    """

    def __init__(
        self,
        layout: AwaitsLayout,
        heap: V8Heap,
        functions: V8Functions,
        function_shared: int,
    ) -> None:
        self._layout, self._heap, self._functions = layout, heap, functions
        self._function_shared = function_shared
        self._kinds: Dict[int, _Kind] = {}

    def begin_round(self) -> None:
        """Another map may be where one was."""
        self._kinds.clear()

    def has_response(self, waits: Suspended, contexts: Sequence[int]) -> bool:
        """What it has at hand leads to one.

        Args:
            contexts: what functions have that are called when it is done.
        """
        left = [waits.receiver, *self._items(waits.registers)]
        for context in (*self._around(waits.context), *contexts):
            left += self._items(context)
        return self._is_in(left)

    def _is_in(self, objects: Sequence[int]) -> bool:
        left = list(objects)
        seen: Set[int] = set()
        for _ in range(_DEPTH):
            inner: List[int] = []
            for found in left:
                if found in seen or len(seen) > _OBJECTS_MAX:
                    continue
                seen.add(found)
                parts = self._parts(found, self._kind(found))
                if self._is_response(found, parts):
                    return True
                inner += parts
            left = inner
        return any(self._is_response(found, ()) for found in left[:_OBJECTS_MAX])

    def _is_response(self, found: int, parts: Sequence[int]) -> bool:
        name = self._kind(found).name
        if name in _SOCKETS:
            return any(self._kind(part).name == _SERVER for part in parts)
        return name in _RESPONSES

    def _around(self, context: int) -> Iterator[int]:
        """It, and those around it."""
        with suppress(OSError):
            for _ in range(_AROUND_MAX):
                yield context
                context = self._heap.object(context + _PREVIOUS)

    def generators(self, registers: int) -> List[int]:
        """Async generators among the variables of a function."""
        kind = self._layout.async_generator_type
        return [each for each in self._items(registers) if self._heap.is_type(each, kind)]

    def _items(self, array: int) -> List[int]:
        """Objects in an array of V8's, or in a context, which begins as one."""
        heap = self._heap
        with suppress(OSError):
            count = min(heap.number(array + 8) or 0, _WORDS_MAX)
            return list(_objects(heap.words(array + 16, count)))
        return []

    def _parts(self, found: int, kind: _Kind) -> List[int]:
        """Its properties, in it and behind it."""
        heap = self._heap
        inside = min(kind.words - _HEAD_WORDS, _WORDS_MAX)
        if inside < 0:
            return []
        with suppress(OSError):
            told = list(_objects(heap.words(found + 8 * _HEAD_WORDS, inside)))
            for more in heap.objects([found + self._layout.properties]):
                if heap.is_type(more, self._layout.properties_type):
                    told += self._items(more)
            return told
        return []

    def _kind(self, found: int) -> _Kind:
        try:
            map_ = self._heap.object(found)
            if map_ not in self._kinds and len(self._kinds) < _KINDS_MAX:
                self._kinds[map_] = self._look(map_)
            return self._kinds.get(map_, _NONE)
        except OSError:
            return _NONE

    def _look(self, map_: int) -> _Kind:
        """Raises OSError."""
        if self._heap.type_of_map(map_) != self._layout.object_type:
            return _NONE
        words = self._heap.byte(map_ + self._layout.map_words)
        return _Kind(words, self._constructor(map_))

    def _constructor(self, map_: int) -> str:
        """Its name; empty: not known. Maps are made from others, of which the first has it."""
        heap, at = self._heap, map_
        with suppress(OSError):
            for _ in range(_MAPS_BACK_MAX):
                at = heap.object(at + self._layout.map_constructor)
                if heap.type(at) != self._layout.map_of_map_type:
                    found = self._functions.of(heap.object(at + self._function_shared))
                    return "" if found is None else found.name
        return ""


def _objects(words: Iterable[int]) -> Iterator[int]:
    """Addresses, of those words that point to objects."""
    return (word - 1 for word in words if word & 3 == 1)
