"""Memory of V8 that is made up, as Node 20 has it."""

from __future__ import annotations

import struct
from typing import Dict, List

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.v8_frames import V8Layout
from udsprobe.symbols.v8.layouts import NamesLayout

START = 0x1000_0000
FRAMES = V8Layout(-8, -16, 12, 2066, 24)
NAMES = NamesLayout(
    *(12, 262, 16, 32, 167, 16, 8, 261, 2, 3, 128, 8, 7, 1, 5, 12, 16, 16, 16, 24, 252, 245, 6),
    *(2, 7, 9, 8, 16, 190, -1, 0),
)
ONE_BYTE, TWO_BYTES, CONS, THIN, UNDEFINED = 8, 0, 1, 5, 131
MAP = 255


class Heap(ProcessMemory):
    """Of objects that are put there one behind the other."""

    def __init__(self) -> None:
        super().__init__(0)
        # The map of maps is its own.
        self.image = bytearray(struct.pack("<QIHH", START | 1, 0, MAP, 0))
        self._maps: Dict[int, int] = {}

    def read(self, address: int, size_bytes: int) -> bytes:
        at = address - START
        if at < 0 or at + size_bytes > len(self.image):
            raise OSError("no memory")
        return bytes(self.image[at : at + size_bytes])

    def put(self, kind: int, body: bytes) -> int:
        """An object of a type, and where it is."""
        return self._add(struct.pack("<Q", self.map_of(kind) | 1) + body)

    def map_of(self, kind: int) -> int:
        """Where the map of objects of a type is."""
        if kind not in self._maps:
            self._maps[kind] = self._add(struct.pack("<QIHH", START | 1, 0, kind, 0))
        return self._maps[kind]

    def text(self, text: str) -> int:
        """A string whose letters are in it."""
        width = 1 if all(ord(letter) < 256 for letter in text) else 2
        raw = text.encode("latin-1" if width == 1 else "utf-16-le")
        return self.put(
            ONE_BYTE if width == 1 else TWO_BYTES, struct.pack("<Ii", 0, len(text)) + raw
        )

    def put_words(self, kind: int, *words: int) -> int:
        return self.put(kind, struct.pack(f"<{len(words)}Q", *words))

    def change(self, address: int, word: int) -> None:
        struct.pack_into("<Q", self.image, address - START, word)

    def _add(self, raw: bytes) -> int:
        at = len(self.image)
        self.image += raw.ljust(-(-len(raw) // 8) * 8, b"\0")
        return START + at


def number(value: int) -> int:
    return value << 32 & (1 << 64) - 1


def scope(heap: Heap, tail: List[int], variables: int = 0, in_table: bool = False) -> int:
    if not variables:
        names = []
    elif in_table:
        names = [heap.put_words(300) | 1]
    else:
        names = [heap.text(f"v{each}") | 1 for each in range(variables)]
    kinds = [number(1)] * variables
    return heap.put_words(261, number(7), number(0), number(variables), *names, *kinds, *tail)


def function(
    heap: Heap, of_scope: int, source: str = "\n\nfunction f() {}", file: str = "/a/b.js"
) -> int:
    script = heap.put_words(167, heap.text(source) | 1, heap.text(file) | 1)
    return heap.put_words(262, 0, of_scope | 1, 0, script | 1)


def named(heap: Heap, name: str = "verify", *, variables: int = 0, in_table: bool = False) -> int:
    undefined = heap.put_words(UNDEFINED) | 1
    tail = [heap.text(name) | 1, number(-1), undefined, number(12), number(40)]
    outer = heap.put_words(261) | 1
    return function(heap, scope(heap, [*tail, outer], variables, in_table))
