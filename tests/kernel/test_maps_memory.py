"""The memory of the maps, as the kernel tells it of each open one."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import Dict, Iterator

import pytest

from udsprobe.kernel.tracer import Tracer

pytestmark = [pytest.mark.root]

ENTRIES = 5000


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    made = Tracer()
    try:
        yield made
    finally:
        made.close()


def told_by_the_kernel() -> int:
    """Of every map that this process has a descriptor of, each once."""
    sizes: Dict[int, int] = {}
    for number in os.listdir("/proc/self/fdinfo"):
        info = Path(f"/proc/self/fdinfo/{number}")
        words = dict(
            re.findall(r"^(\w+):\s+(\d+)$", info.read_text() if info.exists() else "", re.M)
        )
        if "map_type" in words:
            sizes[int(words["map_id"])] = int(words["memlock"])
    return sum(sizes.values())


def test_what_maps_take_late_is_in_it_and_leaves_it(tracer: Tracer) -> None:
    first = tracer.maps_bytes()
    assert first == told_by_the_kernel()
    loaded = tracer._object
    (value_bytes,) = [s.value_bytes for s in loaded.shapes() if s.name == "handshakes"]
    keys = [struct.pack("<Q", number) for number in range(1, ENTRIES + 1)]
    for key in keys:
        loaded.update("handshakes", key, bytes(value_bytes))
    assert tracer.maps_bytes() == told_by_the_kernel() > first
    for key in keys:
        loaded.delete("handshakes", key)
    assert tracer.maps_bytes() == told_by_the_kernel()
