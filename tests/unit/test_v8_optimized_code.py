"""Whose optimized code it is, and what is inlined in it, in memory that is made up.

Equality with what a real program says of itself is in tests/kernel/test_code.py.
"""

from __future__ import annotations

import struct
from typing import List, Sequence, Tuple

import pytest

from tests.v8_heap import NAMES, START, Heap, named, number
from udsprobe.kernel.stacks.v8_frames import V8Frame
from udsprobe.symbols.process_names import JIT, CodeFrame
from udsprobe.symbols.unwinding import Activation
from udsprobe.symbols.v8.functions import V8Functions
from udsprobe.symbols.v8.machine_calls import has_call
from udsprobe.symbols.v8.optimized_code import calls_of
from udsprobe.symbols.v8.stacks import V8Stacks

DEOPTIMIZED, CODE, STREAM, BYTES, WEAK = 175, 245, 252, 190, 240
# Where a builtin begins, and a piece of code that calls it, from its place on.
BUILTIN = START + (1 << 20)
NOPS = b"\x90" * 11


def v8_number(value: int) -> bytes:
    """As in a table of source positions: its sign last, seven bits in each byte."""
    left, found = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def position(inlined: int, offset: int = 7) -> int:
    return (inlined + 1) << 31 | (offset + 1) << 1


def table(calls: Sequence[Tuple[int, int]]) -> bytes:
    """Of places, and what is inlined there; every other one is an expression."""
    found, place, before = b"", 0, 0
    for at, (to, inlined) in enumerate(calls):
        step = to - place
        found += v8_number(step if at % 2 else -step - 1)
        found += v8_number(position(inlined) - before)
        place, before = to, position(inlined)
    return found


def array(heap: Heap, raw: bytes) -> int:
    return heap.put(BYTES, struct.pack("<Q", number(len(raw))) + raw)


def optimized(
    heap: Heap,
    shared: int,
    calls: Sequence[Tuple[int, int]] = (),
    inlined: Sequence[Tuple[int, int]] = (),
    literals: Sequence[int] = (),
    instructions: bytes = b"\x90" * 6000,
) -> int:
    """Where its instructions begin; `inlined`: in which other one each is, and its literal."""
    entries = b"".join(struct.pack("<qi4x", position(of), literal) for of, literal in inlined)
    told = [number(0), number(len(inlined)), heap.put_words(WEAK, number(9), *literals) | 1]
    told += [number(0)] * 3 + [shared | 1, array(heap, entries) | 1]
    deoptimized = heap.put_words(DEOPTIMIZED, number(8), *told)
    code = heap.put_words(CODE, 0, deoptimized | 1, array(heap, table(calls)) | 1, 0)
    heap.map_of(STREAM)
    # Before the instructions are the object's map and code, and room to their boundary.
    room = -(START + len(heap.image) + 16) % 32
    stream = heap.put(STREAM, struct.pack("<Q", code | 1) + bytes(room) + instructions)
    heap.change(code + 32, stream + 16 + room)
    return stream + 16 + room


def functions_of(heap: Heap) -> V8Functions:
    return V8Functions(NAMES, heap, lambda address: address == BUILTIN)


def names(functions: V8Functions, call: int) -> List[str]:
    found = [functions.of(each) for each in functions.inlined_at(call)]
    return [each.name for each in found if each is not None]


def call(at: int, start: int) -> bytes:
    return b"\xe8" + struct.pack("<i", BUILTIN - (start + at + 5))


def test_optimized_code_is_named_by_the_object_that_it_is_in() -> None:
    heap = Heap()
    of = {name: named(heap, name) for name in ("verify", "render")}
    starts = {name: optimized(heap, shared) for name, shared in of.items()}
    heap.image += bytes(1 << 17)
    functions = functions_of(heap)
    assert {name: functions.shared_at(at + 5000) for name, at in starts.items()} == of
    assert functions.shared_at(START + (1 << 17)) is None
    assert functions.shared_at(1 << 40) is None


def test_code_that_is_gone_is_what_it_was() -> None:
    heap = Heap()
    shared = named(heap)
    at = optimized(heap, shared) + 5000
    functions = functions_of(heap)
    assert functions.shared_at(at) == shared
    heap.image = bytearray()
    functions.begin_round()
    assert functions.shared_at(at) == shared


def inlining(instructions: bytes, calls: Sequence[Tuple[int, int]]) -> Tuple[Heap, int]:
    """`inner` in `middle`, and `other`, in one that is none of them."""
    heap = Heap()
    literals = [named(heap, "middle") | 1, named(heap, "inner") | 3, named(heap, "other") | 1]
    inlined = [(-1, 0), (0, 1), (-1, 2)]
    return heap, optimized(heap, named(heap, "outer"), calls, inlined, literals, instructions)


def test_functions_are_named_where_they_call_from_the_one_they_are_inlined_in() -> None:
    calls = [(0, 1), (16, 0), (32, 2), (48, -1)]
    heap, start = inlining(b"\x90" * 64, calls)
    for at, _ in calls:
        offset = start + at + 11 - START
        heap.image[offset : offset + 5] = call(at + 11, start)
    functions = functions_of(heap)
    assert names(functions, start + 15) == ["middle", "inner"]
    assert names(functions, start + 31) == ["middle"]
    assert names(functions, start + 47) == ["other"]
    assert names(functions, start + 63) == []


