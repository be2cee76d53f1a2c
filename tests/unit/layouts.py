"""Fills structures of the built object's layout, as the probes do."""

from __future__ import annotations

import ctypes
import socket
from typing import Any

from udsprobe.model.histogram import slot_of


def write_name(name: Any, family: int, raw: bytes, port: int = 0) -> None:
    name.family, name.port = family, port
    name.length = len(raw) if family == socket.AF_UNIX else 0
    ctypes.memmove(ctypes.addressof(name) + type(name).bytes.offset, raw, len(raw))


def write_latency(histogram: Any, *durations_ns: int) -> None:
    histogram.count, histogram.total_ns = len(durations_ns), sum(durations_ns)
    histogram.max_ns = max(durations_ns)
    for duration in durations_ns:
        histogram.slots[slot_of(duration)] += 1
