"""All sources and the clock, read together into one Sample."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Tuple

from udsprobe.kernel.counters import EventAccount
from udsprobe.kernel.listener_table import joined
from udsprobe.kernel.listening import TargetListeners
from udsprobe.kernel.procfs import Procfs, printable
from udsprobe.kernel.run_time import RunTimeMeter
from udsprobe.kernel.target_book import TargetBook
from udsprobe.kernel.tracer import Tracer
from udsprobe.sample import ListenerReading, ProbeReading, Sample, ThreadActivities

SWEEP_EVERY_SAMPLES = 10
# A run of these that the kernel skipped can be a call that was not counted.
CALL_PROGRAMS = ("sys_enter", "sys_exit")


class Clock(Protocol):
    """Where time comes from."""

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC."""

    def unix_s(self) -> float:
        """Seconds since the epoch."""


@dataclass(frozen=True)
class SystemClock:
    """The machine's own clocks."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def unix_s(self) -> float:
        return time.time()


class Collector:
    """Reads everything there is about the targets.

    Args:
        tracer: with its targets seeded.
        book: that knows the chosen processes already.
    """

    def __init__(self, tracer: Tracer, book: TargetBook, procfs: Procfs, clock: Clock) -> None:
        self._tracer = tracer
        self._book = book
        self._clock = clock
        self._listeners = TargetListeners(procfs)
        self._table = tracer.listener_table(procfs)
        self._connections = tracer.connection_table(procfs)
        self._sequence = 0
        self._run_time = RunTimeMeter(tracer.run_time_ns)

    def sample(self) -> Sample:
        """One moment of the observation, cumulative."""
        counters = self._tracer.counters
        self._run_time.tick()
        monotonic_ns = self._clock.monotonic_ns()
        # One behind the other: what is divided by each other has to be of one moment.
        calls = counters.calls()
        row = counters.all_cpus()
        threads = counters.threads()
        # Read again, behind the living: a thread that ends in between is not left out.
        exited_activity_ns = counters.exited_activity_ns(counters.all_cpus())
        self._book.update(counters.take_processes(), self._tracer.via_names)
        interval = counters.next_interval()
        connections, connections_open = self._connections.read()
        seen = self._listeners.read(self._book.alive())
        self._sequence += 1
        if self._sequence % SWEEP_EVERY_SAMPLES == 0:
            self._tracer.sweep_connections()
        return Sample(
            sequence=self._sequence - 1,
            monotonic_ns=monotonic_ns,
            unix_s=self._clock.unix_s(),
            calls=calls,
            in_flight=tuple(t.in_flight for t in threads if t.in_flight is not None),
            syscalls_by_name=counters.calls_by_name(row),
            threads=tuple(
                ThreadActivities(t.pid, t.tid, printable(t.comm), t.activity_ns) for t in threads
            ),
            exited_activity_ns=exited_activity_ns,
            targets=self._book.readings(),
            targets_exited=counters.targets_exited(),
            listeners=self._with_events(seen.listeners, monotonic_ns, interval),
            namespaces=seen.namespaces,
            connects=self._table.connects(),
            served=counters.served(row),
            upstream=self._connections.upstream(),
            connections=connections,
            connections_open=connections_open,
            probe=self._account(counters.events(row)),
        )

    def close(self) -> None:
        """Let go of what sampling holds open; the tracer is not ours."""
        self._listeners.close()
        self._run_time.close()

    def _with_events(
        self, shown: Tuple[ListenerReading, ...], now_ns: int, interval: int
    ) -> Tuple[ListenerReading, ...]:
        if "sk_data_ready" not in self._tracer.attached:
            return shown
        counted = self._table.read(now_ns, interval)
        if {reading.inode for reading in shown} - {reading.inode for reading in counted}:
            # Handed over by somebody who is no target: it is counted from now on.
            self._tracer.adopt_listeners()
        return joined(shown, counted)

    def _account(self, events: EventAccount) -> ProbeReading:
        misses = self._tracer.recursion_misses()
        missed = sum(misses[name] for name in CALL_PROGRAMS)
        return ProbeReading(
            events_seen=events.seen + missed,
            events_counted=events.counted,
            lost_map_full=events.map_full,
            lost_ring_full=0,
            lost_missed=missed,
            missed_by_program=misses,
            turned_away=self._tracer.counters.turned_away(),
            cpu_ns=time.process_time_ns(),
            rss_bytes=_resident_bytes(),
            bpf_cpu_ns=self._run_time.spent_ns,
            bpf_measured_ns=self._run_time.measured_ns,
        )


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
