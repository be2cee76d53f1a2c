"""Threads that sleep now: by the sampler's iterator, and their stacks by /proc/PID/mem."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, List, Tuple

from udsprobe.kernel.stacks.raw_stacks import Event, Records, SleepBegan, SleepTime

_RED_ZONE_BYTES = 128
_COPY_BYTES_MAX = 16 << 10


def sleeping(raw: bytes, layout: Any, records: Records, goes_on: int, proc: str) -> List[Event]:
    """What the iterator told.

    Args:
        raw: records without their copies of memory, one behind the other.
        goes_on: RECORD_WAIT_GOES_ON.
        proc: where procfs is mounted.
    """
    size = layout.copy.offset
    found: List[Event] = []
    for at in range(0, len(raw) - size + 1, size):
        header = layout.from_buffer_copy(raw[at : at + size].ljust(_size_of(layout), b"\0"))
        wait = (header.thread, header.began_ns)
        if header.record == goes_on:
            found.append(SleepTime(wait, header.ns, has_ended=False))
        else:
            stack = records.stack(header, _memory(header, proc))
            found.append(SleepBegan(wait, bool(header.is_owing), stack))
    return found


def _size_of(layout: Any) -> int:
    return int(layout.copy.offset + layout.copy.size)


def _memory(header: Any, proc: str) -> bytes:
    """Of its stack; nothing when it did not sleep on until all was read."""
    if not header.sp:
        return b""
    start, found = header.sp - _RED_ZONE_BYTES, b""
    with suppress(OSError, OverflowError, ValueError):
        descriptor = os.open(f"{proc}/{header.tgid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.pread(descriptor, _COPY_BYTES_MAX, start)
        finally:
            os.close(descriptor)
        if _switches(header, proc) != header.switches:
            return b""
    return found


def _switches(header: Any, proc: str) -> int:
    """How often the thread left a CPU, of both kinds."""
    names: Tuple[bytes, ...] = (b"voluntary_ctxt_switches", b"nonvoluntary_ctxt_switches")
    with open(f"{proc}/{header.tgid}/task/{header.tid}/status", "rb") as status:
        fields = (line.partition(b":") for line in status)
        return sum(int(value) for name, _, value in fields if name in names)
