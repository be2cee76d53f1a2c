"""Latency histograms: slot layout, percentiles against exact values, differences."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from math import ceil
from typing import List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.samples import latency
from udsprobe.model.histogram import (
    LATENCY_SLOTS,
    LATENCY_TOP_BITS,
    NOTHING,
    RELATIVE_ERROR,
    added,
    latency_us,
    percentiles_ns,
    slot_bounds_ns,
    slot_of,
    subtract,
)
from udsprobe.sample import LatencyCounts

TOP_NS = 1 << LATENCY_TOP_BITS
PER_MILLE = (500, 900, 990, 999)

# Powers of two apart, so that every octave is met, not only the last one.
durations_ns = st.integers(0, LATENCY_TOP_BITS).flatmap(
    lambda bits: st.integers((1 << bits) >> 1, (1 << bits) - 1)
)


def exact_percentile(values: List[int], per_mille: int) -> int:
    return sorted(values)[ceil(len(values) * per_mille / 1000) - 1]


def merged(one: LatencyCounts, other: LatencyCounts) -> LatencyCounts:
    return LatencyCounts(
        one.count + other.count,
        one.total_ns + other.total_ns,
        max(one.max_ns, other.max_ns),
        tuple(map(sum, zip(one.slots, other.slots))),
    )


def test_slots_are_contiguous_from_zero_to_the_top() -> None:
    bounds = [slot_bounds_ns(slot) for slot in range(LATENCY_SLOTS)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == TOP_NS
    assert all(below[1] == above[0] for below, above in zip(bounds, bounds[1:]))


def test_each_slot_counts_its_own_bounds() -> None:
    for slot in range(LATENCY_SLOTS):
        lower, upper = slot_bounds_ns(slot)
        assert (slot_of(lower), slot_of(upper - 1)) == (slot, slot)


@pytest.mark.parametrize(
    ("value_ns", "slot"),
    [
        (0, 0),
        (3, 0),
        (4, 1),
        (63, 15),
        (64, 16),
        (127, 31),
        (128, 32),
        (1_000, 79),
        (TOP_NS - 1, 527),
        (TOP_NS, 527),
        (2**63, 527),
    ],
)
def test_slot_of_known_durations(value_ns: int, slot: int) -> None:
    assert slot_of(value_ns) == slot


@settings(deadline=None)
@given(durations_ns)
def test_a_duration_is_inside_its_slot(value_ns: int) -> None:
    lower, upper = slot_bounds_ns(slot_of(value_ns))
    assert lower <= value_ns < upper


@settings(deadline=None)
@given(st.lists(durations_ns.filter(lambda value: value >= 64), min_size=1, max_size=300))
def test_percentiles_are_within_the_stated_error(values: List[int]) -> None:
    for per_mille, shown in zip(PER_MILLE, percentiles_ns(latency(values), PER_MILLE)):
        exact = exact_percentile(values, per_mille)
        assert shown is not None
        assert abs(shown - exact) <= RELATIVE_ERROR * exact


@settings(deadline=None)
@given(st.lists(st.integers(0, 63), min_size=1))
def test_percentiles_below_64_ns_are_within_2_ns(values: List[int]) -> None:
    for per_mille, shown in zip(PER_MILLE, percentiles_ns(latency(values), PER_MILLE)):
        assert shown is not None
        assert abs(shown - exact_percentile(values, per_mille)) <= 2


@settings(deadline=None)
@given(st.lists(durations_ns, min_size=1))
def test_percentiles_rise_and_end_at_the_maximum(values: List[int]) -> None:
    shown = percentiles_ns(latency(values), (1, *PER_MILLE, 1000))
    measured = [each for each in shown if each is not None]
    assert len(measured) == len(shown)
    assert measured == sorted(measured)
    assert measured[-1] <= max(values)


def test_one_duration_longer_than_its_slots_midpoint_is_not_exceeded() -> None:
    assert percentiles_ns(latency([1_024]), (500,)) == (1_024,)


@settings(deadline=None)
@given(st.lists(durations_ns, min_size=1))
def test_mean_count_and_maximum_are_exact_from_the_start(values: List[int]) -> None:
    shown = latency_us(subtract("x", latency(values), NOTHING))
    assert shown.count == len(values)
    assert shown.mean == pytest.approx(sum(values) / len(values) / 1000)
    assert shown.max == max(values) / 1000


def test_nothing_recorded_has_no_numbers() -> None:
    shown = latency_us(NOTHING)
    assert shown.count == 0
    assert {shown.mean, shown.p50, shown.p90, shown.p99, shown.p999, shown.max} == {None}


@settings(deadline=None)
@given(st.lists(durations_ns), st.lists(durations_ns, min_size=1))
def test_difference_is_what_was_added(before: List[int], added: List[int]) -> None:
    previous, growth = latency(before), latency(added)
    difference = subtract("x", merged(previous, growth), previous)
    assert difference.slots == growth.slots
    assert (difference.count, difference.total_ns) == (growth.count, growth.total_ns)


@settings(deadline=None)
@given(st.lists(durations_ns), st.lists(durations_ns, min_size=1))
def test_maximum_of_an_interval_is_an_upper_bound(before: List[int], added: List[int]) -> None:
    previous = latency(before)
    difference = subtract("x", merged(previous, latency(added)), previous)
    assert max(added) <= difference.max_ns
    if max(added) > previous.max_ns:
        assert difference.max_ns == max(added)
    elif max(added) >= 64:
        assert difference.max_ns <= max(added) * (1 + 2 * RELATIVE_ERROR)


def test_maximum_above_the_last_slot_is_the_longest_seen() -> None:
    previous = latency([2 * TOP_NS])
    added = latency([TOP_NS + 5])
    assert subtract("x", merged(previous, added), previous).max_ns == 2 * TOP_NS


@pytest.mark.parametrize(("max_ns_before", "max_ns"), [(0, 0), (80, 80), (0, 80)])
def test_a_reading_between_slot_and_maximum_keeps_percentiles_in_their_slot(
    max_ns_before: int, max_ns: int
) -> None:
    torn = replace(latency([5_000]), max_ns=max_ns)
    shown = latency_us(subtract("x", torn, replace(NOTHING, max_ns=max_ns_before)))
    assert shown.p50 == shown.max == slot_bounds_ns(slot_of(5_000))[0] / 1000


def test_each_percentile_is_of_its_own_rank() -> None:
    by_decade = [1_000] * 500 + [10_000] * 480 + [100_000] * 15 + [1_000_000] * 4 + [10_000_000]
    shown = latency_us(latency(by_decade))
    assert (shown.p50, shown.p90, shown.p99, shown.p999) == tuple(
        sum(slot_bounds_ns(slot_of(exact_ns))) / 2_000
        for exact_ns in (1_000, 10_000, 100_000, 1_000_000)
    )


def test_a_reading_between_count_and_slot_has_a_mean_and_no_percentiles() -> None:
    shown = latency_us(LatencyCounts(1, 7_000, 7_000, NOTHING.slots))
    assert (shown.count, shown.mean, shown.p50, shown.max) == (1, 7.0, None, 7.0)


@settings(deadline=None)
@given(st.lists(st.lists(durations_ns, max_size=20), max_size=4))
def test_histograms_added_are_that_of_all_durations(parts: List[List[int]]) -> None:
    assert added([latency(part) for part in parts]) == latency(list(chain(*parts)))


def test_nothing_added_is_nothing() -> None:
    assert added([]) == added([NOTHING, NOTHING]) == NOTHING


def test_the_same_histogram_has_grown_nothing() -> None:
    same = latency([70, 90])
    assert subtract("x", same, same) is subtract("x", same, latency([70, 90])) is NOTHING


def test_a_shrinking_histogram_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="read/unix latency went backwards"):
        subtract("read/unix latency", latency([70]), latency([70, 90]))


def test_a_duration_that_changed_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="went backwards"):
        subtract("x", latency([70, 90]), latency([80]))
