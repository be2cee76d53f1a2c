"""What every live observation is to those that watch it, and how one is asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, List, Optional, TypeVar

from udsprobe.sample import Observation, Sample

if TYPE_CHECKING:
    from udsprobe.model.report import Report
    from udsprobe.reporting import Reporter

Observing = TypeVar("Observing", bound="LiveObserver")


@dataclass(frozen=True)
class ObserverOptions:
    """How to observe.

    Attributes:
        interval_s: between two samples.
        follow: children of targets become targets.
        slo_us: the p99 that served requests should stay below; None is no limit.
        strategy: how the kernel calls the probes, as `Tracer` takes it, or `bcc`.
        detail: how much is looked at, as `Tracer` takes it.
        stacks: `always`, `auto` (while the verdict asks for them) or `never`.
        at_end: told how many functions of the kernel have probes, before the observer takes them
            back: a tenth of a second for each.
    """

    interval_s: float
    follow: bool
    slo_us: Optional[float] = None
    strategy: str = "auto"
    detail: str = "full"
    stacks: str = "never"
    at_end: Callable[[int], object] = bool


class LiveObserver(ABC):
    """An observation that goes on until it is finished or closed.

    Attributes:
        first: the sample at the moment the targets were taken on.
    """

    first: Sample

    @property
    @abstractmethod
    def observation(self) -> Observation:
        """What stays the same from the first sample to the last."""

    @property
    @abstractmethod
    def last(self) -> Sample:
        """The newest sample."""

    @abstractmethod
    def targets_alive(self) -> int:
        """Targets that have not exited."""

    def alive_pids(self) -> List[int]:
        """PIDs of the targets that ran at the last sample."""
        return [target.pid for target in self.last.targets if target.state == "running"]

    @abstractmethod
    def interval(self) -> Report:
        """What happened since the last call, or since the beginning."""

    def pace_s(self, interval_s: float) -> float:
        """How long from the last sample to the next, of who asks for one at that interval."""
        return interval_s

    def keep_up(self) -> None:
        """Take a sample and report nothing: what comes and goes has to be seen in time."""
        self.interval()

    @abstractmethod
    def window(self) -> Report:
        """What happened from the beginning to the last sample."""

    @abstractmethod
    def recent(self) -> Optional[Report]:
        """The seconds that the last interval's verdict is about."""

    @abstractmethod
    def stop(self) -> None:
        """Take the probes off; what they counted stays to be read."""

    @abstractmethod
    def finish(self) -> Report:
        """Take the probes off and report the whole time."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""

    def __enter__(self: Observing) -> Observing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ReportingObserver(LiveObserver):
    """One whose samples all go to one reporter."""

    _reporter: Reporter

    @property
    def observation(self) -> Observation:
        return self._reporter.observation

    @property
    def last(self) -> Sample:
        return self._reporter.last

    def window(self) -> Report:
        return self._reporter.window()

    def recent(self) -> Optional[Report]:
        return self._reporter.recent

    def finish(self) -> Report:
        self.stop()
        self.keep_up()
        return self._reporter.whole()
