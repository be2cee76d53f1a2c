"""Machine code of HotSpot, its numbers and tables: such as compilers made, and such as lie."""

from __future__ import annotations

import struct
import time
from contextlib import suppress
from typing import Dict, Tuple

import pytest

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.java.code_cache import CodeCache
from udsprobe.symbols.java.compressed import compressed
from udsprobe.symbols.java.frames import JavaFrames
from udsprobe.symbols.java.inlined import InlinedMethods
from udsprobe.symbols.java.layouts import NOT_TOLD, Layout, layout_of
from udsprobe.symbols.java.machine_code import Prologue, ends_call, left_bytes, prologue
from udsprobe.symbols.java.methods import JavaMethods, first_line
from udsprobe.symbols.java.vm_structs import VmTables
from udsprobe.symbols.unwinding import Place


def code(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


# Of JDK 17: `mov %eax,-0x14000(%rsp); push %rbp; sub $0x50,%rsp`, and where there is no check.
CHECKED = code("89 84 24 00 c0 fe ff 55 48 83 ec 50")
UNCHECKED = code("48 81 ec 98 00 00 00 48 89 ac 24 90 00 00 00")
KEEPS_POINTER = code("89 84 24 00 c0 fe ff 55 48 8b ec 48 83 ec 50")


@pytest.mark.parametrize(
    ("made", "frame_bytes", "expected"),
    [
        (CHECKED, 96, Prologue(8, 12, 12)),
        (CHECKED + code("41 81 7f 20 01 00 00 00"), 96, Prologue(8, 12, 12)),
        (KEEPS_POINTER, 96, Prologue(8, 15, 15)),
        (UNCHECKED, 160, Prologue(-1, 7, 15)),
        (CHECKED, 104, None),
        (UNCHECKED, 152, None),
        (b"", 96, None),
    ],
)
def test_where_a_method_makes_its_frame(made: bytes, frame_bytes: int, expected: Prologue) -> None:
    assert prologue(made, frame_bytes) == expected


def places(made: bytes, frame_bytes: int) -> Dict[int, int]:
    found = ((at, left_bytes(made, at, frame_bytes)) for at in range(len(made)))
    return {at: left for at, left in found if left}


def test_where_a_method_gives_it_back() -> None:
    """`add $0x50,%rsp; pop %rbp`, the question whether a safepoint is due, `ret`."""
    back = code("48 83 c4 50 5d")
    assert places(back + code("c3"), 96) == {4: 16, 5: 8}
    later = back + code("49 3b a7 50 04 00 00 0f 87 01 00 00 00 c3")
    assert places(later, 96) == {4: 16, 5: 8, 12: 8, 18: 8}
    earlier = back + code("4d 8b 97 08 01 00 00 41 85 02 c3")
    assert places(earlier, 96) == {4: 16, 5: 8, 12: 8, 15: 8}
    assert places(back + code("85 05 01 02 03 04 c3"), 96) == {4: 16, 5: 8, 11: 8}
    native = code("c9 49 83 7f 08 00 0f 85 01 00 00 00 c3")
    assert places(native, 96) == {1: 8, 6: 8, 12: 8}


def test_a_frame_of_another_size_is_not_given_back() -> None:
    assert places(code("48 83 c4 50 5d c3"), 104) == {}
    assert places(code("48 83 c4 50 5d 90 90 90"), 96) == {}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("e8 01 02 03 04", True),
        ("41 ff d2", True),
        ("ff d0", True),
        ("ff 50 18", True),
        ("ff 94 24 00 01 00 00", True),
        ("ff e0", False),
        ("90 90 90", False),
        ("", False),
    ],
)
def test_what_ends_with_a_call(made: str, expected: bool) -> None:
    assert ends_call(code(made)) is expected


def test_numbers_are_compressed() -> None:
    """As src/hotspot/share/utilities/unsigned5.hpp has it: 191, then 192 and more."""
    assert list(compressed(bytes([191, 192, 0, 255, 255, 255, 255, 255]), 0)) == [
        191,
        192,
        255 * (1 + (1 << 6) + (1 << 12) + (1 << 18) + (1 << 24)),
    ]
    assert list(compressed(bytes([1, 191, 192, 1, 192]), 1)) == [0, 190, 191]


def test_the_first_line_of_a_method() -> None:
    assert first_line(bytes([5, 0]) + bytes(14), 0) == 5
    assert first_line(bytes([0xFF, 1, 48 + 1, 0]) + bytes(12), 1) == 24
    assert first_line(bytes(16), 0) == 0


