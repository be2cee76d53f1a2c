"""Stacks of chosen processes by a clock: the BPF object of its own that takes them.

Everything that takes privileges is done when it is made; switching it on and off needs none.
While it is off the kernel does nothing for it.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from pathlib import Path
from typing import Any, FrozenSet, Iterable, List, NamedTuple, Set, Tuple

from udsprobe.kernel import perf_events
from udsprobe.kernel.built_objects import built_program
from udsprobe.kernel.libbpf import LibbpfError, libbpf
from udsprobe.kernel.probe_object import ProbeObject

HZ = 99
"""Not 100: what a program does by a clock of its own would be met at the same place each time."""

RESTS_ON = "perf:cpu-clock"
_OBJECT, _PROGRAM = "stacks", "sample_cpu"
_ONLINE = Path("/sys/devices/system/cpu/online")
_OWN_PID_NAMESPACE = Path("/proc/self/ns/pid")
_ON_SAMPLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Registers(NamedTuple):
    """Of the program when it was interrupted, or entered the kernel; all 0 when not known."""

    ip: int
    sp: int
    fp: int
    link: int


class RawStack(NamedTuple):
    """One sample.

    Attributes:
        kernel: addresses in the kernel, the innermost first; empty when it ran its own code.
        user: of the program, found by frame pointers: beyond the first not certain.
        memory: the program's, from 128 bytes below `registers.sp` on.
    """

    pid: int
    tid: int
    kernel: Tuple[int, ...]
    user: Tuple[int, ...]
    registers: Registers
    memory: bytes


class StackSampler:
    """Loaded, with an event for each CPU, and off.

    Args:
        in_pid_namespace: udsprobe runs in a PID namespace that is not the host's.

    Raises:
        LibbpfError: the kernel refuses the program or its events.
        KernelCannotError: `no-object`, `stale-object`.
        OSError: no descriptor is left, or sysfs is not there.
    """

    def __init__(self, *, in_pid_namespace: bool = False) -> None:
        self._events: List[int] = []
        self._ring = 0
        self._pids: Set[int] = set()
        self._came: List[RawStack] = []
        self._on_since_ns = 0
        self._on_ns = 0
        self.is_on = False
        self._object = ProbeObject(built_program(_OBJECT))
        try:
            self._load(in_pid_namespace)
        except BaseException:
            self.close()
            raise

    def _load(self, in_pid_namespace: bool) -> None:
        if in_pid_namespace:
            own = _OWN_PID_NAMESPACE.stat()
            # As the kernel encodes it for itself, include/linux/kdev_t.h.
            device = os.major(own.st_dev) << 20 | os.minor(own.st_dev)
            inside = {"device": device, "inode": own.st_ino}
            self._object.set_options(
                {f"own_pid_ns_{name}": struct.pack("<Q", each) for name, each in inside.items()}
            )
        self._object.load()
        self._layout: Any = self._object.btf.structure("stack_sample")
        self._lost = self._object.btf.variables(".bss")["samples_lost"].offset_bytes
        self._on_sample = _ON_SAMPLE(self._take)
        self._ring = libbpf().pointer(
            "ring_buffer__new", self._object.descriptor("ring"), self._on_sample, None, None
        )
        for cpu in perf_events.online_cpus(_ONLINE.read_text()):
            descriptor = perf_events.open_clock(cpu, HZ)
            self._object.attach_to_perf_event(_PROGRAM, descriptor)
            self._events.append(descriptor)
            perf_events.switch(descriptor, on=False)

    def watch(self, pids: Iterable[int]) -> None:
        """Take stacks of these processes and no others from now on."""
        wanted = set(pids)
        for pid in self._pids - wanted:
            self._object.delete("sampled_processes", struct.pack("<I", pid))
            self._pids.discard(pid)
        for pid in wanted - self._pids:
            self._add(pid)

    def _add(self, pid: int) -> None:
        try:
            self._object.update("sampled_processes", struct.pack("<I", pid), b"\1")
        except LibbpfError:  # full: the first thousand are sampled
            return
        self._pids.add(pid)

    def switch(self, *, on: bool) -> None:
        """Begin or stop."""
        if on == self.is_on:
            return
        for descriptor in self._events:
            perf_events.switch(descriptor, on=on)
        now_ns = time.monotonic_ns()
        if not on:
            self._on_ns += now_ns - self._on_since_ns
        self._on_since_ns = now_ns
        self.is_on = on

    @property
    def pids(self) -> FrozenSet[int]:
        """Those that are watched."""
        return frozenset(self._pids)

    def on_ns(self) -> int:
        """How long it has been on."""
        now_ns = time.monotonic_ns()
        return self._on_ns + (now_ns - self._on_since_ns if self.is_on else 0)

    def lost(self) -> int:
        """Samples for which the ring had no room."""
        zero = ctypes.c_uint32()
        image = ctypes.create_string_buffer(self._bss_bytes())
        descriptor = self._object.descriptor(".bss")
        libbpf().call("bpf_map_lookup_elem", descriptor, ctypes.byref(zero), image)
        found: int = struct.unpack_from("<Q", image.raw, self._lost)[0]
        return found

    def _bss_bytes(self) -> int:
        return max(
            v.offset_bytes + v.size_bytes for v in self._object.btf.variables(".bss").values()
        )

    def take(self) -> List[RawStack]:
        """The samples that came since the last call."""
        libbpf().call("ring_buffer__consume", self._ring)
        came, self._came = self._came, []
        return came

    def maps_bytes(self) -> int:
        """Kernel memory of its maps."""
        return self._object.maps_bytes()

    def close(self) -> None:
        """Give everything back. May be called twice."""
        if self._ring:
            libbpf().functions.ring_buffer__free(self._ring)
            self._ring = 0
        # libbpf closes the events with their links.
        self._events.clear()
        self._object.close()

    def _take(self, _context: int, address: int, size_bytes: int) -> int:
        layout = self._layout
        header: Any = layout.from_address(address)
        kernel, user = header.kernel_frames_bytes // 8, header.user_frames_bytes // 8
        self._came.append(
            RawStack(
                pid=header.tgid,
                tid=header.tid,
                kernel=tuple(header.kernel_frames[:kernel]),
                user=tuple(header.user_frames[:user]),
                registers=Registers(header.ip, header.sp, header.fp, header.link),
                memory=ctypes.string_at(address + layout.copy.offset, header.copy_bytes),
            )
        )
        return 0
