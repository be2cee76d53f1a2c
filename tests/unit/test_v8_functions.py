"""Functions of JavaScript by V8's objects, in memory that is made up, and lies.

Equality with what a real program says of itself is in tests/kernel/test_code.py.
"""

from __future__ import annotations

import struct
from typing import Dict, List, Optional, Tuple, Union

import pytest

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.v8_frames import StackTop, V8Frame, V8Layout, v8_frames
from udsprobe.symbols.process_names import JIT, CodeFrame
from udsprobe.symbols.unwinding import Activation
from udsprobe.symbols.v8.functions import ANONYMOUS, V8Functions
from udsprobe.symbols.v8.layouts import _FIELDS, NamesLayout, layout_of
from udsprobe.symbols.v8.stacks import V8Stacks

START = 0x1000_0000
# As Node 20 tells them.
FRAMES = V8Layout(-8, -16, 12, 2066, 24)
NAMES = NamesLayout(
    *(12, 262, 16, 32, 167, 16, 8, 261, 2, 3, 128, 8, 7, 1, 5, 12, 16, 16, 16, 24, 252, 245, 6, 9)
)
ONE_BYTE, TWO_BYTES, CONS, THIN, UNDEFINED = 8, 0, 1, 5, 131
Word = Union[int, str]


class Heap(ProcessMemory):
    """Of objects that are put there one behind the other."""

    def __init__(self) -> None:
        super().__init__(0)
        self.image = bytearray()
        self._maps: Dict[int, int] = {}

    def read(self, address: int, size_bytes: int) -> bytes:
        at = address - START
        if at < 0 or at + size_bytes > len(self.image):
            raise OSError("no memory")
        return bytes(self.image[at : at + size_bytes])

    def put(self, kind: int, body: bytes) -> int:
        """An object of a type, and where it is."""
        if kind not in self._maps:
            self._maps[kind] = self._add(struct.pack("<QIHH", 0, 0, kind, 0))
        return self._add(struct.pack("<Q", self._maps[kind] | 1) + body)

    def text(self, text: str) -> int:
        """A string whose letters are in it."""
        width = 1 if all(ord(letter) < 256 for letter in text) else 2
        raw = text.encode("latin-1" if width == 1 else "utf-16-le")
        return self.put(
            ONE_BYTE if width == 1 else TWO_BYTES, struct.pack("<Ii", 0, len(text)) + raw
        )

    def words(self, kind: int, *words: int) -> int:
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
        names = [heap.words(300) | 1]
    else:
        names = [heap.text(f"v{each}") | 1 for each in range(variables)]
    kinds = [number(1)] * variables
    return heap.words(261, number(7), number(0), number(variables), *names, *kinds, *tail)


def function(
    heap: Heap, of_scope: int, source: str = "\n\nfunction f() {}", file: str = "/a/b.js"
) -> int:
    script = heap.words(167, heap.text(source) | 1, heap.text(file) | 1)
    return heap.words(262, 0, of_scope | 1, 0, script | 1)


def named(heap: Heap, name: str = "verify", *, variables: int = 0, in_table: bool = False) -> int:
    undefined = heap.words(UNDEFINED) | 1
    tail = [heap.text(name) | 1, number(-1), undefined, number(12), number(40)]
    outer = heap.words(261) | 1
    return function(heap, scope(heap, [*tail, outer], variables, in_table))


@pytest.mark.parametrize(("variables", "in_table"), [(0, False), (3, False), (80, True)])
def test_a_function_has_its_name_and_first_line(variables: int, in_table: bool) -> None:
    heap = Heap()
    shared = named(heap, "größe", variables=variables, in_table=in_table)
    assert V8Functions(NAMES, heap).of(shared) == ("größe", "/a/b.js", 3)


