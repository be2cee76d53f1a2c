"""An observation in detail auto: light all the time, and a full one for each window.

A window of full detail is an observation of its own, opened on the targets that live and closed
at its end: nothing is added up over the gaps between windows. The programs stay loaded in the gaps,
attached to nothing, with maps as they were at first. `udsprobe/auto/` decides when. Where there is
no light, nothing has a probe between windows (`udsprobe/observe/unprobed.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Tuple,
)

from udsprobe.auto import costs
from udsprobe.auto.composing import UNPROBED, FullWindow, auto_measurements, composed
from udsprobe.auto.control import BUDGET, WINDOW_S, Bounds, Control, Costs, quiet_pace_s
from udsprobe.auto.light_cost import LightCost
from udsprobe.auto.pressure import Pressure, cause_of_full
from udsprobe.errors import KernelCannotError, UdsprobeError
from udsprobe.kernel.abilities.privileges import TO_LOAD
from udsprobe.kernel.objects.alongside import Work, nothing
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.programs.kept import KeptPrograms
from udsprobe.kernel.selectors import Chosen
from udsprobe.observe.live_observer import LiveObserver, ObserverOptions, ReportingObserver
from udsprobe.observe.observation import Observer
from udsprobe.observe.unprobed import UnprobedObserver
from udsprobe.sample import Observation, Sample

if TYPE_CHECKING:
    from udsprobe.kernel.abilities.privileges import LeastPrivilege
    from udsprobe.model.report import Report
    from udsprobe.recording.window_writer import WindowRecorder
    from udsprobe.recording.writer import Recorder

# Of errors: what carries full detail is found out by opening the first window.
WITHOUT_LIGHT = ("no-light", "no-btf")
# Told each sample of a window and what stays the same in it, in their order.
WindowSample = Callable[[Observation, Sample], None]


def untold(_: Observation, __: Sample) -> None:
    """Nobody asked."""


@dataclass(frozen=True)
class AutoOptions:
    """How to observe in detail auto.

    Attributes:
        windows: how full windows observe. Light shares their interval, limit and children, and has
            a strategy of its own and no stacks.
        budget: CPU seconds for light and full windows in each second, over an hour.
        light_returns: where light was taken off because of its cost, it may come back when there
            is less to do; the observation begins anew then, for those that ask for no whole window.
    """

    windows: ObserverOptions
    budget: float = BUDGET
    light_returns: bool = False


class AutoObserver(LiveObserver):
    """Live probes in detail auto.

    Args:
        chosen, program, recorder, meanwhile: as `Observer` takes them.
        options: how to observe.
        privileges: how to go on once the first window is open; what opening others takes is kept.
        on_window_sample: told the samples of full windows.
        on_change: told the newest sample when light is taken off, and the first when it is back.
        on_trouble: told why a window could not be opened, once until one is.

    Attributes:
        first: the sample at the moment the targets were taken on, of light where there is light.
        control: when windows are open, and why.

    Raises:
        UdsprobeError: of `Observer`, of light or of the first window.
    """

    def __init__(
        self,
        chosen: Iterable[Chosen],
        options: AutoOptions,
        *,
        program: Optional[Tuple[str, str]] = None,
        privileges: Optional[LeastPrivilege] = None,
        recorder: Optional[Recorder] = None,
        meanwhile: Work = nothing,
        on_window_sample: WindowSample = untold,
        on_change: Callable[[Sample], object] = bool,
        on_trouble: Callable[[UdsprobeError], object] = bool,
    ) -> None:
        self._changed, self._light_cost = on_change, LightCost(options.budget)
        self._in_trouble = on_trouble
        self._options, self._recorder, self._told = options, recorder, on_window_sample
        self._procfs, self._pressure = Procfs(), Pressure()
        self.control = Control(Bounds(options.budget, max(WINDOW_S, options.windows.interval_s)))
        self._full: Optional[Observer] = None
        self._kept_bytes: Optional[int] = None
        self._newest: Optional[_Newest] = None
        self._now: Optional[Report] = None
        self._window_recorder: Optional[WindowRecorder] = None
        self._trouble: Optional[str] = None
        self._costs, self._closing_s = Costs(0.0, 0.0), 0.0
        self._rate_in_full: Optional[float] = None
        self._kept, self._is_stopped = KeptPrograms(), False
        wanted = list(chosen)
        self._light = _base_of(wanted, options.windows, program, recorder, meanwhile)
        self.first = self._light.first
        try:
            self._open(wanted, program=program, privileges=_keeping(privileges))
        except BaseException:
            self._kept.close()
            self._light.close()
            raise

    @property
    def observation(self) -> Observation:
        """What stays the same; what light does not measure is as the newest window has it."""
        base = self._light.observation
        full = None if self._newest is None else self._newest.observation
        found = replace(base, detail="auto", measurements=auto_measurements(base, full))
        if full is not None and base.strategy == UNPROBED:
            found = replace(found, strategy=full.strategy, attach_ms=full.attach_ms)
        return found

    @property
    def has_light(self) -> bool:
        """Whether anything has a probe between full windows."""
        return self._light.observation.strategy != UNPROBED

    @property
    def last(self) -> Sample:
        """The newest sample of what is there all the time."""
        return self._light.last

    def targets_alive(self) -> int:
        """Targets that have not exited."""
        return self._light.targets_alive()

    def interval(self) -> Report:
        """What happened since the last call, or since the beginning."""
        light = self._light.interval()
        self._steer(light)
        return self._composed(light, live=True)

    def pace_s(self, interval_s: float) -> float:
        """Light is looked at less often than a window that is open."""
        return interval_s if self._full is not None else quiet_pace_s(interval_s)

    def keep_up(self) -> None:
        """Take samples and report nothing: what comes and goes has to be seen in time."""
        self._steer(self._light.interval())

    def window(self) -> Report:
        """What happened from the beginning to the last sample."""
        return self._composed(self._light.window())

    def recent(self) -> Optional[Report]:
        """The seconds that the last interval's verdict is about."""
        recent = self._light.recent()
        return None if recent is None else self._composed(recent, live=True)

    def stop(self) -> None:
        """Take the probes off; what they counted stays to be read."""
        self._is_stopped = True
        self._close_window()
        self._light.stop()

    def finish(self) -> Report:
        """Take the probes off and report the whole time."""
        self._close_window()
        return self._composed(self._light.finish())

    def close(self) -> None:
        """Give everything back."""
        if self._full is not None:
            self._full.close()
        self._kept.close()
        self._light.close()

    def _composed(self, light: Report, *, live: bool = False) -> Report:
        newest = self._newest
        window = None
        if newest is not None:
            window = FullWindow(newest.report, newest.now, self._is_fresh(newest))
        told = composed(light, window, live=live, trouble=self._trouble)
        maps_bytes = (told.probe.maps_bytes or 0) + self._full_maps_bytes()
        return replace(told, probe=replace(told.probe, maps_bytes=maps_bytes))

    def _full_maps_bytes(self) -> int:
        """Kernel memory that full detail has now, also between windows."""
        if self._full is None:
            if self._kept_bytes is None:
                self._kept_bytes = self._kept.maps_bytes
            return self._kept_bytes
        return self._full.last.probe.maps_bytes or 0

    def _is_fresh(self, newest: _Newest) -> bool:
        age_s = (self._light.last.monotonic_ns - newest.last.monotonic_ns) / 1e9
        return self.control.is_open or age_s <= 2 * self.control.period_s

    def _steer(self, light: Report) -> None:
        if self._is_stopped:
            return
        signs = list(self._pressure.signs(light, self._cpu_ns()))
        if self.has_light:
            took_s = costs.programs_s(light, costs.MESSAGE_NS)
            self._light_cost.took(took_s, light.window.duration_s)
        if self._full is None:
            rate = _rate(light)
            expected = costs.at_rate(self._costs, self._rate_in_full, rate)
            self.control.expect(expected, self._light_cost.left)
        else:
            signs += cause_of_full(self._read_window(self._full))
        wants = self.control.wants_open(self._light.last.monotonic_ns / 1e9, signs)
        if self._full is not None and not wants:
            self._close_window()
        elif self._full is None and wants and self._light.alive_pids():
            self._reopen()
        if self._full is None:
            self._keep_light_or_not()

    def _keep_light_or_not(self) -> None:
        """By what it costs. A window that is open is not disturbed."""
        at_s = self._light.last.monotonic_ns / 1e9
        if isinstance(self._light, Observer):
            if self._light_cost.is_too_much:
                self._light = self._without_light(self._light)
                self._light_cost.taken_off(at_s)
                self._changed(self._light.last)
        elif self._options.light_returns and self._light_cost.fits_again(at_s):
            self._put_light_back()

    def _without_light(self, light: Observer) -> UnprobedObserver:
        light.stop()
        found = UnprobedObserver(
            self._living(), self._options.windows, recorder=self._recorder, before=light
        )
        light.close()
        return found

    def _put_light_back(self) -> None:
        self._light_cost.put_back()
        try:
            light = _light_of(list(self._living()), self._options.windows, latecomers=self._living)
        except UdsprobeError:
            # Full windows go on, and say what is wrong where they cannot be opened either.
            return
        self._light.close()
        self._light, self.first = light, light.first
        self._changed(light.first)

    def _cpu_ns(self) -> Dict[int, int]:
        spent = {pid: self._procfs.wanted_cpu_ns(pid) for pid in self._light.alive_pids()}
        return {pid: ns for pid, ns in spent.items() if ns is not None}

    def _reopen(self) -> None:
        try:
            self._open(self._living(), latecomers=self._living)
        except UdsprobeError as error:
            if self._trouble is None:
                self._in_trouble(error)
            self._trouble = f"full windows cannot be opened any more: {error.slug}"

    def _open(
        self,
        chosen: Iterable[Chosen],
        *,
        program: Optional[Tuple[str, str]] = None,
        privileges: Optional[LeastPrivilege] = None,
        latecomers: Callable[[], Iterable[Chosen]] = tuple,
    ) -> None:
        began_s = time.process_time()
        recorder = None if self._recorder is None else self._recorder.full_window()
        try:
            full = Observer(
                chosen,
                self._options.windows,
                program=program,
                privileges=privileges,
                recorder=recorder,
                latecomers=latecomers,
                kept=self._kept,
            )
        except BaseException:
            # It is not tried again at once.
            self.control.failed(time.monotonic(), self._opening_costs(began_s))
            raise
        self.control.opened(time.monotonic(), self._opening_costs(began_s))
        self._spare_loading(full)
        self._full, self._now, self._trouble = full, None, None
        self._window_recorder = recorder
        self._told(full.observation, full.first)

    def _opening_costs(self, began_s: float) -> Costs:
        spent_s = time.process_time() - began_s + self._closing_s
        self._costs, self._closing_s = Costs(spent_s, self._costs.running_s), 0.0
        return self._costs

    def _spare_loading(self, full: Observer) -> None:
        """The next window finds its programs loaded."""
        spared_s = full.loading_s if self._kept.keeps else 0.0
        self._costs = replace(self._costs, opening_s=self._costs.opening_s - spared_s)
        self.control.expect(self._costs)

    def _living(self) -> Iterator[Chosen]:
        """The targets as they are now, children forked since the last sample included."""
        running = [each for each in self._light.last.targets if each.state == "running"]
        pids = [each.pid for each in running]
        forked = self._procfs.descendants(pids) if self._options.windows.follow else ()
        via = {**dict.fromkeys(forked, "fork"), **{each.pid: each.via for each in running}}
        ticks = {each.pid: each.start_ticks for each in running}
        for pid, how in via.items():
            process = self._procfs.process(pid)
            known = ticks.get(pid)
            if process is not None and (known is None or known == process.start_ticks):
                yield Chosen(pid, process.start_ticks, how, "full window")

    def _read_window(self, full: Observer) -> Report:
        began_s = time.process_time()
        interval = full.interval()
        own_s = time.process_time() - began_s
        self._newest = _Newest(full.observation, full.last, full.window(), interval)
        self._now = interval
        self._told(full.observation, full.last)
        self._account(interval, own_s, full.last.monotonic_ns)
        return interval

    def _account(self, interval: Report, own_s: float, at_ns: int) -> None:
        self._costs = replace(self._costs, running_s=costs.running_s(own_s, interval))
        self._rate_in_full = _rate(interval)
        if interval.window.duration_s > 0:
            self._light_cost.in_window(interval.probe.events_seen / interval.window.duration_s)
        self.control.spent(at_ns / 1e9, self._costs)

    def _close_window(self) -> None:
        full, self._full = self._full, None
        if full is None:
            return
        # What is attached to nothing stays as it is until the next window.
        self._kept_bytes = None
        began_s = time.process_time()
        now = self._now
        try:
            whole = full.finish()
            self._newest = _Newest(full.observation, full.last, whole, now or whole)
            self._told(full.observation, full.last)
        finally:
            full.close()
            self.control.closed()
            if self._window_recorder is not None:
                self._window_recorder.end()
            self._closing_s = time.process_time() - began_s


