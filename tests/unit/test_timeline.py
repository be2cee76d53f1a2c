"""Samples as a bounded number of intervals: nothing is lost, and nothing is added."""

from __future__ import annotations

from typing import List, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit import recordings, samples
from udsprobe.model.difference import report
from udsprobe.model.histogram import latency_us, subtract
from udsprobe.model.timeline import HeatMap, Timeline, heat_map, timeline
from udsprobe.sample import Sample


def told(taken: Sequence[Sample], most: int = 240) -> Timeline:
    return timeline(iter(taken), taken[-1], most)


def counts_of(shown: HeatMap) -> List[int]:
    return [sum(column) for column in zip(*shown.counts)]


def test_short_recordings_have_the_intervals_of_their_reports() -> None:
    taken = list(recordings.service(30))
    line = told(taken)
    live = recordings.intervals(taken)
    assert line.samples == 30 and line.start_unix_s == taken[0].unix_s
    assert [each.served for each in line.intervals] == [each.requests.served for each in live]
    depths = [[row.depth.max for row in each.listeners or ()] for each in live]
    assert [list(each.depth_max.values()) for each in line.intervals] == depths


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(1, 70))
def test_long_ones_are_thinned_and_lose_nothing(count: int, most: int) -> None:
    taken = list(recordings.service(count))
    line = told(taken, most)
    least = count - 1 if count - 1 <= most else most // 2
    assert least <= len(line.intervals) <= min(most, count - 1)
    assert sum(each.samples for each in line.intervals) == count - 1
    for before, after in zip(line.intervals, line.intervals[1:]):
        assert before.end_s == after.start_s
    every = [0 if each.served is None else each.served.count for each in line.intervals]
    whole = report(samples.observation(), taken[0], taken[-1]).requests.served
    assert whole is not None and sum(every) == whole.count
    deepest = [max(each.depth_max.values()) for each in line.intervals]
    finest = [max(each.depth_max.values()) for each in told(taken).intervals]
    assert max(deepest, default=0) == max(finest, default=0)


def test_the_heat_map_has_the_histograms_counts() -> None:
    taken = list(recordings.service(50))
    line = told(taken, 9)
    shown = heat_map(line.intervals)
    assert shown is not None
    served = [each.served for each in line.intervals]
    assert counts_of(shown) == [each.latency_us.count for each in served if each is not None]
    assert taken[0].served is not None and taken[-1].served is not None
    whole = subtract("served", taken[-1].served.latency, taken[0].served.latency)
    for (low_us, high_us), counts in zip(shown.bounds_us, shown.counts):
        durations = [1_000 + 37 * each for each in range(50)]
        assert sum(counts) == sum(low_us * 1000 <= ns < high_us * 1000 for ns in durations) - (
            low_us * 1000 <= durations[0] < high_us * 1000
        )
    assert sum(map(sum, shown.counts)) == whole.count == latency_us(whole).count


def test_bands_touch() -> None:
    shown = heat_map(told(list(recordings.service(40))).intervals)
    assert shown is not None and len(shown.counts) == len(shown.bounds_us) > 2
    assert all(a[1] == b[0] for a, b in zip(shown.bounds_us, shown.bounds_us[1:]))
    assert any(shown.counts[0]) and any(shown.counts[-1])


def test_what_is_not_measured_is_none() -> None:
    line = told([samples.unmeasured_sample(0.0), samples.unmeasured_sample(1.0)])
    assert [(each.served, each.slots, each.depth_max) for each in line.intervals] == [
        (None, None, {})
    ]
    assert heat_map(line.intervals) is None


def test_a_queue_without_a_probe_is_what_samples_saw() -> None:
    depths = (3, 9, 4, 1)
    taken = [
        samples.sample(at, listeners=(samples.listener(queue=None, depth_now=depth),))
        for at, depth in enumerate(depths)
    ]
    (only,) = told(taken, 1).intervals
    assert list(only.depth_max.values()) == [9]


def test_one_sample_is_no_interval() -> None:
    assert told([samples.sample()]).intervals == ()


def test_a_gap_is_one_long_interval() -> None:
    taken = [samples.sample(at) for at in (0.0, 1.0, 2.0, 100.0, 101.0)]
    starts = [each.start_s for each in told(taken, 200).intervals]
    assert starts == [0.0, 1.0, 2.0, 100.0]


def test_a_counter_that_went_backwards_is_no_page() -> None:
    taken = [samples.sample(0.0, served=samples.served([5])), samples.sample(1.0)]
    with pytest.raises(ValueError, match="backwards"):
        told(taken)
