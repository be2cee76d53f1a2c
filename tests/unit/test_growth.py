"""The difference of two readings, and the row of a report, by what types say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Mapping, Optional

import pytest

from tests.unit.samples import latency, queue
from udsprobe.model.growth import by_name, growth, together
from udsprobe.model.histogram import added
from udsprobe.sample import LatencyCounts
from udsprobe.totals import Total, totals


@dataclass(frozen=True)
class Reading:
    state: int
    total: Total
    perhaps: Optional[Total]
    by_key: Optional[Mapping[str, int]]
    times: Optional[LatencyCounts]


@dataclass(frozen=True)
class Row:
    total: Optional[int]
    perhaps: Optional[int]
    by_key: Mapping[str, float]
    state: str


EARLY = Reading(7, 3, 4, {"a": 1, "b": 2}, latency([1_000]))
LATE = Reading(5, 10, 4, {"a": 1, "b": 5}, latency([1_000, 9_000]))


def test_totals_counts_by_key_and_histograms_lose_what_was_there_before() -> None:
    grew = growth("thing", LATE, EARLY)
    assert (grew.state, grew.total, grew.perhaps, grew.by_key) == (5, 7, 0, {"b": 3})
    assert grew.times is not None
    assert (grew.times.count, grew.times.total_ns) == (1, 9_000)


@pytest.mark.parametrize("first", [None, Reading(0, 0, None, None, None)])
def test_of_what_was_not_there_everything_is_new(first: Optional[Reading]) -> None:
    assert growth("thing", LATE, first) == LATE


def test_not_measured_now_is_not_measured() -> None:
    now = Reading(5, 10, None, None, None)
    grew = growth("thing", now, EARLY)
    assert (grew.perhaps, grew.by_key, grew.times) == (None, None, None)


def test_a_counter_that_went_backwards_is_named() -> None:
    with pytest.raises(ValueError, match="counter thing total went backwards"):
        growth("thing", EARLY, LATE)
    with pytest.raises(ValueError, match=r"thing by_key\[b\]"):
        growth("thing", replace(EARLY, total=10), LATE)


def test_a_row_takes_what_has_its_name_and_type() -> None:
    assert by_name(LATE, Row) == {"total": 10, "perhaps": 4}


def test_an_optional_total_is_one() -> None:
    assert totals(Reading) == ("total", "perhaps")
    assert "drops" in totals(type(queue()))


def test_readings_together_add_up_what_accumulates() -> None:
    nothing_else = replace(EARLY, perhaps=None, by_key=None, times=None)
    whole = together([None, LATE, EARLY, nothing_else])
    assert whole is not None
    assert (whole.state, whole.total, whole.perhaps) == (5, 16, 8)
    assert whole.by_key == {"a": 2, "b": 7}
    assert whole.times == added([latency([1_000]), latency([1_000, 9_000])])


def test_what_nobody_measured_stays_so_together() -> None:
    nothing = replace(EARLY, perhaps=None)
    whole = together([nothing, nothing])
    assert whole is not None and whole.perhaps is None
    assert together([None, None]) is None
    assert together([None, LATE]) is LATE
