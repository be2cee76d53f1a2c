"""Stacks of chosen processes, where they run and where they sleep: the BPF object that takes them.

Everything that takes privileges is done when it is made; switching it on and off needs none.
While it is off the kernel does nothing for it but ask, at a switch of threads, who listens.
"""

from __future__ import annotations

import ctypes
import struct
import time
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Optional, Set

from udsprobe.kernel.objects.libbpf import LibbpfError, libbpf
from udsprobe.kernel.stacks import perf_events
from udsprobe.kernel.stacks.loaded import LEAVING, SLEEPERS, LoadedStacks, make_fresh
from udsprobe.kernel.stacks.raw_stacks import (
    Came,
    Held,
    HeldStack,
    RawStack,
    Records,
    SleepBegan,
    SleepTime,
    Untold,
)
from udsprobe.kernel.stacks.ring import Ring
from udsprobe.kernel.stacks.runtimes import Runtimes
from udsprobe.kernel.stacks.sleepers import sleeping

HZ = 99
"""Not 100: what a program does by a clock of its own would be met at the same place each time."""

RESTS_ON = "perf:cpu-clock, perf:context-switches"
RESTS_ON_CLOCK = "perf:cpu-clock"
_RUNNING, _RING = "sample_cpu", "ring"
_ONLINE = Path("/sys/devices/system/cpu/online")
_UNTOLD_KEY, _UNTOLD = struct.Struct("<IiQ"), struct.Struct("<QQQ")


EVENTS_MAX = 1500
"""That are handed over with one call of `take`, or before it; further ones are lost, and counted.
As many sleeps are told in a second (TAKEN_IN_SECOND, bpf/stacks.h)."""


RuntimesOf = Callable[[int], Optional[Runtimes]]


def _not_looked_at(_pid: int) -> None:
    return None


class _Switch:
    """Events of one kind, and how long they were on."""

    def __init__(self) -> None:
        self.events: List[int] = []
        self.is_on = False
        self._since_ns = self._on_ns = 0

    def turn(self, *, on: bool) -> None:
        if on == self.is_on:
            return
        for descriptor in self.events:
            perf_events.switch(descriptor, on=on)
        self._on_ns, self._since_ns = self.on_ns(), time.monotonic_ns()
        self.is_on = on

    def on_ns(self) -> int:
        return self._on_ns + (time.monotonic_ns() - self._since_ns if self.is_on else 0)


