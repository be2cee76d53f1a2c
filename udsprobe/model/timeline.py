"""Samples → a bounded number of intervals: how requests and accept queues fared over time.

Counters are cumulative, so that an interval of several samples is as exact as
one of two: its counts are all that happened, nothing is sampled away. Knows no
screen and no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from udsprobe.model.histogram import LATENCY_SLOTS, slot_bounds_ns, subtract
from udsprobe.model.report import Served
from udsprobe.model.requests.served_requests import served_requests
from udsprobe.model.sockets.listener_rows import high_water
from udsprobe.sample import Moment, Sample

INTERVALS_MAX = 240
"""Longer recordings have longer intervals."""

SLOTS_PER_BAND = 4
"""A band of the heat map is a quarter of a power of two wide."""

AnySample = Union[Sample, Moment]

_NS_PER_S = 1_000_000_000
_NS_PER_US = 1000


@dataclass(frozen=True)
class Interval:
    """What happened between two samples.

    Attributes:
        start_s, end_s: since the first sample.
        samples: how many ended in it.
        served: the requests, as in a report of the interval; None is not measured.
        slots: their latencies by slot of `udsprobe.model.histogram`; None too.
        depth_max: socket inode → most connections in its accept queue, as in the
            reports of the samples that ended in it; where no probe tells, most at
            a sample.
    """

    start_s: float
    end_s: float
    samples: int
    served: Optional[Served]
    slots: Optional[Tuple[int, ...]]
    depth_max: Mapping[int, int]


@dataclass(frozen=True)
class Timeline:
    """`start_unix_s` is the wall clock of the first sample, `samples` how many there were."""

    start_unix_s: float
    samples: int
    intervals: Sequence[Interval]


@dataclass(frozen=True)
class HeatMap:
    """Requests by latency and interval.

    Attributes:
        bounds_us: (from, to) of each band, ascending and without a gap.
        counts: for each band a count for each interval.
    """

    bounds_us: Sequence[Tuple[float, float]]
    counts: Sequence[Sequence[int]]


def timeline(
    samples: Iterable[AnySample], last: AnySample, intervals_max: int = INTERVALS_MAX
) -> Timeline:
    """The intervals of these samples, at most `intervals_max`.

    Args:
        samples: of one observation in their order, at least one. Only three
            are held at a time.
        last: the last of them.

    Raises:
        UnsoundError: a counter went backwards; the message names it.
    """
    iterator = iter(samples)
    first = previous = begin = next(iterator)
    fits = last.sequence - first.sequence <= intervals_max
    least_ns = 0 if fits else (last.monotonic_ns - first.monotonic_ns) / intervals_max
    intervals: List[Interval] = []
    depths: Dict[int, int] = {}
    taken = ended = 1
    for sample in iterator:
        taken += 1
        _deepen(depths, previous, sample)
        previous = sample
        is_over = sample.monotonic_ns - begin.monotonic_ns >= least_ns
        # The last slot may take what is too short for one of its own.
        if is_over and len(intervals) < intervals_max - 1:
            intervals.append(_interval(first, begin, sample, taken - ended, depths))
            begin, ended, depths = sample, taken, {}
    if previous is not begin:
        intervals.append(_interval(first, begin, previous, taken - ended, depths))
    return Timeline(first.unix_s, taken, tuple(intervals))


def heat_map(intervals: Sequence[Interval]) -> Optional[HeatMap]:
    """Latencies of all requests; None when there were none, or they are not measured.

    All counts of an interval add up to those of its histogram.
    """
    rows = [_banded(interval.slots) for interval in intervals]
    used = [band for band in range(_BANDS) if any(row[band] for row in rows)]
    if not used:
        return None
    bands = range(used[0], used[-1] + 1)
    return HeatMap(
        bounds_us=tuple(map(_bounds_us, bands)),
        counts=tuple(tuple(row[band] for row in rows) for band in bands),
    )


_BANDS = LATENCY_SLOTS // SLOTS_PER_BAND


def _interval(
    first: AnySample, begin: AnySample, end: AnySample, samples: int, depths: Mapping[int, int]
) -> Interval:
    start_s = (begin.monotonic_ns - first.monotonic_ns) / _NS_PER_S
    end_s = (end.monotonic_ns - first.monotonic_ns) / _NS_PER_S
    served = served_requests(begin, end, end_s - start_s)
    return Interval(start_s, end_s, samples, served, _slots(begin, end), dict(depths))


def _slots(begin: AnySample, end: AnySample) -> Optional[Tuple[int, ...]]:
    if begin.served is None or end.served is None:
        return None
    return subtract("served latency", end.served.latency, begin.served.latency).slots


def _deepen(depths: Dict[int, int], previous: AnySample, sample: AnySample) -> None:
    before = {reading.inode: reading for reading in previous.listeners or ()}
    consecutive = sample.sequence - previous.sequence == 1
    for reading in sample.listeners or ():
        depth = high_water(reading, before.get(reading.inode), consecutive)
        # Without a probe, what the sample itself saw.
        depth = reading.depth_now if depth is None else depth
        if depth is not None:
            depths[reading.inode] = max(depth, depths.get(reading.inode, 0))


def _banded(slots: Optional[Sequence[int]]) -> List[int]:
    if slots is None:
        return [0] * _BANDS
    return [sum(slots[at : at + SLOTS_PER_BAND]) for at in range(0, LATENCY_SLOTS, SLOTS_PER_BAND)]


def _bounds_us(band: int) -> Tuple[float, float]:
    lower, _ = slot_bounds_ns(band * SLOTS_PER_BAND)
    _, upper = slot_bounds_ns((band + 1) * SLOTS_PER_BAND - 1)
    return lower / _NS_PER_US, upper / _NS_PER_US
