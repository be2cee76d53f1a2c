"""One page of metrics: what a scrape shows, and what is being written of the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, Hashable, Iterable, List, Mapping, Optional, Tuple, Union

from udsprobe.sample import LatencyCounts
from udsprobe.views.fields.escape import visible
from udsprobe.views.metrics.bounds import NS_PER_S
from udsprobe.views.metrics.catalogue import HISTOGRAM, Metric
from udsprobe.views.metrics.ledger import Labels, Ledger, Vector
from udsprobe.views.metrics.series_budget import Places

Number = Union[int, float]
Merge = Callable[[Number, Number], Number]


@dataclass(frozen=True)
class Buckets:
    """A cumulative histogram.

    Attributes:
        counts: durations in each bucket, the last one above every bound.
        sum_s: of the durations.
    """

    counts: Vector
    sum_s: float

    @property
    def count(self) -> int:
        """All durations."""
        return sum(self.counts)


Value = Union[int, float, Buckets]


@dataclass(frozen=True)
class Page:
    """Everything one sample shows.

    Attributes:
        started_unix_s, at_unix_s: when counting began; when the sample was taken.
        families: metric → its series, each label values and value. What is not
            measured is not in it.
    """

    started_unix_s: float
    at_unix_s: float
    families: Mapping[Metric, Tuple[Tuple[Labels, Value], ...]]

    def series(self) -> int:
        """Time series, as Prometheus counts them."""
        return sum(metric.series * len(rows) for metric, rows in self.families.items())


class Sheet:
    """Takes what the builders write, one sample after the other.

    Args:
        places: kind → who has a series.
    """

    def __init__(self, places: Mapping[str, Places]) -> None:
        self.places = places
        self._ledger = Ledger()
        self._gauges: Dict[Tuple[Metric, Labels], Number] = {}

    def count(
        self, metric: Metric, value: int, labels: Labels = (), source: Optional[Hashable] = None
    ) -> None:
        """A counter at `value`, nanoseconds where its unit is seconds.

        Args:
            source: who counted it, when labels do not say.
        """
        self._ledger.count(metric, labels, labels if source is None else source, value)

    def time(
        self,
        metric: Metric,
        counts: LatencyCounts,
        labels: Labels = (),
        source: Optional[Hashable] = None,
    ) -> None:
        """A histogram as the kernel half has it."""
        self._ledger.time(metric, labels, labels if source is None else source, counts)

    def gauge(
        self,
        metric: Metric,
        value: Optional[Number],
        labels: Labels = (),
        merge: Merge = lambda known, new: known + new,
    ) -> None:
        """A state, in the metric's unit; None is not measured, and not shown.

        Args:
            merge: what two with the same labels are together.
        """
        if value is not None:
            known = self._gauges.get((metric, labels))
            self._gauges[metric, labels] = value if known is None else merge(known, value)

    def begin_anew(self) -> None:
        """What is written from now on is of another observation, whose counters begin at 0."""
        self._ledger.begin_anew()

    def close_sample(self) -> None:
        """The sample is complete, and another one comes before the page."""
        self._ledger.close_sample()

    def close(self, started_unix_s: float, at_unix_s: float) -> Page:
        """The sample is complete."""
        self._ledger.close_sample()
        families: Dict[Metric, List[Tuple[Labels, Value]]] = {}
        for metric, labels, vector in self._ledger.totals():
            families.setdefault(metric, []).append((labels, _value(metric, vector)))
        for (metric, labels), number in self._gauges.items():
            families.setdefault(metric, []).append((labels, number))
        self._gauges = {}
        return Page(started_unix_s, at_unix_s, {m: tuple(rows) for m, rows in families.items()})


def shown(values: Iterable[Optional[object]]) -> Labels:
    """Label values as text: hostile characters made visible, None empty."""
    return tuple("" if value is None else visible(str(value)) for value in values)


def _value(metric: Metric, vector: Vector) -> Value:
    if metric.kind == HISTOGRAM:
        return Buckets(vector[:-1], vector[-1] / NS_PER_S)
    return vector[0] / NS_PER_S if metric.unit == "seconds" else vector[0]
