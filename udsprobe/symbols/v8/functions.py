"""Functions of JavaScript, by V8's objects in the memory of their process."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional

from udsprobe.kernel.proc.process_memory import OBJECTS_MAX, ObjectsSeen, ProcessMemory
from udsprobe.printable import printable
from udsprobe.symbols.v8.layouts import NamesLayout

LETTERS_MAX = 1024
"""Of a name; the rest of a longer one is left out."""

SOURCE_BYTES_MAX = 4 << 20
"""Of a script: in which line a function behind them begins is not known."""

ANONYMOUS = "(anonymous)"
_PARTS_MAX = 64
# Behind the variables of a scope: one of a class, the function's name and place, the name that it
# is inferred to have, and where it begins and ends, two numbers (src/objects/scope-info.tq).
_TAIL_WORDS, _VARIABLES_MAX = 8, 10_000
# Before an instruction, in which its object is looked for; of objects, the fields that are.
_CODE_BYTES_MAX, _FIELDS_MAX, _PAGE_BYTES = 1 << 16, 10, 4096
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
    """

    def __init__(self, layout: NamesLayout, memory: ProcessMemory) -> None:
        self._layout = layout
        self._memory = memory
        self._known: Dict[_Shared, Optional[V8Function]] = {}
        self._shared = ObjectsSeen(self._look)
        self._by_code: Dict[int, Optional[int]] = {}
        self._stream_map = 0

    def begin_round(self) -> None:
        """Look at them again."""
        self._shared.begin_round()
        self._by_code.clear()

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

    def of_code(self, address: int) -> Optional[V8Function]:
        """By an address in code that was optimized; None where it is in no such code."""
        if address not in self._by_code:
            self._by_code[address] = self._shared_of_code(address)
        shared = self._by_code[address]
        return None if shared is None else self.of(shared)

    def _shared_of_code(self, address: int) -> Optional[int]:
        stream = self._stream(address)
        if stream is None:
            return None
        layout = self._layout
        places = range(stream + 8, stream + 8 * _FIELDS_MAX, 8)
        found = [stream, *self._objects(places)]
        code = next((each for each in found if self._is(each, layout.code_type)), None)
        if code is None:
            return None
        for optimized in self._objects(range(code + 8, code + 8 * _FIELDS_MAX, 8)):
            with suppress(OSError):
                shared = self._object(optimized + 16 + 8 * layout.optimized_shared)
                if self._is(shared, layout.wrapper_type):
                    shared = self._object(shared + 8)
                if self._is(shared, layout.shared_type):
                    return shared
        return None

    def _stream(self, address: int) -> Optional[int]:
        """The object whose instructions these are: the nearest before them."""
        # Page by page: it may be the first of its memory.
        end = (address & ~7) + 8
        while end > address - _CODE_BYTES_MAX:
            start = (end - 1) & ~(_PAGE_BYTES - 1)
            try:
                raw = self._memory.read(start, end - start)
            except OSError:
                return None
            words = struct.unpack(f"<{len(raw) // 8}Q", raw)
            for at in range(len(words) - 1, -1, -1):
                if self._is_stream_map(words[at]):
                    return start + 8 * at
            end = start
        return None

    def _is_stream_map(self, word: int) -> bool:
        if self._stream_map or word & 3 != 1:
            return word == self._stream_map
        with suppress(OSError):
            if self._type_of_map(word - 1) == self._layout.stream_type:
                self._stream_map = word
                return True
        return False

    def _objects(self, places: Iterable[int]) -> Iterator[int]:
        for place in places:
            with suppress(OSError):
                yield self._object(place)

    def _is(self, address: int, kind: int) -> bool:
        with suppress(OSError):
            return self._type(address) == kind
        return False

    def _look(self, shared: int) -> Optional[_Shared]:
        layout = self._layout
        with suppress(OSError):
            if self._type(shared) == layout.shared_type:
                scope, script = (
                    self._object(shared + place)
                    for place in (layout.shared_name, layout.shared_script)
                )
                return _Shared(scope, script)
        return None

    def _read(self, shared: _Shared) -> Optional[V8Function]:
        layout = self._layout
        with suppress(OSError):
            if self._type(shared.script) != layout.script_type:
                return None
            scope = self._scope(shared.scope)
            file = self._text(self._object(shared.script + layout.script_name))
            file = file[len(_FILE) :] if file.startswith(_FILE) else file
            line = self._line(shared.script, scope.position)
            return V8Function(scope.name or ANONYMOUS, file or None, line)
        return None

    def _scope(self, address: int) -> _Scope:
        layout = self._layout
        if self._is_string(address):
            return _Scope(self._text(address), None)
        first = address + 8
        count = self._number(first + 8 * layout.scope_locals)
        if self._type(address) != layout.scope_type or count is None or count > _VARIABLES_MAX:
            raise OSError("no scope")
        begins = layout.scope_variables
        words = self._words(first + 8 * (begins + self._variables_words(first, count)))
        if begins - layout.scope_locals > 1:  # where it begins is before its variables: Node 24
            return _Scope(self._name(words), self._number(first + 8 * (layout.scope_locals + 1)))
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
        are_in_table = not self._is_string(self._object(first + 8 * self._layout.scope_variables))
        return (1 if are_in_table else count) + count

    def _words(self, start: int) -> List[int]:
        found = [self._word(start)]
        with suppress(OSError):
            found += (self._word(start + 8 * at) for at in range(1, _TAIL_WORDS))
        return found

    def _name(self, words: List[int]) -> str:
        """The first that is none of an object; the function's own is before the inferred one."""
        for word in words:
            with suppress(OSError):
                text = self._text(word - 1) if word & 1 else ""
                if text:
                    return text
        return ""

    def _line(self, script: int, position: Optional[int]) -> Optional[int]:
        """The first is 1; of sources outside of V8's memory, as Node's own, it is not known."""
        layout = self._layout
        with suppress(OSError):
            source = self._object(script + layout.script_source)
            kind = self._type(source)
            if position is None or kind >= layout.string_types or kind & layout.string_shape:
                return None
            width = 1 if kind & layout.string_encoding else 2
            if position < 0 or position * width > SOURCE_BYTES_MAX:
                return None
            raw = self._memory.read(source + layout.string_letters, position * width)
            return 1 + raw.decode("latin-1" if width == 1 else "utf-16-le", "replace").count("\n")
        return None

    def _text(self, address: int) -> str:
        return printable("".join(self._parts(address)).encode("utf-8", "surrogatepass"))

    def _parts(self, address: int) -> List[str]:
        layout, left = self._layout, [address]
        found: List[str] = []
        for _ in range(_PARTS_MAX):
            if not left or sum(map(len, found)) > LETTERS_MAX:
                break
            at = left.pop()
            kind = self._type(at)
            if kind >= layout.string_types:
                raise OSError("no string")
            shape = kind & layout.string_shape
            if shape == layout.string_thin:
                left.append(self._object(at + layout.string_actual))
            elif shape == layout.string_cons:
                left += [self._object(at + layout.string_second)]
                left += [self._object(at + layout.string_first)]
            elif shape:
                raise OSError("a string whose letters are elsewhere")
            else:
                found.append(self._letters(at, kind))
        return found

    def _letters(self, address: int, kind: int) -> str:
        layout = self._layout
        (length,) = struct.unpack("<i", self._memory.read(address + layout.string_length, 4))
        width = 1 if kind & layout.string_encoding else 2
        count = max(0, min(length, LETTERS_MAX))
        raw = self._memory.read(address + layout.string_letters, count * width)
        return raw.decode("latin-1" if width == 1 else "utf-16-le", "replace")

    def _is_string(self, address: int) -> bool:
        return self._type(address) < self._layout.string_types

    def _type(self, address: int) -> int:
        return self._type_of_map(self._object(address))

    def _type_of_map(self, address: int) -> int:
        raw = self._memory.read(address + self._layout.map_type, 2)
        return int(struct.unpack("<H", raw)[0])

    def _word(self, address: int) -> int:
        return int(struct.unpack("<Q", self._memory.read(address, 8))[0])

    def _object(self, address: int) -> int:
        """Of the object that a pointer there leads to; its lowest bit says that it is one."""
        word = self._word(address)
        if word & 3 != 1:
            raise OSError("no object")
        return word - 1

    def _number(self, address: int) -> Optional[int]:
        """A small integer, in the upper half of a word: Node's V8 does not compress pointers."""
        word = self._word(address)
        return None if word & 1 else word >> 32
