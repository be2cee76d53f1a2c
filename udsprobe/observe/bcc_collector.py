"""What strategy `bcc` tells, read together into one Sample; what it does not measure is None."""

from __future__ import annotations

import time

from udsprobe.kernel.bcc.tracer import BccTracer
from udsprobe.kernel.proc.cpu_files import CpuFiles
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.programs.call_programs import missed_calls
from udsprobe.kernel.sockets.listening import TargetListeners
from udsprobe.kernel.tables.counters import EventAccount
from udsprobe.kernel.tables.target_book import TargetBook
from udsprobe.observe.collector import SWEEP_EVERY_SAMPLES, Clock, resident_bytes
from udsprobe.sample import ProbeReading, Sample


class BccCollector:
    """Reads everything there is about the targets, as `udsprobe.observe.collector.Collector` does.

    Args:
        tracer: with its targets seeded.
        book: that knows the chosen processes already.
    """

    def __init__(self, tracer: BccTracer, book: TargetBook, procfs: Procfs, clock: Clock) -> None:
        self._tracer = tracer
        self._book = book
        self._clock = clock
        self._procfs = procfs
        self._listeners = TargetListeners(procfs)
        self._cpu = CpuFiles(procfs)
        self._sequence = 0

    def begin(self) -> None:
        """Nothing was seen of the targets when they became targets."""

    def settle(self) -> None:
        """Nothing waits for privileges to be given up."""

    def sample(self) -> Sample:
        """One moment of the observation, cumulative."""
        # Before anything is read: what happened before this moment is in the sample.
        monotonic_ns, unix_s = self._clock.monotonic_ns(), self._clock.unix_s()
        counters = self._tracer.counters
        calls = counters.calls()
        by_name = counters.calls_by_name()
        events = counters.events()
        in_flight = counters.in_flight()
        # Nobody tells who slept all the time: each is looked at.
        self._book.update(
            counters.processes(self._procfs), self._book.alive(), self._tracer.target_names
        )
        seen = self._listeners.read(self._book.alive(), None, self._book.netns())
        return Sample(
            sequence=self._next_number(),
            monotonic_ns=monotonic_ns,
            unix_s=unix_s,
            calls=calls,
            in_flight=in_flight,
            syscalls_by_name=by_name,
            threads=None,
            exited_activity_ns=None,
            targets=self._book.readings(),
            targets_exited=counters.targets_exited(),
            listeners=seen.listeners,
            namespaces=seen.namespaces,
            connects=None,
            served=counters.served(),
            upstream=None,
            connections=None,
            connections_open=None,
            probe=self._account(events),
            cpu=self._cpu.read(self._book.by_cgroups(), monotonic_ns),
            open_files=self._procfs.open_files(),
        )

    def close(self) -> None:
        """Let go of what sampling holds open; the tracer is not ours."""
        self._listeners.close()
        self._cpu.close()

    def _next_number(self) -> int:
        self._sequence += 1
        if self._sequence % SWEEP_EVERY_SAMPLES == 0:
            self._tracer.counters.forget_connections(self._book.alive())
            self._tracer.counters.forget_interrupted()
        return self._sequence - 1

    def _account(self, events: EventAccount) -> ProbeReading:
        misses = self._tracer.recursion_misses()
        missed = missed_calls(misses)
        turned_away = self._tracer.counters.turned_away()
        return ProbeReading(
            events_seen=events.seen + missed,
            events_counted=events.counted,
            lost_map_full=events.map_full,
            lost_ring_full=0,
            lost_missed=missed,
            missed_by_program=misses,
            turned_away=sum(turned_away.values()),
            cpu_ns=time.process_time_ns(),
            rss_bytes=resident_bytes(),
            bpf_cpu_ns=None,
            bpf_measured_ns=None,
            unread_messages=events.unread_messages,
            turned_away_by_map=turned_away,
            calls_left=self._tracer.counters.calls_left(),
        )
