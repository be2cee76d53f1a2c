"""Threads that sleep now: by the sampler's iterator, and their stacks by /proc/PID/mem."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

from udsprobe.kernel.stacks.python_frames import PythonFrame, PythonLayout, python_frames
from udsprobe.kernel.stacks.raw_stacks import Event, Records, SleepBegan, SleepTime

_RED_ZONE_BYTES = 128
_COPY_BYTES_MAX = 16 << 10


class _Memory(NamedTuple):
    """What is read of a thread's process while it sleeps."""

    stack: bytes
    python: Tuple[PythonFrame, ...]


_NOTHING = _Memory(b"", ())


def sleeping(
    raw: bytes,
    layout: Any,
    records: Records,
    goes_on: int,
    proc: str,
    pythons: Mapping[int, PythonLayout],
) -> List[Event]:
    """What the iterator told.

    Args:
        raw: records without their copies of memory, one behind the other.
        goes_on: RECORD_WAIT_GOES_ON.
        proc: where procfs is mounted.
        pythons: by PID, of processes that run CPython.
    """
    size = layout.copy.offset
    found: List[Event] = []
    for at in range(0, len(raw) - size + 1, size):
        header = layout.from_buffer_copy(raw[at : at + size].ljust(_size_of(layout), b"\0"))
        wait = (header.thread, header.began_ns)
        if header.record == goes_on:
            found.append(SleepTime(wait, header.ns, has_ended=False))
        else:
            memory = _memory(header, proc, pythons.get(header.tgid))
            stack = records.stack(header, memory.stack)._replace(python=memory.python)
            found.append(SleepBegan(wait, bool(header.is_owing), stack))
    return found


def _size_of(layout: Any) -> int:
    return int(layout.copy.offset + layout.copy.size)


def _memory(header: Any, proc: str, python: Optional[PythonLayout]) -> _Memory:
    """Nothing when it did not sleep on until all was read."""
    if not header.sp:
        return _NOTHING
    found = _NOTHING
    with suppress(OSError, OverflowError, ValueError):
        descriptor = os.open(f"{proc}/{header.tgid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            stack = os.pread(descriptor, _COPY_BYTES_MAX, header.sp - _RED_ZONE_BYTES)
            found = _Memory(stack, _python(descriptor, header.pthread, python))
        finally:
            os.close(descriptor)
        if _switches(header, proc) != header.switches:
            return _NOTHING
    return found


def _python(
    descriptor: int, pthread: int, layout: Optional[PythonLayout]
) -> Tuple[PythonFrame, ...]:
    if layout is None:
        return ()
    with suppress(OSError, OverflowError, struct.error):
        return python_frames(
            layout, pthread, lambda address, size: os.pread(descriptor, size, address)
        )
    return ()


def _switches(header: Any, proc: str) -> int:
    """How often the thread left a CPU, of both kinds."""
    names: Tuple[bytes, ...] = (b"voluntary_ctxt_switches", b"nonvoluntary_ctxt_switches")
    with open(f"{proc}/{header.tgid}/task/{header.tid}/status", "rb") as status:
        fields = (line.partition(b":") for line in status)
        return sum(int(value) for name, _, value in fields if name in names)