def _base_of(
    wanted: List[Chosen],
    options: ObserverOptions,
    program: Optional[Tuple[str, str]],
    recorder: Optional[Recorder],
    meanwhile: Work,
) -> ReportingObserver:
    """What is there all the time: light, or nothing with a probe where that cannot be.

    Light has tracepoints whatever full windows rest on; but where BCC is asked for, nothing else is
    loaded.
    """
    try:
        return _light_of(wanted, options, program, recorder, meanwhile)
    except KernelCannotError as error:
        if error.slug not in WITHOUT_LIGHT:
            raise
    meanwhile()
    return UnprobedObserver(wanted, options, program=program, recorder=recorder)


def _light_of(
    wanted: List[Chosen],
    options: ObserverOptions,
    program: Optional[Tuple[str, str]] = None,
    recorder: Optional[Recorder] = None,
    meanwhile: Work = nothing,
    latecomers: Callable[[], Iterable[Chosen]] = tuple,
) -> Observer:
    return Observer(
        wanted,
        ObserverOptions(
            options.interval_s,
            options.follow,
            options.slo_us,
            strategy="bcc" if options.strategy == "bcc" else "auto",
            detail="light",
        ),
        program=program,
        recorder=recorder,
        meanwhile=meanwhile,
        latecomers=latecomers,
    )


class _Newest(NamedTuple):
    """What the newest window says so far."""

    observation: Observation
    last: Sample
    report: Report
    now: Report


def _keeping(privileges: Optional[LeastPrivilege]) -> Optional[LeastPrivilege]:
    return None if privileges is None else replace(privileges, keep=TO_LOAD)


def _rate(report: Report) -> Optional[float]:
    served = report.requests.served
    return None if served is None else served.rate_per_s