class StackSampler:
    """With events for each CPU, and off.

    Args:
        loaded: its programs, which are given back with it.

    Attributes:
        sees_sleep: this kernel lets it see where threads fall asleep.
        sees_owing: and whether they owe a reply then.

    Raises:
        LibbpfError: the kernel refuses the events of running threads.
        OSError: no descriptor is left, or sysfs is not there.
    """

    def __init__(self, loaded: LoadedStacks) -> None:
        self._ring: Optional[Ring] = None
        self._pids: Set[int] = set()
        self._runtimes: Dict[int, Runtimes] = {}
        self._came: List[Held] = []
        self._held_bytes = self._kept = 0
        self._dropped = 0
        self._lock = Lock()
        self._running, self._asleep = _Switch(), _Switch()
        self._loaded, self._object = loaded, loaded.object
        self.sees_sleep, self.sees_owing = loaded.sees_sleep, loaded.sees_owing
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        self._layout: Any = self._object.btf.structure("stack_sample")
        self._kinds = self._object.btf.enum("stack_record")
        self._records = Records(self._layout, self._kinds)
        rings = (each for each in self._object.shapes() if each.name == _RING)
        self._ring_bytes = next(rings).entries
        self._map_ring()  # What fails is to fail now.
        self._unmap_ring()
        self._attach(self._running, _RUNNING, lambda cpu: perf_events.open_clock(cpu, HZ))
        if self.sees_sleep:
            try:
                self._attach(self._asleep, LEAVING, perf_events.open_switches)
                self._object.prepare_iterator(SLEEPERS)
            except LibbpfError:
                self.sees_sleep = False

    def _map_ring(self) -> None:
        self._ring = Ring(self._object.descriptor(_RING), self._ring_bytes)

    def _unmap_ring(self) -> None:
        ring, self._ring = self._ring, None
        if ring is not None:
            ring.close()

    def _attach(self, events: _Switch, program: str, opened: Callable[[int], int]) -> None:
        for cpu in perf_events.online_cpus(_ONLINE.read_text()):
            descriptor = opened(cpu)
            self._object.attach_to_perf_event(program, descriptor)
            events.events.append(descriptor)
            perf_events.switch(descriptor, on=False)

    def watch(self, pids: Iterable[int], runtimes_of: RuntimesOf = _not_looked_at) -> None:
        """Take stacks of these processes and no others from now on.

        Args:
            runtimes_of: by PID, how to follow the frames of what interprets a process's code;
                None: as before.
        """
        wanted = set(pids)
        gone = self._pids - wanted
        for pid in gone:
            self._object.delete("sampled_processes", struct.pack("<I", pid))
            self._runtimes.pop(pid, None)
        if gone and self._asleep.is_on:
            self._forget_sleepers(gone)
        self._pids -= gone
        for pid in wanted:
            runtimes = runtimes_of(pid)
            if pid not in self._pids or runtimes not in (None, self._runtimes.get(pid)):
                self._add(pid, runtimes or Runtimes())

    def _add(self, pid: int, runtimes: Runtimes) -> None:
        value = self._object.btf.structure("sampled_process")()
        for of, layout in runtimes._asdict().items():
            for name, number in ({} if layout is None else layout._asdict()).items():
                setattr(getattr(value, of), name, number)
        try:
            self._object.update("sampled_processes", struct.pack("<I", pid), bytes(value))
        except LibbpfError:  # full: the first thousand are sampled
            return
        self._pids.add(pid)
        self._runtimes[pid] = runtimes

    def switch(self, *, running: bool, asleep: bool) -> None:
        """Begin or stop taking stacks of threads that run, and of those that fall asleep."""
        with self._lock:
            self._switch(running, asleep)

    def _switch(self, running: bool, asleep: bool) -> None:
        asleep = asleep and self.sees_sleep
        if (running or asleep) and self._ring is None:
            self._map_ring()
        self._running.turn(on=running)
        if asleep and not self._asleep.is_on:
            self._forget_sleepers(None)
        elif self._asleep.is_on:
            self._look_at_sleepers()
        self._asleep.turn(on=asleep)
        if asleep:
            self._look_at_sleepers()
        if not self.is_on:
            self._consume()
            self._unmap_ring()

    def _forget_sleepers(self, pids: Optional[Set[int]]) -> None:
        """Of these processes, or all: what they do while nobody looks is not known."""
        layout: Any = self._object.btf.structure("sleeper")
        for key, value in list(self._object.entries("sleepers", 4, ctypes.sizeof(layout))):
            if pids is None or layout.from_buffer_copy(value).tgid in pids:
                self._object.delete("sleepers", key)

    def _consume(self) -> None:
        if self._ring is not None:
            self._ring.read(self._take)

    def _look_at_sleepers(self) -> None:
        # Where they fell asleep comes before how long they have slept.
        self._consume()
        for raw in self._object.parts(SLEEPERS):
            goes_on = self._kinds["RECORD_WAIT_GOES_ON"]
            known = self._runtimes
            for event in sleeping(raw, self._layout, self._records, goes_on, "/proc", known):
                self._keep(event)

    def _keep(self, event: Held) -> None:
        if self._kept < EVENTS_MAX or isinstance(event, SleepTime):
            self._came.append(event)
            self._kept += 1
            self._held_bytes += _size_bytes(event)
        else:
            self._dropped += 1

    @property
    def is_on(self) -> bool:
        """It takes stacks of any kind."""
        return self._running.is_on or self._asleep.is_on

    @property
    def watches_sleep(self) -> bool:
        """It takes stacks of threads that fall asleep."""
        return self._asleep.is_on

    @property
    def pids(self) -> FrozenSet[int]:
        """Those that are watched."""
        return frozenset(self._pids)

    def on_ns(self) -> int:
        """How long it has taken stacks of running threads."""
        return self._running.on_ns()

    def asleep_on_ns(self) -> int:
        """How long it has taken stacks of threads that fall asleep."""
        return self._asleep.on_ns()

    def lost(self) -> int:
        """Samples for which there was no room."""
        return self._global("samples_lost") + self._dropped

    def waits_lost(self) -> int:
        """Sleeps of which nothing is known: there was no room for them."""
        return self._global("waits_lost")

    def _global(self, name: str) -> int:
        variables = self._object.btf.variables(".bss")
        zero = ctypes.c_uint32()
        size = max(each.offset_bytes + each.size_bytes for each in variables.values())
        image = ctypes.create_string_buffer(size)
        descriptor = self._object.descriptor(".bss")
        libbpf().call("bpf_map_lookup_elem", descriptor, ctypes.byref(zero), image)
        found: int = struct.unpack_from("<Q", image.raw, variables[name].offset_bytes)[0]
        return found

    def look(self) -> None:
        """Empty the ring, and look who sleeps: some times a second, by any thread."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        if self._asleep.is_on:
            self._look_at_sleepers()
        else:
            self._consume()

    def take(self) -> Came:
        """What came since the last call."""
        with self._lock:
            self._look()
            self._kept = 0
            return Came(self._taken(), self._untold() if self._asleep.on_ns() else [])

    def take_held(self) -> Came:
        """What earlier looks have brought, so that it need not be held any longer."""
        with self._lock:
            return Came(self._taken(), [])

    def _taken(self) -> List[Held]:
        came, self._came, self._held_bytes = self._came, [], 0
        return came

    @property
    def held_bytes(self) -> int:
        """Of stacks that came and were not taken."""
        return self._held_bytes

    def _untold(self) -> List[Untold]:
        entries = self._object.entries("untold", _UNTOLD_KEY.size, _UNTOLD.size)
        return [Untold(*_UNTOLD_KEY.unpack(key), *_UNTOLD.unpack(sums)) for key, sums in entries]

    def maps_bytes(self) -> int:
        """Kernel memory of its maps."""
        return self._object.maps_bytes()

    def release(self) -> LoadedStacks:
        """Give everything back but the programs, which are as if they were loaded just now.

        Raises:
            LibbpfError: the kernel refuses; then everything is to be closed.
        """
        self.switch(running=False, asleep=False)
        self._give_back()
        self._object.detach()
        make_fresh(self._object)
        return replace(self._loaded, sees_sleep=self.sees_sleep)

    def close(self) -> None:
        """Give everything back. May be called twice."""
        self._give_back()
        self._object.close()

    def _give_back(self) -> None:
        with self._lock:
            self._unmap_ring()
        # libbpf closes the events with their links.
        self._running.events.clear()
        self._asleep.events.clear()

    def _take(self, address: int, _size_bytes: int) -> None:
        self._keep(self._records.at(address))


def _size_bytes(held: Held) -> int:
    if isinstance(held, HeldStack):
        return held.size_bytes
    stack = held.stack if isinstance(held, SleepBegan) else held
    return len(stack.memory) if isinstance(stack, RawStack) else 0
