"""Reports of one observation as its samples come, each with its verdict.

Live and replayed samples go through here alike, so both say the same.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Deque, List, Optional, Sequence

from udsprobe.model.difference import report
from udsprobe.model.report import Report, Verdict
from udsprobe.model.threads.target_rows import SettledRows
from udsprobe.rules import judged, over_parts
from udsprobe.sample import Observation, Sample
from udsprobe.window_parts import PartingSamples

# A verdict from one second would change with every burst.
VERDICT_WINDOW_S = 10.0


def judged_parts(
    observation: Observation, samples: Sequence[Sample], slo_us: Optional[float] = None
) -> List[Report]:
    """A judged report of the time between each sample and the next."""
    pairs = zip(samples, samples[1:])
    return [judged(report(observation, first, last), slo_us) for first, last in pairs]


class Reporter:
    """Makes a report of each interval, and of the whole window.

    Args:
        first: the sample at which the window begins.
        slo_us: the p99 that served requests should stay below; None is no limit.

    Attributes:
        recent: the report over the seconds that the last interval's verdict is about.
    """

    def __init__(
        self, observation: Observation, first: Sample, slo_us: Optional[float] = None
    ) -> None:
        self.observation = observation
        self._slo_us = slo_us
        self._first = first
        self._last = first
        self._recent: Deque[Sample] = deque([first])
        self._settled = SettledRows()
        self._before: Optional[Verdict] = None
        self.recent: Optional[Report] = None
        self._harmed_since_ns = 0
        self._parts = PartingSamples(first)

    @property
    def last(self) -> Sample:
        """The newest sample."""
        return self._last

    def add(self, sample: Sample) -> None:
        """Take one more sample in."""
        self._last = sample
        self._recent.append(sample)
        self._parts.add(sample)
        horizon_ns = sample.monotonic_ns - int(VERDICT_WINDOW_S * 1e9)
        while len(self._recent) > 2 and self._recent[1].monotonic_ns <= horizon_ns:
            self._recent.popleft()

    def interval(self, sample: Sample) -> Report:
        """What happened between the newest sample and this one; judged over the last seconds.

        A verdict holds until the figures are clearly past the limits that it rests on.
        """
        previous = self._last
        recent = self.judge(sample)
        latest = report(self.observation, previous, sample, self._settled)
        return replace(latest, verdict=recent.verdict, findings=recent.findings)

    def judge(self, sample: Sample) -> Report:
        """Take one more sample in; the report over the seconds that its verdict is about."""
        previous = self._last
        self.add(sample)
        recent = self._judged(self._recent[0], self._before)
        self._before = self._with_age(recent.verdict, previous)
        self.recent = replace(recent, verdict=self._before)
        return self.recent

    def _with_age(self, verdict: Optional[Verdict], previous: Sample) -> Optional[Verdict]:
        """How long this harm has been seen, where nothing else tells."""
        if verdict is None:
            return None
        harm = verdict.harm
        if self._before is None or self._before.harm.kind != harm.kind:
            self._harmed_since_ns = previous.monotonic_ns
        if harm.since_s is not None or harm.kind in ("none", "unknown"):
            return verdict
        since_s = (self._last.monotonic_ns - self._harmed_since_ns) / 1e9
        return replace(verdict, harm=replace(harm, since_s=since_s))

    def window(self) -> Report:
        """What happened from the first sample to the newest."""
        return self._judged(self._first)

    def whole(self) -> Report:
        """The same when no more samples come: its verdict is compared with those of its parts."""
        return over_parts(self.window(), self._parts_judged())

    def _parts_judged(self) -> List[Report]:
        return judged_parts(self.observation, self._parts.all(), self._slo_us)

    def _judged(self, first: Sample, before: Optional[Verdict] = None) -> Report:
        whole = report(self.observation, first, self._last, self._settled)
        return judged(whole, self._slo_us, before)
