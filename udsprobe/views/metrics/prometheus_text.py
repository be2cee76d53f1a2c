"""A page of metrics in Prometheus' text format, by its own client library."""

from __future__ import annotations

from itertools import accumulate
from typing import Callable, Iterator, List, Optional, Tuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from udsprobe.views.metrics import catalogue
from udsprobe.views.metrics.bounds import bounds_s
from udsprobe.views.metrics.ledger import Labels
from udsprobe.views.metrics.page import Buckets, Page, Value

Rows = Tuple[Tuple[Labels, Value], ...]


class PageCollector(Collector):
    """What prometheus_client asks at a scrape.

    Args:
        newest: the page to show; None before the first.
    """

    def __init__(self, newest: Callable[[], Optional[Page]]) -> None:
        self._newest = newest

    def describe(self) -> List[Metric]:
        """Nothing in advance: what is not measured is not there."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The newest page."""
        page = self._newest()
        return iter(()) if page is None else families(page)


def families(page: Page) -> Iterator[Metric]:
    """The page's metrics as prometheus_client's."""
    for metric, rows in page.families.items():
        if metric.kind == catalogue.HISTOGRAM:
            yield _histogram(metric, rows)
        else:
            yield _plain(metric, rows)


def _plain(metric: catalogue.Metric, rows: Rows) -> Metric:
    kind = CounterMetricFamily if metric.kind == catalogue.COUNTER else GaugeMetricFamily
    family = kind(metric.prometheus, metric.help, labels=metric.labels)
    for labels, value in rows:
        assert not isinstance(value, Buckets)
        family.add_metric(labels, value)
    return family


def _histogram(metric: catalogue.Metric, rows: Rows) -> Metric:
    family = HistogramMetricFamily(metric.prometheus, metric.help, labels=metric.labels)
    bounds = [*map(repr, bounds_s(metric.bounds_ns)), "+Inf"]
    for labels, value in rows:
        assert isinstance(value, Buckets)
        buckets = list(zip(bounds, accumulate(value.counts)))
        family.add_metric(labels, buckets, sum_value=value.sum_s)
    return family
