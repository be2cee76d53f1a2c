"""Where variables of each CPU lie, out of a kernel's BTF."""

from __future__ import annotations

import mmap
import struct
from typing import List

from udsprobe.kernel.abilities.preempt_count import variable_places
from udsprobe.kernel.objects.btf import HEADER, MAGIC

NAMES = (
    *("int", "runqueues", "jiffies", "__preempt_count", ".data..percpu", "entry"),
    *("pcpu_hot", "current_task", "preempt_count"),
)
INT, STRUCT, VAR, DATASEC, PROTOTYPE = 1, 4, 14, 15, 13


def name_at(name: str) -> int:
    return 1 + sum(len(each) + 1 for each in NAMES[: NAMES.index(name)])


def described(name: str, kind: int, size: int, *more: int, members: int = 0) -> bytes:
    words = (name_at(name), kind << 24 | members, size, *more)
    return struct.pack(f"<{len(words)}I", *words)


def kernel(section: List[int]) -> mmap.mmap:
    """Types of all sorts before the variables: what they take has to be skipped."""
    hot = (name_at("current_task"), 1, 0, name_at("preempt_count"), 1, 64)
    types = b"".join(
        (
            described("int", INT, 4, 32),
            described("entry", STRUCT, 8, *(0, 1, 0), *(0, 1, 32), members=2),
            described("entry", PROTOTYPE, 1, *(0, 1), *(0, 1), members=2),
            described("entry", STRUCT, 16, *hot, members=2),
            described("jiffies", VAR, 1, 1),
            described("__preempt_count", VAR, 1, 1),
            described("runqueues", VAR, 1, 1),
            described("pcpu_hot", VAR, 4, 1),
            described(".data..percpu", DATASEC, 4096, *section, members=len(section) // 3),
        )
    )
    strings = b"\0" + b"\0".join(each.encode() for each in NAMES) + b"\0"
    sizes = (HEADER.size, 0, len(types), len(types), len(strings))
    raw = HEADER.pack(MAGIC, 1, 0, *sizes) + types + strings
    held = mmap.mmap(-1, len(raw))
    held.write(raw)
    return held


def test_variables_are_where_their_section_says() -> None:
    with kernel([5, 0, 8, 6, 640, 4, 7, 4032, 64]) as raw:
        assert variable_places(raw) == {"__preempt_count": 640, "runqueues": 4032}


def test_what_is_in_no_section_has_no_place() -> None:
    with kernel([6, 640, 4]) as raw:
        assert variable_places(raw) == {"__preempt_count": 640}


def test_the_count_in_a_structure_is_where_its_member_is() -> None:
    with kernel([7, 4032, 64, 8, 128, 64]) as raw:
        assert variable_places(raw) == {"runqueues": 4032, "pcpu_hot": 128 + 8}
