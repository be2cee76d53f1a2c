"""The kernel half's slots and keys, compiled for this machine, as the Python half reads them.

calls.h needs no kernel. Other functions are cut out of their headers: the rest of those does.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Require, give_up
from tests.elf import section
from udsprobe.kernel.objects.btf import Btf
from udsprobe.kernel.tables.counters import CallKeys
from udsprobe.kernel.tables.listener_table import depths
from udsprobe.model.histogram import LATENCY_TOP_BITS, slot_bounds_ns, slot_of

DEPTH_MAX = (1 << 17) - 1
"""The highest depth with a slot of its own octave, `DEPTH_SLOTS` of `bpf/udsprobe.h`."""

PRELUDE = """
#define __KERNEL__
#define __always_inline inline
#define __noinline
#define __weak
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#include "calls.h"
static void count_add(count_t *counter, u64 amount) { *counter += amount; }
"""

PUBLISHED = """
unsigned latency_slot_here(ns_t value) { return latency_slot(value); }
unsigned depth_slot_here(unsigned depth) { return depth_slot(depth); }
unsigned series_key_here(int call, int abi, int endpoint)
{
	return series_key(call, abi, endpoint);
}
unsigned error_slot_here(long ret) { return error_slot(ret); }
"""


def cut(source: str, name: str) -> str:
    """The definition of a function or table."""
    pattern = rf"^\w[^\n;]*\b{name}[\[(].*?^\}};?$"
    found = re.search(pattern, source, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[0]


# What each strategy has of its own below calls.h.
STRATEGIES = {
    "latency.bpf.h": ("log2_by_product", "floor_log2"),
    "bcc_syscalls.c": ("floor_log2",),
}


@pytest.fixture(scope="module", params=STRATEGIES)
def kernel(
    request: pytest.FixtureRequest,
    require: Require,
    repository: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> ctypes.CDLL:
    """The C functions of a strategy as a library."""
    headers = repository / "bpf"
    own = (headers / request.param).read_text()
    listeners = (headers / "listeners.bpf.h").read_text()
    constants = re.findall(r"^#define DE_BRUIJN .*$", own, re.MULTILINE)
    parts = [cut(own, name) for name in STRATEGIES[request.param]]
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
    loaded.error_slot_here.argtypes = [ctypes.c_long]
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


@pytest.fixture(scope="module")
def btf() -> Btf:
    path = Path(__file__).resolve().parents[2] / "udsprobe/_bpf/tracepoint.x86_64.bpf.o"
    if not path.exists():
        give_up(f"{path.name} is not built: scripts/build_bpf.py")
    return Btf(section(path.read_bytes(), ".BTF").content)


def test_every_call_has_keys_of_its_own(kernel: ctypes.CDLL, btf: Btf) -> None:
    """Also calls that are not in the table yet: there are more numbers than 64."""
    limits, keys = btf.enum("limits"), CallKeys(btf)
    sizes = limits["CALL_MAX"], len(btf.enum("abi")), limits["ENDPOINT_MAX"]
    assert sizes[0] > 64
    every = list(product(*map(range, sizes)))
    told = [kernel.series_key_here(*each) for each in every]
    assert sorted(told) == list(range(limits["SERIES_KEYS"]))
    assert [keys.parts(key) for key in told] == every


def test_a_call_above_63_is_read_under_its_own_name(kernel: ctypes.CDLL, btf: Btf) -> None:
    keys = CallKeys(btf)
    keys.calls = {**keys.calls, 64 + btf.enum("call")["CALL_READ"]: "newer"}
    words = [0] * (ctypes.sizeof(btf.structure("call_counts")) // 8)
    newer, read = (
        keys.counts(kernel.series_key_here(number, 1, 4), words).name
        for number in (64 + btf.enum("call")["CALL_READ"], btf.enum("call")["CALL_READ"])
    )
    assert (newer, read) == ("newer", "read")


def test_errors_have_slots_of_their_own_up_to_the_last(kernel: ctypes.CDLL, btf: Btf) -> None:
    slots = btf.enum("limits")["ERRNO_MAX"]
    assert [kernel.error_slot_here(-error) for error in range(slots)] == list(range(slots))
    assert [kernel.error_slot_here(-error) for error in (slots, 530, 4095)] == [0, 0, 0]


durations_ns = st.integers(0, 63).flatmap(lambda bits: st.integers((1 << bits) - 1, 2 << bits))


@settings(max_examples=1_000)
@given(durations_ns.filter(lambda value: value < 2**64))
def test_durations_are_in_the_models_slots(kernel: ctypes.CDLL, value_ns: int) -> None:
    assert kernel.latency_slot_here(value_ns) == slot_of(value_ns)


def test_both_ends_of_every_slot_are_in_it(kernel: ctypes.CDLL) -> None:
    for slot in range(slot_of((1 << LATENCY_TOP_BITS) - 1) + 1):
        lower, upper = slot_bounds_ns(slot)
        assert {kernel.latency_slot_here(lower), kernel.latency_slot_here(upper - 1)} == {slot}