class Memory(ProcessMemory):
    """Of words that are there; elsewhere are such that `elsewhere` makes."""

    def __init__(self, words: Dict[int, int], elsewhere: bytes) -> None:
        super().__init__(0)
        self._words, self._elsewhere = words, elsewhere
        self.reads = 0

    def read(self, address: int, size_bytes: int) -> bytes:
        self.reads += 1
        if not 0 <= address < 1 << 47 or size_bytes < 0:
            raise OSError("no memory")
        if size_bytes <= 8 and address in self._words:
            return struct.pack("<Q", self._words[address])[:size_bytes]
        count = size_bytes // len(self._elsewhere) + 1
        return (self._elsewhere * count)[:size_bytes]


# Offsets as of JDK 17, in an imagined process.
HEAPS, HEAP, LOW, SEGMENTS = 0x1000, 0x3000, 0x10_0000, 0x50_0000
LAYOUT = Layout(
    heap=HEAPS,
    heaps=NOT_TOLD,
    interpreter=0x7000,
    major=NOT_TOLD,
    **{
        name: 8 * (number % 16)
        for number, name in enumerate(Layout._fields)
        if name not in ("heap", "heaps", "interpreter", "major")
    },
)._replace(
    heap_memory=0,
    heap_segments=112,
    heap_segment_log2=248,
    space_low=0,
    space_high=8,
    block_size=16,
    block_used=8,
    code_begin=NOT_TOLD,
    code_end=NOT_TOLD,
)
WORDS = {HEAPS: HEAP, HEAP: LOW, HEAP + 8: LOW + (1 << 20), HEAP + 112: SEGMENTS, HEAP + 248: 7}


def lying(elsewhere: bytes) -> Tuple[Memory, CodeCache]:
    memory = Memory(WORDS, elsewhere)
    return memory, CodeCache(LAYOUT, memory)


@pytest.mark.parametrize(
    "elsewhere",
    [
        b"\0",
        b"\1",
        b"\2",
        b"\7\0\0\0\0\0\0\0",
        b"\xfe",
        b"\xff",
        b"\0\0\x10\0\0\0\0\0",
        b"nmethod\0",
    ],
)
def test_tables_that_lie_end_soon_and_name_nothing(elsewhere: bytes) -> None:
    """Whatever the memory of a process holds."""
    memory, cache = lying(elsewhere)
    methods, frames = JavaMethods(LAYOUT, memory), JavaFrames(LAYOUT, memory, cache)
    began_s = time.process_time()
    addresses = range(LOW, LOW + (1 << 20), 4099)
    for address in addresses:
        assert cache.holds(address)
        blob = cache.at(address)
        if blob is not None:
            assert blob.begin <= address < blob.end
            InlinedMethods(LAYOUT, memory).at(blob, address)
        assert methods.of(address) is None
        assert isinstance(frames.place(address), (Place, type(None)))
    cache.begin_round()
    assert memory.reads < 200 * len(addresses)
    assert time.process_time() - began_s < 20


def test_a_segment_that_counts_back_without_end_is_given_up() -> None:
    memory, cache = lying(b"\1")
    assert cache.holds(LOW + (1 << 19))
    assert cache.at(LOW + (1 << 19)) is None
    assert memory.reads < 100


@pytest.mark.parametrize("elsewhere", [b"\0", b"\x18", b"\xff", b"\0\0\x10\0\0\0\0\0"])
def test_tables_of_what_is_told_that_lie(elsewhere: bytes) -> None:
    """They have no end, or entries of any size."""
    names = ("Struct", "Type", "IntConstant")
    kinds = ("s", "EntryArrayStride", "EntryTypeNameOffset", "EntryFieldNameOffset")
    kinds += ("EntryOffsetOffset", "EntryAddressOffset", "EntrySizeOffset", "EntryNameOffset")
    exported = {
        f"gHotSpotVM{name}{kind}".encode(): 0x9000 + 8 * number
        for name in names
        for number, kind in enumerate((*kinds, "EntryValueOffset"))
    }
    memory = Memory({}, elsewhere)
    found = None
    with suppress(OSError):
        found = layout_of(exported, memory)
    assert found is None
    assert memory.reads < 500_000


def test_without_its_tables_nothing_is_told() -> None:
    with pytest.raises(OSError):
        VmTables({}, Memory({}, b"\0")).read((), (), ())
