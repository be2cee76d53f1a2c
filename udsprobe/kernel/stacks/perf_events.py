"""Events of each CPU, its clock and its switches from thread to thread: opened and switched.

No binding of PyPI to perf_event_open(2) is maintained: ctypes does.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
from typing import List

from udsprobe.kernel.objects.libbpf import LibbpfError

# include/uapi/linux/perf_event.h
_TYPE_SOFTWARE, _CPU_CLOCK, _CONTEXT_SWITCHES = 1, 0, 3
_DISABLED, _BY_FREQUENCY = 1 << 0, 1 << 10
_FLAG_CLOEXEC = 1 << 3
_ENABLE, _DISABLE = 0x2400, 0x2401
_ANY_PROCESS, _NO_GROUP = -1, -1
_SYSCALL = {"x86_64": 298, "aarch64": 241}


class _Attributes(ctypes.Structure):
    """`struct perf_event_attr` as of PERF_ATTR_SIZE_VER0."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_freq", ctypes.c_uint64),  # or period
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
    ]


def online_cpus(text: str) -> List[int]:
    """Of /sys/devices/system/cpu/online, `0-3,6`."""
    found: List[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def open_clock(cpu: int, hz: int) -> int:
    """A disabled event that ticks `hz` times a second of a CPU, whatever runs there.

    Raises:
        LibbpfError: the kernel refused.
    """
    return _opened(cpu, _CPU_CLOCK, hz, _DISABLED | _BY_FREQUENCY)


def open_switches(cpu: int) -> int:
    """A disabled event that comes each time a thread leaves a CPU, on that thread.

    Raises:
        LibbpfError: the kernel refused.
    """
    return _opened(cpu, _CONTEXT_SWITCHES, 1, _DISABLED)


def _opened(cpu: int, config: int, rate: int, flags: int) -> int:
    attributes = _Attributes(
        type=_TYPE_SOFTWARE,
        size=ctypes.sizeof(_Attributes),
        config=config,
        sample_freq=rate,
        flags=flags,
    )
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    descriptor: int = libc.syscall(
        ctypes.c_long(_SYSCALL[platform.machine()]),
        ctypes.byref(attributes),
        *map(ctypes.c_int, (_ANY_PROCESS, cpu, _NO_GROUP)),
        ctypes.c_ulong(_FLAG_CLOEXEC),
    )
    if descriptor < 0:
        raise LibbpfError("perf_event_open", ctypes.get_errno())
    return descriptor


def switch(descriptor: int, *, on: bool) -> None:
    """Let it tick, or not."""
    fcntl.ioctl(descriptor, _ENABLE if on else _DISABLE, 0)


def close(descriptor: int) -> None:
    """Give it back."""
    os.close(descriptor)