def test_one_without_a_name_has_the_one_that_it_is_inferred_to_have() -> None:
    heap = Heap()
    words = [heap.text("") | 1, number(-1), heap.text("Ж.метод") | 1, number(2), number(5)]
    shared = function(heap, scope(heap, words), source="\n\nЖ", file="file:///a/b.mjs")
    assert V8Functions(NAMES, heap).of(shared) == ("Ж.метод", "/a/b.mjs", 3)
    nameless = function(heap, scope(heap, [heap.words(UNDEFINED) | 1, number(2), number(5)]))
    assert V8Functions(NAMES, heap).of(nameless) == (ANONYMOUS, "/a/b.js", 3)


def test_names_in_parts_are_put_together() -> None:
    heap = Heap()
    parts = heap.put(CONS, struct.pack("<IiQQ", 0, 6, heap.text("ver") | 1, heap.text("ify") | 1))
    thin = heap.put(THIN, struct.pack("<IiQ", 0, 6, parts | 1))
    assert V8Functions(NAMES, heap).of(function(heap, thin)) == ("verify", "/a/b.js", None)


def test_code_in_the_place_of_other_code_is_not_named_as_that() -> None:
    heap = Heap()
    shared, other = named(heap, "verify"), named(heap, "render")
    functions = V8Functions(NAMES, heap)
    assert functions.of(shared) is not None
    heap.change(shared + 16, struct.unpack("<Q", heap.read(other + 16, 8))[0])
    functions.begin_round()
    assert functions.of(shared) == ("render", "/a/b.js", 3)
    heap.change(shared, heap.words(300) | 1)
    functions.begin_round()
    # As what has ended: the last that was known.
    assert functions.of(shared) == ("render", "/a/b.js", 3)


def test_what_is_no_function_has_no_name() -> None:
    heap = Heap()
    functions = V8Functions(NAMES, heap)
    assert functions.of(heap.text("verify")) is None
    assert functions.of(heap.words(262, 0, heap.text("map") | 1, 0, heap.words(300) | 1)) is None
    assert functions.of(7) is None
    # A scope of which nothing is known, which is not one without a name.
    assert functions.of(function(heap, heap.words(300, number(0), number(0), number(0)))) is None


@pytest.mark.parametrize("name", ["a\tb\nc", "\x1b[31m"])
def test_names_cannot_forge_lines(name: str) -> None:
    heap = Heap()
    found = V8Functions(NAMES, heap).of(named(heap, name))
    assert found is not None and found.name.isprintable()


