"""All sources and the clock, read together into one Sample."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, Mapping, NamedTuple, Optional, Protocol, Sequence, Set, Tuple

from udsprobe import __version__
from udsprobe.kept_requests import still_kept, told_in_samples
from udsprobe.kernel.abilities.plan import tells_arrivals
from udsprobe.kernel.objects.run_time import RunTimeMeter
from udsprobe.kernel.objects.shared_memory import AddedUp
from udsprobe.kernel.proc.cpu_files import CpuFiles
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.programs.call_programs import missed_calls
from udsprobe.kernel.sockets.listening import TargetListeners
from udsprobe.kernel.tables.counters import EventAccount, ThreadReading
from udsprobe.kernel.tables.listener_table import joined
from udsprobe.kernel.tables.ongoing_waits import OngoingWaits
from udsprobe.kernel.tables.target_book import TargetBook
from udsprobe.kernel.tracer import Tracer
from udsprobe.observe.stack_taking import StackTaking
from udsprobe.sample import (
    CallCounts,
    CallInFlight,
    ConnectionReading,
    KeptRequest,
    ListenerReading,
    LoopCounts,
    MeasurementState,
    Observation,
    ProbeReading,
    Sample,
    ServedCounts,
    StackReading,
    ThreadActivities,
    TrafficCounts,
    WaitCounts,
)

SWEEP_EVERY_SAMPLES = 10
# Operations of io_uring whose completion the kernel tells nobody: IOSQE_CQE_SKIP_SUCCESS, or
# no room in the ring.
UNTOLD = "io_uring:untold"
# Programs whose calls are not seen: 32-bit ones that targets started, with strategy `fentry`.
UNSEEN = "programs:32-bit"


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


class _Counted(NamedTuple):
    """`ran`: processes of which a thread ran since the last sample."""

    calls: Tuple[CallCounts, ...]
    row: AddedUp
    threads: Sequence[ThreadReading]
    ran: FrozenSet[int]
    exited_activity_ns: Mapping[str, int]
    events: EventAccount

    def in_flight(self) -> Tuple[CallInFlight, ...]:
        """The calls that threads are in."""
        return tuple(t.in_flight for t in self.threads if t.in_flight is not None)

    def activities(self) -> Tuple[ThreadActivities, ...]:
        """Of each thread."""
        return tuple(t.activities for t in self.threads)

    def loops(self) -> Tuple[LoopCounts, ...]:
        """Of the threads that poll."""
        return tuple(t.loop for t in self.threads if t.loop.iterations)


class Collector:
    """Reads everything there is about the targets.

    Args:
        tracer: with its targets seeded.
        book: that knows the chosen processes already.
        stacks: None where none are taken.
    """

    def __init__(
        self,
        tracer: Tracer,
        book: TargetBook,
        procfs: Procfs,
        clock: Clock,
        stacks: Optional[StackTaking] = None,
    ) -> None:
        self._stacks = stacks
        self._tracer = tracer
        self._book = book
        self._clock = clock
        self._procfs = procfs
        self._listeners = TargetListeners(procfs)
        self._table = tracer.listener_table(procfs)
        self._connections = tracer.connection_table(procfs)
        self._servers = tracer.server_table(self._connections)
        self._cpu = CpuFiles(procfs)
        self._holders = tracer.cpu_holders(procfs)
        self._waits = tracer.wait_table(procfs)
        self._ongoing = OngoingWaits(procfs)
        self._whole = tracer.whole_requests(self._connections)
        self._kept: Tuple[KeptRequest, ...] = ()
        self._not_adopted: Set[int] = set()
        self._sequence = 0
        self._run_time = RunTimeMeter(tracer.program_runs)

    def begin(self) -> None:
        """Take over what was seen of the targets when they became targets, just now."""
        self._listeners.begin(self._tracer.seeded_sockets)

    def settle(self) -> None:
        """What takes privileges is open, and they are given up: there may be threads now."""
        self._run_time.end_in_time()

    def sample(self) -> Sample:
        """One moment of the observation, cumulative."""
        self._run_time.tick()
        self._tracer.settle()
        # Before anything is read: what happened before this moment is in the sample.
        self._whole.turn_over()
        return self._read(self._clock.monotonic_ns(), self._clock.unix_s())

    def _read(self, monotonic_ns: int, unix_s: float) -> Sample:
        counted = self._read_counters()
        counters, row = self._tracer.counters, counted.row
        self._book.update(counters.processes(), counted.ran, self._tracer.target_names)
        interval, (rows, rows_open) = counters.next_interval(), self._connections.read(monotonic_ns)
        seen = self._listeners.read(self._book.alive(), counted.ran, self._book.netns())
        kept = self._kept_requests(monotonic_ns, rows)
        sample = Sample(
            sequence=self._next_number(),
            monotonic_ns=monotonic_ns,
            unix_s=unix_s,
            calls=counted.calls,
            in_flight=counted.in_flight(),
            syscalls_by_name=None if self._tracer.by_functions else counters.calls_by_name(row),
            threads=self._threads(counted, rows, rows_open, seen.listeners, monotonic_ns),
            exited_activity_ns=counted.exited_activity_ns,
            targets=self._book.readings(),
            targets_exited=counters.targets_exited(),
            listeners=self._with_events(seen.listeners, interval),
            namespaces=seen.namespaces,
            connects=self._table.connects(),
            served=counters.served(row),
            # Behind the connections, which are listed with what waits on them.
            upstream=self._connections.upstream(),
            connections=rows,
            connections_open=rows_open,
            probe=self._account(counted.events),
            cpu=self._cpu.read(self._book.by_cgroups(), monotonic_ns),
            open_files=self._procfs.open_files(),
            served_by=self._servers.read(self._comms()),
            loops=counted.loops(),
            loop_busy=counters.loop_busy(row),
            cpu_holders=self._holders.read(self._book.alive(), self._children()),
            stacks=self._stacks_now(),
            waits=self._waits_now(),
            kept_requests=kept,
            exits=self._book.exits(),
            starts=self._book.starts(),
        )
        return self._in_detail(sample, row)

    def _in_detail(self, sample: Sample, row: AddedUp) -> Sample:
        if self._tracer.detail == "full":
            return sample
        return without_calls(sample, self._tracer.counters.traffic(row))

    def _read_counters(self) -> _Counted:
        # One behind the other: what is divided by each other has to be of one moment.
        counters = self._tracer.counters
        calls = counters.calls()
        row = counters.all_cpus()
        events = counters.events()
        if self._tracer.detail == "light":
            # Nobody tells who slept all the time: each is looked at.
            ran = frozenset(self._book.alive())
            return _Counted((), row, (), ran, {}, events)
        threads = counters.threads()
        # Read again, behind the living: a thread that ends in between is not left out.
        exited = counters.exited_activity_ns()
        return _Counted(calls, row, threads.readings, threads.ran, exited, events)

    def _next_number(self) -> int:
        self._sequence += 1
        if self._sequence % SWEEP_EVERY_SAMPLES == 0:
            self._tracer.sweep_connections()
        return self._sequence - 1

    def close(self) -> None:
        """Let go of what sampling holds open; the tracer is not ours."""
        self._listeners.close()
        self._cpu.close()
        self._run_time.close()

    def _with_events(
        self, shown: Tuple[ListenerReading, ...], interval: int
    ) -> Tuple[ListenerReading, ...]:
        if not tells_arrivals(self._tracer.attached):
            return shown
        counted = self._table.read(interval)
        unknown = {reading.inode for reading in shown} - {reading.inode for reading in counted}
        if unknown - self._not_adopted:
            # Handed over by somebody who is no target: it is counted from now on.
            self._tracer.adopt_listeners()
        # What there was no room for is not tried again: each try looks at every descriptor.
        self._not_adopted = unknown
        return joined(shown, counted)

    def _account(self, events: EventAccount) -> ProbeReading:
        misses = dict(self._tracer.recursion_misses())
        untold = self._tracer.counters.untold_operations()
        unseen = self._tracer.programs_unseen()
        missed = missed_calls(misses) + untold + unseen
        if untold:
            misses[UNTOLD] = untold
        if unseen:
            misses[UNSEEN] = unseen
        turned_away = self._tracer.counters.turned_away()
        if self._whole.lost():
            turned_away["whole_requests"] = self._whole.lost()
        ran = self._run_time.reading()
        return ProbeReading(
            events_seen=events.seen + missed,
            events_counted=events.counted,
            lost_map_full=events.map_full,
            lost_ring_full=0,
            lost_missed=missed,
            missed_by_program=misses,
            turned_away=sum(turned_away.values()),
            cpu_ns=time.process_time_ns() + self._children_ns(),
            rss_bytes=resident_bytes(),
            bpf_cpu_ns=None if ran is None else ran.spent_ns,
            bpf_measured_ns=None if ran is None else ran.measured_ns,
            unread_messages=events.unread_messages,
            unplaced_failures=self._unplaced_failures(),
            turned_away_by_map=turned_away,
            bpf_ns_by_program=None if ran is None else ran.ns_by_program,
            bpf_runs_by_program=None if ran is None else ran.runs_by_program,
            maps_bytes=self._maps_bytes(),
            calls_left=self._tracer.counters.calls_left(),
        )

    def _threads(
        self,
        counted: _Counted,
        connections: Sequence[ConnectionReading],
        connections_open: int,
        listeners: Sequence[ListenerReading],
        now_ns: int,
    ) -> Tuple[ThreadActivities, ...]:
        return self._ongoing.told(
            counted.activities(), connections, connections_open, listeners, now_ns
        )

    def _kept_requests(
        self, now_ns: int, connections: Sequence[ConnectionReading]
    ) -> Optional[Tuple[KeptRequest, ...]]:
        fresh = self._whole.read(connections)
        if fresh is None:
            return None
        self._kept = still_kept((*self._kept, *fresh))
        return told_in_samples(self._kept, now_ns)

    def _comms(self) -> Dict[int, str]:
        return {each.pid: each.comm for each in self._book.readings()}

    def _stacks_now(self) -> Optional[StackReading]:
        return None if self._stacks is None else self._stacks.reading()

    def _children(self) -> FrozenSet[int]:
        return frozenset() if self._stacks is None else self._stacks.children()

    def _children_ns(self) -> int:
        return 0 if self._stacks is None else self._stacks.children_ns()

    def _waits_now(self) -> Optional[Tuple[WaitCounts, ...]]:
        return None if self._waits is None else self._waits.read()

    def _maps_bytes(self) -> int:
        stacks = 0 if self._stacks is None else self._stacks.maps_bytes()
        return self._tracer.maps_bytes() + stacks

    def _unplaced_failures(self) -> Optional[int]:
        if not tells_arrivals(self._tracer.attached):
            return None
        return self._table.unplaced_failures()


def _turns_alone(served: Optional[ServedCounts]) -> Optional[ServedCounts]:
    if served is None:
        return None
    return replace(
        served,
        stages={},
        app_activity_ns={},
        handed_over=None,
        pipelined=None,
        multiplexed=None,
        streams=None,
        tls_handshakes=None,
    )


def without_calls(sample: Sample, traffic: Tuple[TrafficCounts, ...]) -> Sample:
    """The same where no program is on system calls and the scheduler: that is not measured."""
    moved = sum(each.sent_messages + each.received_messages for each in traffic)
    exits = sample.exits
    if exits is not None:
        exits = tuple(replace(each, unanswered=None) for each in exits)
    return replace(
        sample,
        calls=None,
        in_flight=None,
        syscalls_by_name=None,
        threads=None,
        exited_activity_ns=None,
        connects=None,
        served=_turns_alone(sample.served),
        loops=None,
        loop_busy=None,
        cpu_holders=None,
        waits=None,
        kept_requests=None,
        traffic=traffic,
        exits=exits,
        starts=None,
        probe=replace(
            sample.probe,
            events_seen=moved,
            events_counted=moved,
            unplaced_failures=None,
            calls_left=None,
        ),
    )


def observed_here(
    strategy: str,
    measurements: Tuple[MeasurementState, ...],
    *,
    attach_ms: float,
    interval_s: float,
    detail: str,
) -> Observation:
    """What stays the same in an observation on this host."""
    return Observation(
        version=__version__,
        kernel=platform.release(),
        arch=platform.machine(),
        cpus=os.cpu_count() or 1,
        hostname=platform.node(),
        strategy=strategy,
        measurements=measurements,
        attach_ms=attach_ms,
        interval_s=interval_s,
        detail=detail,
    )


def resident_bytes() -> int:
    """Memory of this process."""
    with open("/proc/self/statm", "rb", buffering=0) as statm:
        pages = int(statm.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
