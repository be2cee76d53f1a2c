"""From one sample to the next page: all series together."""

from __future__ import annotations

from typing import Optional

from udsprobe.model.report import Report
from udsprobe.sample import Observation, Sample
from udsprobe.views.metrics import catalogue as c
from udsprobe.views.metrics.listener_series import write_listeners
from udsprobe.views.metrics.page import Page, Sheet
from udsprobe.views.metrics.series_budget import MAX_SERIES_DEFAULT, places
from udsprobe.views.metrics.target_series import (
    NamespaceCounters,
    write_observation,
    write_probe,
    write_quotas,
    write_targets,
    write_verdict,
)
from udsprobe.views.metrics.traffic_series import (
    write_calls,
    write_connections,
    write_destinations,
    write_http_replies,
    write_served,
    write_traffic,
    write_unanswered,
    write_upstream_http_replies,
    write_upstream_unanswered,
)
from udsprobe.views.metrics.window_series import WindowSeries


class MetricsBook:
    """Cumulative since attach, when every counter of a sample was zero.

    Args:
        started_unix_s: when counting began.
        max_series: at most so many time series, at least `MAX_SERIES_LEAST`.
    """

    def __init__(self, started_unix_s: float, max_series: int = MAX_SERIES_DEFAULT) -> None:
        self._started_unix_s = started_unix_s
        self._max_series = max_series
        self._sheet = Sheet(places(max_series))
        self._namespaces = NamespaceCounters()
        self._windows: Optional[WindowSeries] = None
        self._first_ns: Optional[int] = None

    def began(self, first: Sample) -> None:
        """When counting began, where that was not known before."""
        self._started_unix_s, self._first_ns = first.unix_s, first.monotonic_ns

    def begin_again(self, first: Sample) -> None:
        """Counting begins anew, as at a start: in detail auto light came, or went."""
        self._sheet, self._windows = Sheet(places(self._max_series)), None
        self._namespaces = NamespaceCounters()
        self.began(first)

    def add_window_sample(self, _: Observation, sample: Sample) -> None:
        """One sample of a full window of detail auto, in their order; for the next page."""
        if self._windows is None:
            self._windows = WindowSeries(Sheet(self._sheet.places), Sheet(self._sheet.places))
        self._windows.add(sample)

    def page(self, observation: Observation, sample: Sample, report: Report) -> Page:
        """The page of one sample; samples come in their order.

        Args:
            report: of the interval that the sample ends.
        """
        sheet = self._sheet
        write_observation(sheet, observation)
        write_probe(sheet, sample)
        write_calls(sheet, sample)
        write_traffic(sheet, sample)
        if sample.served is not None:
            write_served(sheet, sample.served)
        write_unanswered(sheet, sample)
        write_upstream_unanswered(sheet, sample)
        write_http_replies(sheet, sample)
        write_upstream_http_replies(sheet, sample)
        write_listeners(sheet, sample, report)
        write_destinations(sheet, sample)
        write_connections(sheet, sample)
        write_targets(sheet, sample)
        if sample.cpu is not None:
            write_quotas(sheet, sample.cpu)
        for namespace in sample.namespaces or ():
            self._namespaces.write(sheet, namespace)
        write_verdict(sheet, report)
        sheet.gauge(c.SERIES_LIMIT, self._max_series)
        for kind, kept in sheet.places.items():
            sheet.gauge(c.FOLDED, kept.take_folded(), (kind,))
        if self._first_ns is None:
            self._first_ns = sample.monotonic_ns
        if self._windows is None:
            return sheet.close(self._started_unix_s, sample.unix_s)
        self._windows.observed(sheet, report, sample.monotonic_ns - self._first_ns)
        page = sheet.close(self._started_unix_s, sample.unix_s)
        return self._windows.beside(page, has_light=sample.served is not None)
