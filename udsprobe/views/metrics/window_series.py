"""Series of full windows: counters that grow only while a window is open, and how long that was.

What detail light measures comes from light, without gaps; where there is no light, from here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from udsprobe.model.report import Report
from udsprobe.sample import Sample
from udsprobe.views.metrics import catalogue as c
from udsprobe.views.metrics.listener_series import write_arrivals, write_window_events
from udsprobe.views.metrics.page import Page, Sheet
from udsprobe.views.metrics.target_series import write_refused_fds, write_threads
from udsprobe.views.metrics.traffic_series import (
    write_calls,
    write_connects,
    write_http_replies,
    write_requests,
    write_stages,
    write_unanswered,
    write_upstream,
    write_upstream_http_replies,
    write_upstream_unanswered,
)


class WindowSeries:
    """Adds up what windows counted, one window behind the other.

    Args:
        sheet: of its own; with the places of the page that these series go to.
        in_place: another, for what detail light measures where there is light.
    """

    def __init__(self, sheet: Sheet, in_place: Sheet) -> None:
        self._sheet, self._in_place = sheet, in_place
        self._last: Optional[Sample] = None
        self._observed_ns = 0

    def add(self, sample: Sample) -> None:
        """The next sample of a window; its first one has number 0."""
        if sample.sequence == 0 or self._last is None:
            self._sheet.begin_anew()
            self._in_place.begin_anew()
        else:
            self._observed_ns += sample.monotonic_ns - self._last.monotonic_ns
        self._last = sample
        write_calls(self._sheet, sample)
        write_connects(self._sheet, sample)
        if sample.served is not None:
            write_stages(self._sheet, sample.served)
        write_unanswered(self._sheet, sample)
        write_upstream_unanswered(self._sheet, sample)
        write_http_replies(self._sheet, sample)
        write_upstream_http_replies(self._sheet, sample)
        for reading in sample.listeners or ():
            write_window_events(self._sheet, reading)
        for target in sample.targets:
            write_refused_fds(self._sheet, target)
        if sample.threads is not None:
            write_threads(self._sheet, sample)
        self._sheet.close_sample()
        self._write_in_place(sample)

    def _write_in_place(self, sample: Sample) -> None:
        if sample.served is not None:
            write_requests(self._in_place, sample.served)
        for reading in sample.listeners or ():
            write_arrivals(self._in_place, reading)
        write_upstream(self._in_place, sample)
        self._in_place.close_sample()

    def observed(self, sheet: Sheet, report: Report, whole_ns: int) -> None:
        """How long each measurement was observed; the verdict is now of one, now of the other.

        Args:
            report: in detail auto, which says what is of windows.
            whole_ns: the time since attach, which is what light has observed.
        """
        for each in report.probe.measurements:
            if each.state != "off" and each.name != "verdict":
                observed_ns = whole_ns if each.coverage is None else self._observed_ns
                sheet.count(c.OBSERVED, observed_ns, (each.name,))

    def beside(self, page: Page, *, has_light: bool) -> Page:
        """The page with these series; what it has already stays as it is."""
        families = dict(self._sheet.close(page.started_unix_s, page.at_unix_s).families)
        in_place = self._in_place.close(page.started_unix_s, page.at_unix_s).families
        if not has_light:
            families.update(in_place)
        return replace(page, families={**families, **page.families})
