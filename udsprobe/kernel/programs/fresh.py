"""The maps of a loaded object as they were when it was loaded, for another observation.

Knows how each is brought back, and that no program may be attached meanwhile. Nothing has to be
taken from tasks: what programs noted with them names the observation that it is of (`observation`,
bpf/early.bpf.h). Options in .rodata are those of the host and of the command line, and stay.
"""

from __future__ import annotations

import struct
from typing import Iterable

from udsprobe.kernel.objects.probe_object import HASH, LRU_HASH, QUEUE, MapShape, ProbeObject
from udsprobe.kernel.objects.shared_memory import SharedGlobals

EMPTIED = frozenset({HASH, LRU_HASH, QUEUE})
"""Kinds of maps of which all entries leave."""

ZEROED = frozenset({"calls", "cpus", "cpu_stays", "upstreams"})
"""Arrays that are added to: those of their entries that were used."""

MADE_ANEW = frozenset(
    (
        *("thread_states", "thread_pasts", "call_journals", "whole_requests"),
        *("connection_to_add", "records"),
    )
)
"""Arrays whose entries are taken, and read by who took them: what one says of before is overwritten
or not looked at, within an observation as well (bpf/thread_slots.bpf.h, whole_requests.bpf.h)."""

GLOBALS = ".bss"

LASTING = frozenset({".rodata", "programs_ended", "programs_ended_entry"})
"""What no program writes. Arrays of programs are for who attaches these."""

_FIRST = struct.pack("<I", 0)


def make_fresh(loaded: ProbeObject, *, cpus: int, series_max: int) -> None:
    """Nothing of what was counted and remembered so far is there any more.

    Args:
        loaded: with nothing attached.
        cpus: entries of the per-CPU arrays.
        series_max: series of each CPU in the array of calls.

    Raises:
        LibbpfError: the kernel refuses; then it is neither as it was nor fresh.
    """
    wait_for_programs(loaded)
    shapes = {shape.name: shape for shape in loaded.shapes()}
    for shape in shapes.values():
        if shape.kind in EMPTIED:
            loaded.empty(shape)
    shared = SharedGlobals(loaded)
    series = min(shared.get("series_used"), series_max - 1)
    calls = (cpu * series_max + at for cpu in range(cpus) for at in range(series + 1))
    _zero(loaded, shapes["calls"], calls)
    _zero(loaded, shapes["cpus"], range(cpus))
    _zero(loaded, shapes["upstreams"], range(_used(shared, shapes["upstreams"])))
    # With a copy for each CPU, in whole words.
    loaded.update("cpu_stays", _FIRST, bytes(-(-shapes["cpu_stays"].value_bytes // 8) * 8 * cpus))
    _begin_globals(loaded, shapes[GLOBALS], shared.get("observation") + 1)


def wait_for_programs(loaded: ProbeObject) -> None:
    """Until all runs are over that began before: detaching does not wait for them.

    Where tracepoints can be preempted (7.0 and later), a task can still be on the way to a program
    that is detached. It finds nothing there that it knows, as after an event of nobody's.

    Raises:
        LibbpfError: the kernel refuses.
    """
    entry = struct.pack("<I", loaded.descriptor("programs_ended_entry"))
    loaded.update("programs_ended", _FIRST, entry)


def _used(shared: SharedGlobals, shape: MapShape) -> int:
    return min(shared.get(f"{shape.name}_used"), shape.entries)


def _zero(loaded: ProbeObject, shape: MapShape, indices: Iterable[int]) -> None:
    nothing = bytes(shape.value_bytes)
    for index in indices:
        loaded.update(shape.name, struct.pack("<I", index), nothing)


def _begin_globals(loaded: ProbeObject, shape: MapShape, observation: int) -> None:
    """They begin with 0, all in one."""
    image = bytearray(shape.value_bytes)
    place = loaded.btf.variables(GLOBALS)["observation"]
    struct.pack_into("<I", image, place.offset_bytes, observation % (1 << 32))
    loaded.update(GLOBALS, _FIRST, bytes(image))
