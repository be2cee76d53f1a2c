"""The memory of the maps, as the kernel tells it of each open one."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, FrozenSet, Iterator

import pytest

from udsprobe.kernel.tracer import Tracer

pytestmark = [pytest.mark.root]

ENTRIES = 5000


@dataclass(frozen=True)
class Watched:
    """A tracer, and the maps that this process had before it."""

    tracer: Tracer
    others: FrozenSet[int]

    def told_by_the_kernel(self) -> int:
        return sum(of_maps for number, of_maps in open_maps().items() if number not in self.others)


@pytest.fixture
def watched() -> Iterator[Watched]:
    others = frozenset(open_maps())
    made = Tracer()
    try:
        yield Watched(made, others)
    finally:
        made.close()


def open_maps() -> Dict[int, int]:
    """Number → memory of every map that this process has a descriptor of."""
    sizes: Dict[int, int] = {}
    for number in os.listdir("/proc/self/fdinfo"):
        info = Path(f"/proc/self/fdinfo/{number}")
        words = dict(
            re.findall(r"^(\w+):\s+(\d+)$", info.read_text() if info.exists() else "", re.M)
        )
        if "map_type" in words:
            sizes[int(words["map_id"])] = int(words["memlock"])
    return sizes


def test_what_maps_take_late_is_in_it_and_leaves_it(watched: Watched) -> None:
    tracer = watched.tracer
    first = tracer.maps_bytes()
    assert first == watched.told_by_the_kernel()
    loaded = tracer._object
    (value_bytes,) = [s.value_bytes for s in loaded.shapes() if s.name == "handshakes"]
    keys = [struct.pack("<Q", number) for number in range(1, ENTRIES + 1)]
    for key in keys:
        loaded.update("handshakes", key, bytes(value_bytes))
    assert tracer.maps_bytes() == watched.told_by_the_kernel() > first
    for key in keys:
        loaded.delete("handshakes", key)
    assert tracer.maps_bytes() == watched.told_by_the_kernel()
