"""Functions of JavaScript by V8's objects, in memory that is made up, and lies.

Equality with what a real program says of itself is in tests/kernel/test_code.py.
"""

from __future__ import annotations

import struct
from typing import Dict, List, Optional, Tuple

import pytest

from tests.v8_heap import (
    CONS,
    FRAMES,
    NAMES,
    START,
    THIN,
    UNDEFINED,
    Heap,
    function,
    named,
    number,
    scope,
)
from udsprobe.kernel.stacks.v8_frames import StackTop, V8Frame, v8_frames
from udsprobe.symbols.process_names import JIT, CodeFrame
from udsprobe.symbols.unwinding import Activation
from udsprobe.symbols.v8.functions import ANONYMOUS, V8Functions
from udsprobe.symbols.v8.layouts import _FIELDS, layout_of
from udsprobe.symbols.v8.stacks import V8Stacks


def functions_of(memory: Heap) -> V8Functions:
    return V8Functions(NAMES, memory, lambda address: True)


@pytest.mark.parametrize(("variables", "in_table"), [(0, False), (3, False), (80, True)])
def test_a_function_has_its_name_and_first_line(variables: int, in_table: bool) -> None:
    heap = Heap()
    shared = named(heap, "größe", variables=variables, in_table=in_table)
    assert functions_of(heap).of(shared) == ("größe", "/a/b.js", 3)


def test_one_without_a_name_has_the_one_that_it_is_inferred_to_have() -> None:
    heap = Heap()
    words = [heap.text("") | 1, number(-1), heap.text("Ж.метод") | 1, number(2), number(5)]
    shared = function(heap, scope(heap, words), source="\n\nЖ", file="file:///a/b.mjs")
    assert functions_of(heap).of(shared) == ("Ж.метод", "/a/b.mjs", 3)
    nameless = function(heap, scope(heap, [heap.put_words(UNDEFINED) | 1, number(2), number(5)]))
    assert functions_of(heap).of(nameless) == (ANONYMOUS, "/a/b.js", 3)


def test_names_in_parts_are_put_together() -> None:
    heap = Heap()
    parts = heap.put(CONS, struct.pack("<IiQQ", 0, 6, heap.text("ver") | 1, heap.text("ify") | 1))
    thin = heap.put(THIN, struct.pack("<IiQ", 0, 6, parts | 1))
    assert functions_of(heap).of(function(heap, thin)) == ("verify", "/a/b.js", None)


def test_code_in_the_place_of_other_code_is_not_named_as_that() -> None:
    heap = Heap()
    shared, other = named(heap, "verify"), named(heap, "render")
    functions = functions_of(heap)
    assert functions.of(shared) is not None
    heap.change(shared + 16, struct.unpack("<Q", heap.read(other + 16, 8))[0])
    functions.begin_round()
    assert functions.of(shared) == ("render", "/a/b.js", 3)
    heap.change(shared, heap.put_words(300) | 1)
    functions.begin_round()
    # As what has ended: the last that was known.
    assert functions.of(shared) == ("render", "/a/b.js", 3)


def test_what_is_no_function_has_no_name() -> None:
    heap = Heap()
    functions = functions_of(heap)
    assert functions.of(heap.text("verify")) is None
    assert (
        functions.of(heap.put_words(262, 0, heap.text("map") | 1, 0, heap.put_words(300) | 1))
        is None
    )
    assert functions.of(7) is None
    # A scope of which nothing is known, which is not one without a name.
    assert (
        functions.of(function(heap, heap.put_words(300, number(0), number(0), number(0)))) is None
    )


@pytest.mark.parametrize("name", ["a\tb\nc", "\x1b[31m"])
def test_names_cannot_forge_lines(name: str) -> None:
    heap = Heap()
    found = functions_of(heap).of(named(heap, name))
    assert found is not None and found.name.isprintable()


def test_memory_that_lies_does_no_harm() -> None:
    """Each bit of it once the other way: no name, or one that can be printed."""
    heap = Heap()
    shared = named(heap)
    good = bytes(heap.image)
    for bit in range(8 * len(good)):
        heap.image = bytearray(good)
        heap.image[bit // 8] ^= 1 << bit % 8
        found = functions_of(heap).of(shared)
        assert found is None or found.name.isprintable()


def test_frames_are_found_behind_code_that_keeps_no_frame_pointer() -> None:
    heap = Heap()
    heap.image += bytes(16 * 40)
    shared = named(heap)
    of_function = heap.put_words(2066, 0, 0, shared | 1)
    frames = [START + 16 * at for at in (10, 20, 30)]
    for fp, following in zip(frames, [*frames[1:], 0]):
        heap.change(fp, following)
    for fp in frames:
        heap.change(fp + 8, fp + 1)
    heap.change(frames[1] - 8, of_function | 1)
    heap.change(frames[1] - 16, of_function | 1)
    heap.change(START + 24, frames[0])
    words = struct.unpack("<80Q", heap.read(START, 640))
    expected = tuple(V8Frame(fp, shared if fp == frames[1] else 0, fp + 1) for fp in frames)
    assert v8_frames(FRAMES, StackTop(START - 8, 0xDEAD, words), heap.read) == expected
    assert v8_frames(FRAMES, StackTop(START - 8, 0xDEAD, ()), heap.read) == ()
    assert v8_frames(FRAMES, StackTop(START - 8, frames[0], ()), heap.read) == expected


def test_frames_in_no_use_any_more_do_not_hide_those_in_use() -> None:
    heap = Heap()
    heap.image += bytes(16 * 60)
    dead, live = ([START + 16 * at for at in places] for places in ((5, 7, 9), (20, 30, 40)))
    for frames in (dead, live):
        for fp, following in zip(frames, frames[1:]):
            heap.change(fp, following)
    heap.change(START + 8, dead[0])
    heap.change(START + 40, live[0])
    words = struct.unpack("<80Q", heap.read(START, 640))
    found = v8_frames(FRAMES, StackTop(START - 8, 0, words), heap.read)
    assert [each.fp for each in found] == [*dead, *live]


def test_only_v8_s_own_code_is_named_by_a_frame() -> None:
    """Other code may run with the frame pointer of its caller."""
    native = [CodeFrame("memcpy", "libc.so.6"), CodeFrame(None, JIT), CodeFrame("_start", "node")]
    stacks, shared = of_heap(Heap())
    activations = [Activation(1, 64), Activation(2, 64), Activation(3, 96)]
    found = stacks.named(activations, native, [V8Frame(64, shared, 0), V8Frame(96, shared, 0)])
    assert found == [native[0], CodeFrame("verify", JIT, "/a/b.js", 3), native[2]]
    assert stacks.has_named


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
    found = stacks.named([Activation(1, 64)], native, [V8Frame(64, shared, 0)])
    assert [each.function for each in found] == expected


def test_builtins_of_a_stripped_file_are_known_by_their_frame() -> None:
    """Debian's Node has its V8 in a library without symbols of its own."""
    stacks, shared = of_heap(Heap())
    stacks.module = "libnode.so.108"
    native = [CodeFrame(None, "libnode.so.108"), CodeFrame(None, "libuv.so.1.0.0")]
    activations = [Activation(1, 64), Activation(2, 96)]
    found = stacks.named(activations, native, [V8Frame(64, shared, 0), V8Frame(96, shared, 0)])
    assert [each.function for each in found] == ["verify", None]


def of_heap(heap: Heap) -> Tuple[V8Stacks, int]:
    stacks = V8Stacks(0, TargetsWithout(), heap, lambda address: False)  # type: ignore[arg-type]
    shared = named(heap)
    stacks._functions = functions_of(heap)
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
