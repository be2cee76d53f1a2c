"""An observation from its first probe to its last sample.

Puts tracer, targets and collector together and keeps the order that exact
counts need: probes first, targets second; at the end probes off, then the
last reading.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, Iterable, List, Optional, Set, Tuple, Union

from udsprobe.kernel.objects.alongside import Work, nothing
from udsprobe.kernel.proc.own_namespaces import in_pid_namespace
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.selectors import Chosen
from udsprobe.kernel.strategy import StrategyTracer
from udsprobe.kernel.tables.target_book import TargetBook
from udsprobe.observe.collector import observed_here
from udsprobe.observe.live_observer import ObserverOptions, ReportingObserver
from udsprobe.observe.stack_taking import StackTaking
from udsprobe.observe.strategies import load_strategy
from udsprobe.sample import Observation, Sample

if TYPE_CHECKING:
    from udsprobe.kernel.abilities.privileges import LeastPrivilege
    from udsprobe.kernel.programs.kept import KeptPrograms
    from udsprobe.model.report import Report
    from udsprobe.recording.window_writer import WindowRecorder
    from udsprobe.recording.writer import Recorder
    from udsprobe.reporting import Reporter


def _stack_taking(wanted: str, tracer: StrategyTracer, kept: Optional[KeptPrograms]) -> StackTaking:
    return StackTaking(
        wanted,
        tracer.strategy,
        in_pid_namespace=in_pid_namespace(),
        requests=tracer.requests_map(),
        kept=kept,
    )


def _reporter(observation: Observation, first: Sample, slo_us: Optional[float]) -> Reporter:
    # Imported when all there is to count is counted.
    from udsprobe.reporting import Reporter

    return Reporter(observation, first, slo_us)


def _book_of(
    chosen: Iterable[Chosen], program: Optional[Tuple[str, str]], procfs: Procfs
) -> TargetBook:
    book = TargetBook(procfs)
    for process in chosen:
        book.expect(process.pid, process.via)
        if program is not None:
            book.expect_program(process.pid, *program)
    return book


def _added(latecomers: Iterable[Chosen], known: Set[int], book: TargetBook) -> List[Chosen]:
    added = [process for process in latecomers if process.pid not in known]
    for process in added:
        book.expect(process.pid, process.via)
    return added


class Observer(ReportingObserver):
    """Live probes on chosen targets.

    Args:
        chosen: processes to begin with.
        options: how to observe.
        program: (comm, command line) that the one chosen process is about to
            become; it counts from that exec on.
        privileges: how to go on once all is attached and open; None is as before.
        recorder: is given every sample.
        meanwhile: done in another thread while the kernel verifies the probes.
        latecomers: asked when the probes are live for processes that came meanwhile.
        kept: where probes stay loaded, as `Tracer` takes it.

    Raises:
        UdsprobeError: of `load_strategy` and `LeastPrivilege`.
    """

    def __init__(
        self,
        chosen: Iterable[Chosen],
        options: ObserverOptions,
        *,
        program: Optional[Tuple[str, str]] = None,
        privileges: Optional[LeastPrivilege] = None,
        recorder: Optional[Union[Recorder, WindowRecorder]] = None,
        meanwhile: Work = nothing,
        latecomers: Callable[[], Iterable[Chosen]] = tuple,
        kept: Optional[KeptPrograms] = None,
    ) -> None:
        began_ns, self._options = time.monotonic_ns(), options
        procfs = self._procfs = Procfs()
        wanted = list(chosen)
        book = _book_of(wanted, program, procfs)
        self._tracer, self._collector_of = load_strategy(
            options.strategy,
            options.detail,
            options.follow,
            meanwhile,
            kept,
        )
        wanted += _added(latecomers(), {each.pid for each in wanted}, book)
        self._stacks = _stack_taking(options.stacks, self._tracer, kept)
        try:
            self.first = self._begun(wanted, book, dormant=program is not None)
            self._settle(privileges)
        except BaseException:
            self._stacks.close()
            self._tracer.close()
            raise
        attach_ms = (time.monotonic_ns() - began_ns) / 1e6
        self._reporter = _reporter(self._describe(attach_ms), self.first, options.slo_us)
        self._recorder = recorder
        if recorder is not None:
            recorder.begin(self.observation, self.first, options.slo_us)

    def _begun(self, wanted: List[Chosen], book: TargetBook, *, dormant: bool) -> Sample:
        self._collector = self._collector_of(book, self._procfs, self._stacks)
        self._tracer.seed({p.pid: p.start_ticks for p in wanted}, dormant=dormant)
        self._collector.begin()
        self._stacks.begin(p.pid for p in wanted)
        return self._collector.sample()

    def _settle(self, privileges: Optional[LeastPrivilege]) -> None:
        if privileges is not None:
            # Before the recorder and others have threads, each with its own capabilities.
            privileges.take_effect(self._tracer.recursion_misses)
        self._stacks.keep_looking()
        self._collector.settle()

    @property
    def loading_s(self) -> float:
        """CPU time that loading the probes took; 0 where they were loaded before, or are BCC's."""
        return self._tracer.loading_s + self._stacks.loading_s

    def targets_alive(self) -> int:
        """Targets that have not exited."""
        alive = self._tracer.counters.targets_alive()
        if alive and self._tracer.misses_exits() and not self._anybody_left():
            return 0
        return alive

    def _anybody_left(self) -> bool:
        """By the kernel's own lists, not by the exits that were seen."""
        if self._tracer.counters.any_thread():
            return True
        return any(self._procfs.process(pid) is not None for pid in self.alive_pids())

    def interval(self) -> Report:
        """What happened since the last call, or since the beginning."""
        sample = self._collector.sample()
        interval = self._reporter.interval(sample)
        self._stacks.steer(interval, sample.monotonic_ns)
        if self._recorder is not None:
            self._recorder.add(sample, interval)
        return interval

    def keep_up(self) -> None:
        """Take a sample and report nothing: what comes and goes has to be seen in time."""
        if self._recorder is not None:
            self.interval()
        elif self._stacks.is_steered:
            sample = self._collector.sample()
            self._stacks.steer(self._reporter.judge(sample), sample.monotonic_ns)
        else:
            self._reporter.add(self._collector.sample())

    def stop(self) -> None:
        """Take the probes off; what they counted stays to be read."""
        self._stacks.stop()
        self._tracer.detach()

    def close(self) -> None:
        """Give everything back."""
        self._collector.close()
        self._stacks.close()
        self._options.at_end(self._tracer.functions_attached())
        self._tracer.close()

    def _describe(self, attach_ms: float) -> Observation:
        return observed_here(
            self._tracer.strategy,
            (*self._tracer.measurements(), self._stacks.state),
            attach_ms=attach_ms,
            interval_s=self._options.interval_s,
            detail=self._tracer.detail,
        )