def test_memory_that_lies_does_no_harm() -> None:
    """Each bit of it once the other way: no name, or one that can be printed."""
    heap = Heap()
    shared = named(heap)
    good = bytes(heap.image)
    for bit in range(8 * len(good)):
        heap.image = bytearray(good)
        heap.image[bit // 8] ^= 1 << bit % 8
        found = V8Functions(NAMES, heap).of(shared)
        assert found is None or found.name.isprintable()


def optimized(heap: Heap, shared: int) -> int:
    """An address in code that was optimized, of a function."""
    told = heap.words(175, number(7), *[number(0)] * 6, shared | 1)
    code = heap.words(245, 0, told | 1)
    return heap.words(252, code | 1, *[0x90909090] * 700) + 5000


def test_optimized_code_is_named_by_the_object_that_it_is_in() -> None:
    heap = Heap()
    first, second = (optimized(heap, named(heap, name)) for name in ("verify", "render"))
    heap.image += bytes(1 << 17)
    functions = V8Functions(NAMES, heap)
    assert functions.of_code(first) == ("verify", "/a/b.js", 3)
    assert functions.of_code(second) == ("render", "/a/b.js", 3)
    assert functions.of_code(START + (1 << 17)) is None
    assert functions.of_code(1 << 40) is None


def test_frames_are_found_behind_code_that_keeps_no_frame_pointer() -> None:
    heap = Heap()
    heap.image += bytes(16 * 40)
    shared = named(heap)
    of_function = heap.words(2066, 0, 0, shared | 1)
    frames = [START + 16 * at for at in (10, 20, 30)]
    for fp, following in zip(frames, [*frames[1:], 0]):
        heap.change(fp, following)
    heap.change(frames[1] - 8, of_function | 1)
    heap.change(frames[1] - 16, of_function | 1)
    heap.change(START + 24, frames[0])
    words = struct.unpack("<80Q", heap.read(START, 640))
    top = StackTop(START - 8, 0xDEAD, words)
    expected = (V8Frame(frames[0], 0), V8Frame(frames[1], shared), V8Frame(frames[2], 0))
    assert v8_frames(FRAMES, top, heap.read) == expected
    assert v8_frames(FRAMES, StackTop(START - 8, 0xDEAD, ()), heap.read) == ()


def test_only_v8_s_own_code_is_named_by_a_frame() -> None:
    """Other code may run with the frame pointer of its caller."""
    native = [CodeFrame("memcpy", "libc.so.6"), CodeFrame(None, JIT), CodeFrame("_start", "node")]
    stacks, shared = of_heap(Heap())
    activations = [Activation(1, 64), Activation(2, 64), Activation(3, 96)]
    found = stacks.named(activations, native, [V8Frame(64, shared), V8Frame(96, shared)])
    assert found == [native[0], CodeFrame("verify", JIT, "/a/b.js", 3), native[2]]
    assert stacks.has_named


def test_what_runs_in_the_frame_of_its_caller_is_not_the_caller() -> None:
    heap = Heap()
    stacks, shared = of_heap(heap)
    inner, outer = optimized(heap, named(heap, "digest")), optimized(heap, shared)
    jit, frames = CodeFrame(None, JIT), [V8Frame(64, shared)]
    found = stacks.named([Activation(inner, 64), Activation(7, 64)], [jit, jit], frames)
    assert [each.function for each in found] == ["digest", "verify"]
    # It has a frame, and what looked like its caller was an address by chance.
    found = stacks.named([Activation(outer, 64), Activation(7, 64)], [jit, jit], frames)
    assert [each.function for each in found] == ["verify"]


@pytest.mark.parametrize(
    ("builtin", "expected"),
    [
        ("Builtins_InterpreterEntryTrampoline", ["verify"]),
        ("Builtins_AddWideHandler", ["verify"]),
        ("Builtins_StringIndexOf", ["Builtins_StringIndexOf", "verify"]),
    ],
)
def test_builtins_are_called_by_the_function_of_their_frame(
    builtin: str, expected: List[str]
) -> None:
    stacks, shared = of_heap(Heap())
    native = [CodeFrame(builtin, "node")]
    found = stacks.named([Activation(1, 64)], native, [V8Frame(64, shared)])
    assert [each.function for each in found] == expected


def test_builtins_of_a_stripped_file_are_known_by_their_frame() -> None:
    """Debian's Node has its V8 in a library without symbols of its own."""
    stacks, shared = of_heap(Heap())
    stacks.module = "libnode.so.108"
    native = [CodeFrame(None, "libnode.so.108"), CodeFrame(None, "libuv.so.1.0.0")]
    activations = [Activation(1, 64), Activation(2, 96)]
    found = stacks.named(activations, native, [V8Frame(64, shared), V8Frame(96, shared)])
    assert [each.function for each in found] == ["verify", None]


def of_heap(heap: Heap) -> Tuple[V8Stacks, int]:
    stacks = V8Stacks(0, TargetsWithout(), heap)  # type: ignore[arg-type]
    shared = named(heap)
    stacks._functions = V8Functions(NAMES, heap)
    return stacks, shared


class TargetsWithout:
    """No images."""


def exported(lacks: Optional[str] = None) -> Dict[bytes, int]:
    names = {field: names[0] for field, names in _FIELDS.items() if field != lacks}
    return {b"v8dbg_" + name: START + 8 * at for at, name in enumerate(names.values())}


def test_a_layout_is_taken_only_where_all_of_it_is_told() -> None:
    heap = Heap()
    heap.image += bytes(8 * len(_FIELDS))
    assert layout_of(exported(), heap) is not None
    assert layout_of(exported("shared_script"), heap) is None
    assert layout_of({}, heap) is None
