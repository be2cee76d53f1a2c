"""An observation without a probe: what /proc and sock_diag show of processes, now and then.

What detail auto has between its full windows where there is no detail light. Whatever takes a
program in the kernel is None in its samples.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Dict, Iterable, Optional, Tuple

from udsprobe.auto.composing import UNPROBED
from udsprobe.kernel.abilities.light_plan import NAMES
from udsprobe.kernel.proc.cpu_files import CpuFiles
from udsprobe.kernel.proc.procfs import Process, Procfs
from udsprobe.kernel.selectors import Chosen
from udsprobe.kernel.sockets.listening import TargetListeners
from udsprobe.kernel.tables.target_book import (
    ProcessCounts,
    ProcessesSeen,
    ProcRecord,
    TargetBook,
    TargetNames,
    proc_record,
)
from udsprobe.observe.collector import SystemClock, observed_here, resident_bytes
from udsprobe.observe.live_observer import ObserverOptions, ReportingObserver
from udsprobe.reporting import Reporter
from udsprobe.sample import (
    CpuReading,
    MeasurementState,
    Observation,
    ProbeReading,
    QuotaReading,
    Sample,
)

if TYPE_CHECKING:
    from udsprobe.model.report import Report
    from udsprobe.observe.observation import Observer
    from udsprobe.recording.writer import Recorder

WHY = "only full windows of detail auto see it"
TAKEN_OFF = "light was taken off because it cost more than the budget leaves it"
_ON = {"listeners": "sock_diag", "cpu": "procfs+cgroupfs"}
_DEGRADED = {
    "processes": ("procfs", "looked for now and then: who is gone by then was not seen"),
    "verdict": ("listeners+processes", "accept queues as they are read and descriptors only"),
}
# Looking for children reads all of /proc: of what that took, so many times is between two looks.
TIMES_BETWEEN_LOOKS = 200
NAMES_OF_TARGETS = TargetNames({0: "selector", 1: "fork"}, {1: "signal", 2: "tracer"})
_VALUES = {name: value for value, name in NAMES_OF_TARGETS.vias.items()}
_STOPS = {"T": 1, "t": 2}


_NOTHING = ProbeReading(
    events_seen=0,
    events_counted=0,
    lost_map_full=0,
    lost_ring_full=0,
    lost_missed=0,
    missed_by_program={},
    turned_away=0,
    cpu_ns=0,
    rss_bytes=0,
    bpf_cpu_ns=None,
    bpf_measured_ns=None,
    unread_messages=0,
)


class FollowedProcesses:
    """Chosen processes and, where asked for, their descendants; by their start times.

    Args:
        follow: children become targets when they are seen.

    Attributes:
        exited: how many have ended.
    """

    def __init__(self, procfs: Procfs, chosen: Iterable[Chosen], *, follow: bool) -> None:
        self._procfs, self._follow = procfs, follow
        self._known = {each.pid: each.start_ticks for each in chosen}
        self._via = dict.fromkeys(self._known, "selector")
        self._look_at_s = 0.0
        self.exited = 0

    def look(self) -> ProcessesSeen:
        """All that run now."""
        living = self._living()
        if self._follow and time.monotonic() >= self._look_at_s:
            began_s = time.monotonic()
            for pid in self._procfs.descendants(living) - living.keys():
                process = self._procfs.process(pid)
                if process is not None and not process.ended:
                    living[pid] = process
                    self._known[pid], self._via[pid] = process.start_ticks, "fork"
            now_s = time.monotonic()
            self._look_at_s = now_s + TIMES_BETWEEN_LOOKS * (now_s - began_s)
        for pid in self._known.keys() - living.keys():
            del self._known[pid]
            self.exited += 1
        seen = {pid: self._seen(process) for pid, process in living.items()}
        return ProcessesSeen(seen, seen)

    def alive(self) -> int:
        """How many run now."""
        return len(self._living())

    def _living(self) -> Dict[int, Process]:
        found: Dict[int, Process] = {}
        for pid, ticks in self._known.items():
            process = self._procfs.process(pid)
            if process is not None and not process.ended and process.start_ticks == ticks:
                found[pid] = process
        return found

    def _seen(self, process: Process) -> ProcRecord:
        """Refusals of descriptors are not seen."""
        counted = ProcessCounts(_VALUES[self._via[process.pid]], process.comm_raw)
        return proc_record(process, self._procfs, counted, _STOPS)


class UnprobedObserver(ReportingObserver):
    """To its users as `udsprobe.observe.observation.Observer` is; it loads nothing.

    Args:
        chosen, options, program, recorder: as `Observer` takes them.
        before: had probes until now, and was given the same recorder: its samples are gone on with.

    Raises:
        KernelCannotError: `no-sock-diag`, `sock-diag-failed`.
    """

    def __init__(
        self,
        chosen: Iterable[Chosen],
        options: ObserverOptions,
        *,
        program: Optional[Tuple[str, str]] = None,
        recorder: Optional[Recorder] = None,
        before: Optional[Observer] = None,
    ) -> None:
        wanted, self._procfs, self._clock = list(chosen), Procfs(), SystemClock()
        self._book = TargetBook(self._procfs)
        for process in wanted:
            self._book.expect(process.pid, process.via)
            if program is not None:
                self._book.expect_program(process.pid, *program)
        self._processes = FollowedProcesses(self._procfs, wanted, follow=options.follow)
        self._listeners, self._cpu = TargetListeners(self._procfs), CpuFiles(self._procfs)
        self._before = None if before is None else before.last
        self._sequence = 0 if before is None else before.last.sequence + 1
        self._recorder = recorder
        try:
            if before is None:
                self._begin(options)
            else:
                self._go_on(before, options.slo_us)
        except BaseException:
            self.close()
            raise

    def _begin(self, options: ObserverOptions) -> None:
        self.first = self._sample()
        self._reporter = Reporter(_described(options.interval_s), self.first, options.slo_us)
        if self._recorder is not None:
            self._recorder.begin(self.observation, self.first, options.slo_us)

    def _go_on(self, before: Observer, slo_us: Optional[float]) -> None:
        self.first = before.first
        told = before.observation
        now = replace(told, strategy=UNPROBED, measurements=_from_now(told.measurements))
        self._reporter = Reporter(now, self.first, slo_us)
        self._reporter.add(before.last)
        if self._recorder is not None:
            at = datetime.fromtimestamp(before.last.unix_s, timezone.utc)
            until = f"until {at.isoformat(timespec='seconds')}: {TAKEN_OFF}"
            measured = _until(told.measurements, until)
            self._recorder.amend(replace(told, measurements=measured), slo_us)
        self.interval()

    def targets_alive(self) -> int:
        """Targets that have not exited."""
        return self._processes.alive()

    def interval(self) -> Report:
        """What happened since the last call, or since the beginning."""
        sample = self._sample()
        interval = self._reporter.interval(sample)
        if self._recorder is not None:
            self._recorder.add(sample, interval)
        return interval

    def stop(self) -> None:
        """There is nothing to take off."""

    def close(self) -> None:
        """Let go of what sampling holds open."""
        self._listeners.close()
        self._cpu.close()

    def _sample(self) -> Sample:
        monotonic_ns, unix_s = self._clock.monotonic_ns(), self._clock.unix_s()
        # Nobody tells who slept all the time: each is looked at.
        self._book.update(self._processes.look(), self._book.alive(), NAMES_OF_TARGETS)
        seen = self._listeners.read(self._book.alive(), None, self._book.netns())
        self._sequence += 1
        return Sample(
            sequence=self._sequence - 1,
            monotonic_ns=monotonic_ns,
            unix_s=unix_s,
            calls=None,
            in_flight=None,
            syscalls_by_name=None,
            threads=None,
            exited_activity_ns=None,
            targets=self._book.readings(),
            targets_exited=self._exited(),
            listeners=seen.listeners,
            namespaces=seen.namespaces,
            connects=None,
            served=None,
            upstream=None,
            connections=None,
            connections_open=None,
            probe=self._account(),
            cpu=self._cpu_now(monotonic_ns),
            open_files=self._procfs.open_files(),
        )

    def _exited(self) -> int:
        before = 0 if self._before is None else self._before.targets_exited
        return before + self._processes.exited

    def _account(self) -> ProbeReading:
        """Nothing is seen; what was seen before stays."""
        before = _NOTHING if self._before is None else self._before.probe
        return replace(before, cpu_ns=time.process_time_ns(), rss_bytes=resident_bytes())

    def _cpu_now(self, monotonic_ns: int) -> CpuReading:
        reading = self._cpu.read(self._book.by_cgroups(), monotonic_ns)
        before = None if self._before is None else self._before.cpu
        if before is None or reading.cgroups is None:
            return reading
        known = {each.path: each for each in before.cgroups or ()}
        return replace(
            reading, cgroups=tuple(_gone_on(each, known.get(each.path)) for each in reading.cgroups)
        )


def unprobed_measurements() -> Tuple[MeasurementState, ...]:
    """The state of every measurement that a full window has."""
    return tuple(_state(name) for name in NAMES if name != "traffic")


def _state(name: str) -> MeasurementState:
    if name in _ON:
        return MeasurementState(name, _ON[name], "on", None)
    if name in _DEGRADED:
        rests_on, reason = _DEGRADED[name]
        return MeasurementState(name, rests_on, "degraded", reason)
    return MeasurementState(name, None, "off", WHY)


def _from_now(before: Tuple[MeasurementState, ...]) -> Tuple[MeasurementState, ...]:
    """What was measured with probes is not any more."""
    now = {each.name: each for each in unprobed_measurements()}
    return tuple(
        each if each.state == "off" else _kept(now.get(each.name)) or _ended(each)
        for each in before
    )


def _kept(now: Optional[MeasurementState]) -> Optional[MeasurementState]:
    return None if now is None or now.state == "off" else now


def _ended(state: MeasurementState) -> MeasurementState:
    return MeasurementState(state.name, None, "off", TAKEN_OFF)


def _until(before: Tuple[MeasurementState, ...], reason: str) -> Tuple[MeasurementState, ...]:
    """The same of all samples of a recording."""
    return tuple(
        replace(was, state="degraded", reason=reason) if is_off and was.state != "off" else was
        for was, is_off in zip(before, (now.state == "off" for now in _from_now(before)))
    )


def _gone_on(reading: QuotaReading, before: Optional[QuotaReading]) -> QuotaReading:
    """Counters of a cgroup that was known before: this table has them from its own first look."""
    if before is None:
        return reading
    return replace(
        reading,
        since_ns=before.since_ns,
        periods=before.periods + reading.periods,
        throttled_periods=before.throttled_periods + reading.throttled_periods,
        throttled_ns=before.throttled_ns + reading.throttled_ns,
        usage_ns=None
        if reading.usage_ns is None or before.usage_ns is None
        else before.usage_ns + reading.usage_ns,
    )


def _described(interval_s: float) -> Observation:
    measured = unprobed_measurements()
    return observed_here(UNPROBED, measured, attach_ms=0.0, interval_s=interval_s, detail="auto")
