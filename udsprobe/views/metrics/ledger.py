"""Totals that only grow, from counters whose owners come and go.

A listener's counters vanish with it, and two listeners can have one address. What each
counted since it was last seen is added to the series it belongs to.
"""

from __future__ import annotations

from typing import Dict, Hashable, Iterator, Tuple

from udsprobe.sample import LatencyCounts
from udsprobe.views.metrics.bounds import bucketed
from udsprobe.views.metrics.catalogue import Metric

Labels = Tuple[str, ...]
Vector = Tuple[int, ...]
Source = Tuple[Metric, Hashable]


class Ledger:
    """Cumulative series, read from one sample after the other."""

    def __init__(self) -> None:
        self._totals: Dict[Tuple[Metric, Labels], Vector] = {}
        self._last: Dict[Source, Vector] = {}
        self._now: Dict[Source, Tuple[Labels, Vector]] = {}
        self._buckets: Dict[Source, Tuple[LatencyCounts, Vector]] = {}
        self._buckets_now: Dict[Source, Tuple[LatencyCounts, Vector]] = {}

    def count(self, metric: Metric, labels: Labels, source: Hashable, value: int) -> None:
        """A counter of `source` stands at `value`; several of one source are added up."""
        self._see((metric, source), labels, (value,))

    def time(self, metric: Metric, labels: Labels, source: Hashable, counts: LatencyCounts) -> None:
        """The same for a histogram."""
        key = (metric, source)
        known = self._buckets.get(key)
        # Where nothing was added, the sample has the same object again.
        if known is None or known[0] is not counts:
            known = (counts, bucketed(counts, metric.bounds_ns))
        self._buckets_now[key] = known
        self._see(key, labels, known[1])

    def close_sample(self) -> None:
        """All of one sample is in: add what is new, forget who is gone. Without one: nothing."""
        if not self._now:
            return
        for source, (labels, vector) in self._now.items():
            series = (source[0], labels)
            last = self._last.get(source)
            if vector == last:
                continue
            grown = vector if last is None else tuple(map(_grown, vector, last))
            known = self._totals.get(series)
            self._totals[series] = grown if known is None else tuple(map(int.__add__, known, grown))
            self._now[source] = (labels, vector if last is None else tuple(map(max, vector, last)))
        self._last = {source: vector for source, (_, vector) in self._now.items()}
        self._now = {}
        self._buckets, self._buckets_now = self._buckets_now, {}

    def begin_anew(self) -> None:
        """Every source counts from 0 again: the next sample is of another observation."""
        self._last, self._now = {}, {}
        self._buckets, self._buckets_now = {}, {}

    def totals(self) -> Iterator[Tuple[Metric, Labels, Vector]]:
        """Every series: (value,) of a counter; buckets and the sum in ns of a histogram."""
        for (metric, labels), vector in self._totals.items():
            yield metric, labels, vector

    def _see(self, source: Source, labels: Labels, vector: Vector) -> None:
        known = self._now.get(source)
        if known is not None:
            vector = tuple(map(int.__add__, known[1], vector))
        self._now[source] = (labels, vector)


def _grown(value: int, last: int) -> int:
    # A thread that ends while it is read can be among the living and the dead, once.
    return max(0, value - last)
