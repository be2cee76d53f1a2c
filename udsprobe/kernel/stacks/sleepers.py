"""Threads that sleep now: by the sampler's iterator, and their stacks by /proc/PID/mem."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import Any, List, Mapping, NamedTuple, Tuple

from udsprobe.kernel.stacks.php_frames import PhpFrame, php_frames
from udsprobe.kernel.stacks.python_frames import PythonFrame, python_frames
from udsprobe.kernel.stacks.raw_stacks import Event, Records, SleepBegan, SleepTime
from udsprobe.kernel.stacks.ruby_frames import RubyFrame, ruby_frames
from udsprobe.kernel.stacks.runtimes import Runtimes
from udsprobe.kernel.stacks.v8_frames import StackTop, V8Frame, v8_frames

_RED_ZONE_BYTES = 128
_COPY_BYTES_MAX = 16 << 10


class _Memory(NamedTuple):
    """What is read of a thread's process while it sleeps."""

    stack: bytes
    python: Tuple[PythonFrame, ...] = ()
    v8: Tuple[V8Frame, ...] = ()
    php: Tuple[PhpFrame, ...] = ()
    ruby: Tuple[RubyFrame, ...] = ()


_NOTHING = _Memory(b"")


def sleeping(
    raw: bytes,
    layout: Any,
    records: Records,
    goes_on: int,
    proc: str,
    runtimes: Mapping[int, Runtimes],
) -> List[Event]:
    """What the iterator told.

    Args:
        raw: records without their copies of memory, one behind the other.
        goes_on: RECORD_WAIT_GOES_ON.
        proc: where procfs is mounted.
        runtimes: by PID, of processes whose code is made or interpreted at run time.
    """
    size = layout.copy.offset
    found: List[Event] = []
    for at in range(0, len(raw) - size + 1, size):
        header = layout.from_buffer_copy(raw[at : at + size].ljust(_size_of(layout), b"\0"))
        wait = (header.thread, header.began_ns)
        if header.record == goes_on:
            found.append(SleepTime(wait, header.ns, has_ended=False))
        else:
            memory = _memory(header, proc, runtimes.get(header.tgid, Runtimes()))
            stack = records.stack(header, memory.stack)
            stack = stack._replace(python=memory.python, v8=memory.v8, php=memory.php)
            stack = stack._replace(ruby=memory.ruby)
            found.append(SleepBegan(wait, bool(header.is_owing), stack))
    return found


def _size_of(layout: Any) -> int:
    return int(layout.copy.offset + layout.copy.size)


def _memory(header: Any, proc: str, runtimes: Runtimes) -> _Memory:
    """Nothing when it did not sleep on until all was read."""
    if not header.sp:
        return _NOTHING
    found = _NOTHING
    with suppress(OSError, OverflowError, ValueError):
        descriptor = os.open(f"{proc}/{header.tgid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            stack = os.pread(descriptor, _COPY_BYTES_MAX, header.sp - _RED_ZONE_BYTES)
            found = _of_runtimes(_Memory(stack), descriptor, header, runtimes)
        finally:
            os.close(descriptor)
        if _switches(header, proc) != header.switches:
            return _NOTHING
    return found


def _of_runtimes(found: _Memory, descriptor: int, header: Any, runtimes: Runtimes) -> _Memory:
    def read(address: int, size_bytes: int) -> bytes:
        return os.pread(descriptor, size_bytes, address)

    with suppress(OSError, OverflowError, struct.error):
        if runtimes.python is not None:
            frames = python_frames(runtimes.python, header.pthread, read)
            found = found._replace(python=frames)
        # One chain of calls, of the main thread.
        if runtimes.php is not None and header.tid == header.tgid:
            found = found._replace(php=php_frames(runtimes.php, read))
        if runtimes.ruby is not None:
            found = found._replace(ruby=ruby_frames(runtimes.ruby, header.pthread, read))
        if runtimes.v8 is not None:
            above = found.stack[_RED_ZONE_BYTES:]
            words = struct.unpack(f"<{len(above) // 8}Q", above[: len(above) // 8 * 8])
            top = StackTop(header.sp, header.fp, words)
            found = found._replace(v8=v8_frames(runtimes.v8, top, read))
    return found


def _switches(header: Any, proc: str) -> int:
    """How often the thread left a CPU, of both kinds."""
    names: Tuple[bytes, ...] = (b"voluntary_ctxt_switches", b"nonvoluntary_ctxt_switches")
    with open(f"{proc}/{header.tgid}/task/{header.tid}/status", "rb") as status:
        fields = (line.partition(b":") for line in status)
        return sum(int(value) for name, _, value in fields if name in names)