def test_a_call_without_a_place_of_its_own_is_not_that_of_the_one_before() -> None:
    heap, start = inlining(b"\x90" * 64, [(0, 1)])
    for at in (11, 27):
        offset = start + at - START
        heap.image[offset : offset + 5] = call(at, start)
    functions = functions_of(heap)
    assert names(functions, start + 15) == ["middle", "inner"]
    assert names(functions, start + 31) == []


def test_what_lies_about_what_is_inlined_names_nothing() -> None:
    """Literals that are no functions, numbers that are none, and one that is in itself."""
    for inlined in ([(-1, 0)], [(-1, 99)], [(5, 1)], [(0, 1)]):
        heap = Heap()
        literals = [heap.text("verify") | 1, named(heap, "inner") | 1]
        start = optimized(heap, named(heap, "outer"), [(0, 0)], inlined, literals)
        assert set(names(functions_of(heap), start + 9)) <= {"inner"}


def test_a_table_of_places_is_read_to_its_end() -> None:
    assert calls_of(table([(3, -1), (90, 4), (20_000, 0)])) == ([3, 90, 20_000], [-1, 4, 0])
    assert calls_of(b"") == ([], [])
    assert calls_of(b"\xff\xff") == ([], [])


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (b"", False),
        (NOPS, False),
        (call(0, START), True),
        (b"\xe8" + struct.pack("<i", 64), False),  # to where nothing begins
        (b"\x41\xff\xd2", True),  # call r10
        (b"\xff\x51\x37", True),  # call [rcx+0x37]
        (b"\x41\xff\x95\x90\x01\x00\x00", True),  # call [r13+0x190]
        (b"\x42\xff\x14\xed\x00\x00\x00\x00", True),  # call [r13*8]
        (b"\xff\x15\x00\x00\x00\x00", True),  # call [rip]
        (b"\xff\x75\x08", False),  # push [rbp+8]
    ],
)
def test_calls_before_the_last_instruction_are_seen(before: bytes, expected: bool) -> None:
    found = before + call(len(before), START)
    assert has_call(found, START, lambda address: address == BUILTIN) is expected


@pytest.mark.parametrize(
    "last", [b"\x41\xff\xd2", b"\xff\x51\x37", b"\x41\xff\x95\x90\x01\x00\x00"]
)
def test_the_last_instruction_itself_is_none_before_it(last: bytes) -> None:
    assert not has_call(NOPS + last, START, lambda address: True)


def stacks_of(heap: Heap) -> V8Stacks:
    stacks = V8Stacks(0, None, heap, lambda address: False)  # type: ignore[arg-type]
    stacks._functions = functions_of(heap)
    return stacks


def test_what_runs_in_the_frame_of_its_caller_is_not_the_caller() -> None:
    heap = Heap()
    shared = named(heap)
    stacks = stacks_of(heap)
    inner, outer = (optimized(heap, of) + 5000 for of in (named(heap, "digest"), shared))
    jit, frames = CodeFrame(None, JIT), [V8Frame(64, shared, 0)]
    found = stacks.named([Activation(inner, 64), Activation(7, 64)], [jit, jit], frames)
    assert [each.function for each in found] == ["digest", "verify"]
    # It has a frame, and what looked like its caller was an address by chance.
    found = stacks.named([Activation(outer, 64), Activation(7, 64)], [jit, jit], frames)
    assert [each.function for each in found] == ["verify"]


def test_what_is_inlined_is_in_the_stack_where_it_calls_only() -> None:
    heap, start = inlining(NOPS + bytes(64), [(0, 1)])
    offset = start + len(NOPS) - START
    heap.image[offset : offset + 5] = call(len(NOPS), start)
    stacks, jit = stacks_of(heap), CodeFrame(None, JIT)
    builtin = CodeFrame("Builtins_StringIndexOf", "node")
    frames = [V8Frame(64, 0, 0)]
    found = stacks.named([Activation(1, 32), Activation(start + 15, 64)], [builtin, jit], frames)
    expected = ["Builtins_StringIndexOf", "inner", "middle", "outer"]
    assert [each.function for each in found] == expected
    # Where it computes itself it is not known which of them does.
    found = stacks.named([Activation(start + 15, 64)], [jit], frames)
    assert [each.function for each in found] == ["outer"]


def test_memory_that_lies_does_no_harm() -> None:
    """Each bit of it once the other way: functions of this program, or none."""
    heap, start = inlining(NOPS + bytes(20), [(0, 1)])
    offset = start + len(NOPS) - START
    heap.image[offset : offset + 5] = call(len(NOPS), start)
    good = bytes(heap.image)
    for bit in range(8 * len(good)):
        heap.image = bytearray(good)
        heap.image[bit // 8] ^= 1 << bit % 8
        assert all(name.isprintable() for name in names(functions_of(heap), start + 15))
