"""Reports of one observation as its samples come, each with its verdict.

Live and replayed samples go through here alike, so both say the same.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Deque, Optional

from udsprobe.model.difference import report
from udsprobe.model.report import Report
from udsprobe.model.target_rows import SettledRows
from udsprobe.rules import judged
from udsprobe.sample import Observation, Sample

# A verdict from one second would change with every burst.
VERDICT_WINDOW_S = 10.0


class Reporter:
    """Makes a report of each interval, and of the whole window.

    Args:
        first: the sample at which the window begins.
        slo_us: the p99 that served requests should stay below; None is no limit.
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

    @property
    def last(self) -> Sample:
        """The newest sample."""
        return self._last

    def add(self, sample: Sample) -> None:
        """Take one more sample in."""
        self._last = sample
        self._recent.append(sample)
        horizon_ns = sample.monotonic_ns - int(VERDICT_WINDOW_S * 1e9)
        while len(self._recent) > 2 and self._recent[1].monotonic_ns <= horizon_ns:
            self._recent.popleft()

    def interval(self, sample: Sample) -> Report:
        """What happened between the newest sample and this one; judged over the last seconds."""
        previous = self._last
        self.add(sample)
        latest = report(self.observation, previous, sample, self._settled)
        recent = self._judged(self._recent[0])
        return replace(latest, verdict=recent.verdict, findings=recent.findings)

    def window(self) -> Report:
        """What happened from the first sample to the newest."""
        return self._judged(self._first)

    def _judged(self, first: Sample) -> Report:
        return judged(report(self.observation, first, self._last, self._settled), self._slo_us)
