"""Objects of V8 in the memory of a process: words, types, and the text of strings."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Iterable, Iterator, List, Optional

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.printable import printable
from udsprobe.symbols.v8.layouts import NamesLayout

LETTERS_MAX = 1024
"""Of a name; the rest of a longer one is left out."""

_PARTS_MAX = 64


class V8Heap:
    """Of one process. All raise OSError where there is no such object, or it cannot be read.

    Attributes:
        word, words: of memory, as `ProcessMemory` reads them.
    """

    def __init__(self, layout: NamesLayout, memory: ProcessMemory) -> None:
        self._layout = layout
        self._memory = memory
        self.word, self.words = memory.word, memory.words

    def object(self, address: int) -> int:
        """Of the object that a pointer there leads to; its lowest bit says that it is one."""
        word = self.word(address)
        if word & 3 != 1:
            raise OSError("no object")
        return word - 1

    def objects(self, places: Iterable[int]) -> Iterator[int]:
        """Those that there are pointers to at some addresses."""
        for place in places:
            with suppress(OSError):
                yield self.object(place)

    def byte(self, address: int) -> int:
        """One of memory."""
        return self._memory.read(address, 1)[0]

    def number(self, address: int) -> Optional[int]:
        """A small integer, in the upper half of a word: Node's V8 does not compress pointers."""
        word = self.word(address)
        return None if word & 1 else word >> 32

    def is_type(self, address: int, kind: int) -> bool:
        """Whether an object of that type is there."""
        with suppress(OSError):
            return self.type(address) == kind
        return False

    def type(self, address: int) -> int:
        """Of the object there."""
        return self.type_of_map(self.object(address))

    def type_of_map(self, address: int) -> int:
        """Of the objects that have this map."""
        raw = self._memory.read(address + self._layout.map_type, 2)
        return int(struct.unpack("<H", raw)[0])

    def bytes_of(self, array: int, bytes_max: int) -> bytes:
        """What an array of bytes holds."""
        size_bytes = self.number(array + self._layout.array_length)
        if size_bytes is None or size_bytes > bytes_max:
            raise OSError("no array of bytes, or too long")
        return self._memory.read(array + self._layout.array_data, size_bytes)

    def is_string(self, address: int) -> bool:
        """Whether the object there is one."""
        return self.type(address) < self._layout.string_types

    def text(self, address: int) -> str:
        """Of the string there, as far as it can be printed."""
        return printable("".join(self._parts(address)).encode("utf-8", "surrogatepass"))

    def first_letters(self, address: int, count: int, bytes_max: int) -> Optional[str]:
        """Of a string whose letters are all in one place; None: they are not, or too many."""
        layout, kind = self._layout, self.type(address)
        width = 1 if kind & layout.string_encoding else 2
        is_flat = kind < layout.string_types and not kind & layout.string_shape
        if not is_flat or not 0 <= count * width <= bytes_max:
            return None
        raw = self._memory.read(address + layout.string_letters, count * width)
        return raw.decode("latin-1" if width == 1 else "utf-16-le", "replace")

    def _parts(self, address: int) -> List[str]:
        layout, left = self._layout, [address]
        found: List[str] = []
        for _ in range(_PARTS_MAX):
            if not left or sum(map(len, found)) > LETTERS_MAX:
                break
            at = left.pop()
            kind = self.type(at)
            if kind >= layout.string_types:
                raise OSError("no string")
            shape = kind & layout.string_shape
            if shape == layout.string_thin:
                left.append(self.object(at + layout.string_actual))
            elif shape == layout.string_cons:
                left += [self.object(at + layout.string_second)]
                left += [self.object(at + layout.string_first)]
            elif shape:
                raise OSError("a string whose letters are elsewhere")
            else:
                found.append(self._letters(at))
        return found

    def _letters(self, address: int) -> str:
        raw = self._memory.read(address + self._layout.string_length, 4)
        count = max(0, min(struct.unpack("<i", raw)[0], LETTERS_MAX))
        return self.first_letters(address, count, 2 * LETTERS_MAX) or ""
