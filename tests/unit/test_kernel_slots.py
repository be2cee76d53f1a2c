"""The kernel half's slots, compiled for this machine, against the bounds the Python half knows.

The functions are cut out of their headers: the rest of those wants a kernel.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Require
from udsprobe.kernel.tables.listener_table import depths
from udsprobe.model.histogram import LATENCY_TOP_BITS, slot_bounds_ns, slot_of

DEPTH_MAX = (1 << 17) - 1
"""The highest depth with a slot of its own octave, `DEPTH_SLOTS` of `bpf/udsprobe.h`."""

PRELUDE = """
#include "udsprobe.h"
#define __always_inline inline
#define __noinline
#define __weak
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
"""

PUBLISHED = """
unsigned latency_slot_here(ns_t value) { return latency_slot(value); }
unsigned depth_slot_here(unsigned depth) { return depth_slot(depth); }
"""


def cut(source: str, name: str) -> str:
    """The definition of a function or table."""
    pattern = rf"^\w[^\n;]*\b{name}[\[(].*?^\}};?$"
    found = re.search(pattern, source, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[0]


@pytest.fixture(scope="module")
def kernel(
    require: Require, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL:
    """The C functions as a library."""
    headers = repository / "bpf"
    latency = (headers / "latency.bpf.h").read_text()
    listeners = (headers / "listeners.bpf.h").read_text()
    constants = re.findall(r"^#define DE_BRUIJN .*$", latency, re.MULTILINE)
    parts = [cut(latency, name) for name in ("log2_by_product", "floor_log2", "latency_slot")]
    source = tmp_path_factory.mktemp("slots") / "slots.c"
    text = "\n".join([PRELUDE, *constants, *parts, cut(listeners, "depth_slot"), PUBLISHED])
    source.write_text(text)
    library = source.with_suffix(".so")
    clang = require("clang")["clang"]
    command = [clang, "-O2", "-shared", "-fPIC", "-I", str(headers), "-o", str(library)]
    subprocess.run([*command, str(source)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.latency_slot_here.argtypes = [ctypes.c_uint64]
    loaded.depth_slot_here.argtypes = [ctypes.c_uint32]
    return loaded


def lower_bound(slot: int) -> int:
    """What the reader says of a connection counted in this slot."""
    (depth,) = depths([0] * slot + [1])
    return depth


def test_depths_below_32_are_exact(kernel: ctypes.CDLL) -> None:
    assert [lower_bound(kernel.depth_slot_here(depth)) for depth in range(32)] == list(range(32))


def test_every_depth_is_at_most_a_sixteenth_above_its_slot(kernel: ctypes.CDLL) -> None:
    last = -1
    for depth in range(DEPTH_MAX + 1):
        slot = kernel.depth_slot_here(depth)
        assert slot in (last, last + 1)
        assert lower_bound(slot) == depth if slot != last else lower_bound(slot) <= depth
        assert depth * 16 < lower_bound(slot) * 17 or depth == 0
        last = slot
    assert last == 223


@given(st.integers(DEPTH_MAX, 2**32 - 1))
def test_deeper_queues_share_the_last_slot(kernel: ctypes.CDLL, depth: int) -> None:
    assert kernel.depth_slot_here(depth) == 223


def test_empty_slots_are_left_out() -> None:
    assert depths([0] * 224) == {}
    assert depths([4, 0, 9] + [0] * 220 + [1]) == {0: 4, 2: 9, 126_976: 1}


durations_ns = st.integers(0, 63).flatmap(lambda bits: st.integers((1 << bits) - 1, 2 << bits))


@settings(max_examples=1_000)
@given(durations_ns.filter(lambda value: value < 2**64))
def test_durations_are_in_the_models_slots(kernel: ctypes.CDLL, value_ns: int) -> None:
    assert kernel.latency_slot_here(value_ns) == slot_of(value_ns)


def test_both_ends_of_every_slot_are_in_it(kernel: ctypes.CDLL) -> None:
    for slot in range(slot_of((1 << LATENCY_TOP_BITS) - 1) + 1):
        lower, upper = slot_bounds_ns(slot)
        assert {kernel.latency_slot_here(lower), kernel.latency_slot_here(upper - 1)} == {slot}
