"""Who waits for a promise: what V8 does when it is done (src/objects/promise.tq, PromiseReaction).

An `await` leaves a function of V8's own there, whose context has the one that goes on; `then`,
`Promise.all` and the like, and a promise that is returned, leave the next promise.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.symbols.v8.awaits.layouts import AwaitsLayout
from udsprobe.symbols.v8.heap import V8Heap

_PROMISES_MAX, _REACTIONS_MAX = 16, 8
# PromiseReaction, behind its map: the next one, both handlers, what comes of it, and, since V8 12
# as the first, data of the program. PromiseCapability: its promise.
_REACTION_WORDS, _PROMISE = 5, 8
# Of a context, behind its length: what it is of, the one around it, and then what is in it.
_FIRST_SLOT, _SLOTS_MAX = 16, 8


Typed = Tuple[int, int]
"""Address and type of an object."""


class After(NamedTuple):
    """Addresses.

    Attributes:
        function: of the async function or generator that waits for it; None: none does, or it is
            not known.
        contexts: of functions of the program that are called, where none waits.
    """

    function: Optional[int]
    contexts: Sequence[int]


class Promises:
    """Those of one process.

    Args:
        is_of_script: whether a function is one of the program's, and not V8's own, by its
            address; None: there is no function.
    """

    def __init__(
        self, layout: AwaitsLayout, heap: V8Heap, is_of_script: Callable[[int], Optional[bool]]
    ) -> None:
        self._layout, self._heap, self._is_of_script = layout, heap, is_of_script

    def after(self, promise: int) -> After:
        """What goes on when it is done."""
        layout = self._layout
        left, seen = [promise], {promise}
        contexts: List[int] = []
        while left and len(seen) <= _PROMISES_MAX:
            for found, kind in self._then(left.pop(0)):
                if kind in (layout.async_type, layout.async_generator_type):
                    return After(found, ())
                if kind == layout.promise_type and found not in seen:
                    seen.add(found)
                    left.append(found)
                elif kind > layout.object_type and self._is_of_script(found):
                    contexts += self._heap.objects([found + layout.function_context])
        return After(None, contexts)

    def _then(self, promise: int) -> Iterator[Typed]:
        """Objects that what is done then has to do with."""
        for found, kind in self._reactions(promise):
            yield from self._promised(found, kind)
            # Functions are objects of JavaScript, whose types are behind those of all others.
            if kind > self._layout.object_type:
                for inside in self._typed(self._in_context(found)):
                    yield from self._promised(*inside)

    def _reactions(self, promise: int) -> Iterator[Typed]:
        """What those hold that follow one another."""
        reaction_type = self._layout.reaction_type
        left = list(self._typed(self._heap.objects([promise + self._layout.head_bytes])))
        for _ in range(_REACTIONS_MAX):
            reactions = [found for found, kind in left if kind == reaction_type]
            if not reactions:
                break
            first = reactions[-1]
            words = range(1, _REACTION_WORDS + 1)
            left = list(self._typed(self._heap.objects(first + 8 * at for at in words)))
            yield from ((found, kind) for found, kind in left if kind != reaction_type)

    def _promised(self, found: int, kind: int) -> Iterator[Typed]:
        """Itself, or the promise that it is to keep."""
        if kind == self._layout.capability_type:
            yield from self._typed(self._heap.objects([found + _PROMISE]))
        else:
            yield found, kind

    def _typed(self, objects: Iterable[int]) -> Iterator[Typed]:
        for found in objects:
            with suppress(OSError):
                yield found, self._heap.type(found)

    def _in_context(self, handler: int) -> Iterator[int]:
        """What a function that V8 makes has at hand; one of the program may have anything."""
        if self._is_of_script(handler) is not False:
            return
        with suppress(OSError):
            context = self._heap.object(handler + self._layout.function_context)
            count = self._heap.number(context + 8) or 0
            words = self._heap.words(context + _FIRST_SLOT, min(max(0, count), _SLOTS_MAX))
            yield from (word - 1 for word in words if word & 3 == 1)
