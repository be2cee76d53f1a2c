"""Functions of JavaScript, by V8's objects in the memory of their process."""

from __future__ import annotations

from contextlib import suppress
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from udsprobe.kernel.proc.process_memory import OBJECTS_MAX, ObjectsSeen, ProcessMemory
from udsprobe.symbols.v8.heap import V8Heap
from udsprobe.symbols.v8.layouts import NamesLayout
from udsprobe.symbols.v8.optimized_code import OptimizedCode

SOURCE_BYTES_MAX = 4 << 20
"""Of a script: in which line a function behind them begins is not known."""

ANONYMOUS = "(anonymous)"
# Behind the variables of a scope: one of a class, the function's name and place, the name that it
# is inferred to have, and where it begins and ends, two numbers (src/objects/scope-info.tq).
_TAIL_WORDS, _VARIABLES_MAX = 8, 10_000
_FILE = "file://"


class V8Function(NamedTuple):
    """`line`: where it begins; None: not known."""

    name: str
    file: Optional[str]
    line: Optional[int]


class _Shared(NamedTuple):
    """What the shared part of a function holds."""

    scope: int
    script: int


class _Scope(NamedTuple):
    name: str
    position: Optional[int]


class V8Functions:
    """Of one process. The shared part of a function is read once, and looked at again in each
    round: its place in memory may be another's by then.

    Args:
        is_code: whether code is at an address.
    """

    def __init__(
        self, layout: NamesLayout, memory: ProcessMemory, is_code: Callable[[int], bool]
    ) -> None:
        self._layout = layout
        self._heap = V8Heap(layout, memory)
        self._optimized = OptimizedCode(layout, memory, self._heap, is_code)
        self._known: Dict[_Shared, Optional[V8Function]] = {}
        self._shared = ObjectsSeen(self._look)

    def begin_round(self) -> None:
        """Look at them again."""
        self._shared.begin_round()
        self._optimized.begin_round()

    def shared_at(self, address: int) -> Optional[int]:
        """The shared part of the function whose optimized code this is; None: it is none."""
        return self._optimized.shared_at(address)

    def inlined_at(self, call: int) -> Tuple[int, ...]:
        """Of those that are inlined where it calls, the outermost first."""
        return self._optimized.inlined_at(call)

    def of(self, shared: int) -> Optional[V8Function]:
        """By the address of its shared part; None where that is none, or of V8's own code."""
        holds = self._shared.at(shared)
        if holds is None:
            return None
        if holds not in self._known:
            if len(self._known) >= OBJECTS_MAX:
                self._known.clear()
            self._known[holds] = self._read(holds)
        return self._known[holds]

    def is_of_script(self, shared: int) -> bool:
        """It is one that a script has, and not V8's own.

        Args:
            shared: address of its shared part.

        Raises:
            OSError: it is none, or cannot be read.
        """
        if self._heap.type(shared) != self._layout.shared_type:
            raise OSError("no function")
        script = self._heap.object(shared + self._layout.shared_script)
        return self._heap.type(script) == self._layout.script_type

    def _look(self, shared: int) -> Optional[_Shared]:
        layout = self._layout
        with suppress(OSError):
            if self._heap.type(shared) == layout.shared_type:
                scope, script = (
                    self._heap.object(shared + place)
                    for place in (layout.shared_name, layout.shared_script)
                )
                return _Shared(scope, script)
        return None

    def _read(self, shared: _Shared) -> Optional[V8Function]:
        layout = self._layout
        with suppress(OSError):
            if self._heap.type(shared.script) != layout.script_type:
                return None
            scope = self._scope(shared.scope)
            file = self._heap.text(self._heap.object(shared.script + layout.script_name))
            file = file[len(_FILE) :] if file.startswith(_FILE) else file
            line = self._line(shared.script, scope.position)
            return V8Function(scope.name or ANONYMOUS, file or None, line)
        return None

    def _scope(self, address: int) -> _Scope:
        layout = self._layout
        if self._heap.is_string(address):
            return _Scope(self._heap.text(address), None)
        first = address + 8
        count = self._heap.number(first + 8 * layout.scope_locals)
        if self._heap.type(address) != layout.scope_type or count is None or count > _VARIABLES_MAX:
            raise OSError("no scope")
        begins = layout.scope_variables
        words = self._words(first + 8 * (begins + self._variables_words(first, count)))
        if begins - layout.scope_locals > 1:  # where it begins is before its variables: Node 24
            return _Scope(
                self._name(words), self._heap.number(first + 8 * (layout.scope_locals + 1))
            )
        numbers = [not word & 1 for word in words]
        pairs = (at for at in range(len(words) - 1) if numbers[at] and numbers[at + 1])
        at = next(pairs, None)
        if at is None:
            return _Scope(self._name(words), None)
        return _Scope(self._name(words[:at]), words[at] >> 32)

    def _variables_words(self, first: int, count: int) -> int:
        """Names and kinds; names of many are in one table (kScopeInfoMaxInlinedLocalNamesSize)."""
        if not count:
            return 0
        are_in_table = not self._heap.is_string(
            self._heap.object(first + 8 * self._layout.scope_variables)
        )
        return (1 if are_in_table else count) + count

    def _words(self, start: int) -> List[int]:
        found = [self._heap.word(start)]
        with suppress(OSError):
            found += (self._heap.word(start + 8 * at) for at in range(1, _TAIL_WORDS))
        return found

    def _name(self, words: List[int]) -> str:
        """The first that is none of an object; the function's own is before the inferred one."""
        for word in words:
            with suppress(OSError):
                text = self._heap.text(word - 1) if word & 1 else ""
                if text:
                    return text
        return ""

    def _line(self, script: int, position: Optional[int]) -> Optional[int]:
        """The first is 1; of sources outside of V8's memory, as Node's own, it is not known."""
        layout = self._layout
        with suppress(OSError):
            source = self._heap.object(script + layout.script_source)
            if position is not None:
                before = self._heap.first_letters(source, position, SOURCE_BYTES_MAX)
                return None if before is None else 1 + before.count("\n")
        return None
