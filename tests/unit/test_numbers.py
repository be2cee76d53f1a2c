"""Numbers keep their width, their digits and their unit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from udsprobe.views.fields import numbers

DURATIONS_US = st.floats(min_value=0, max_value=3e13, allow_nan=False)
FINITE = st.floats(min_value=0, max_value=1e15, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.004, "<.01"),
        (0.333, "0.33"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (99.96, "100"),
        (999.4, "999"),
        (999.6, "1,000"),
        (4812, "4,812"),
        (9999.4, "9,999"),
        (9999.6, "10.0k"),
        (48_230, "48.2k"),
        (999_600, "1.00M"),
        (None, "–"),
    ],
)
def test_rate(value: float, shown: str) -> None:
    assert numbers.rate(value) == shown


@pytest.mark.parametrize(
    ("value_us", "shown"),
    [
        (0, "0µs"),
        (0.3, "0.30µs"),
        (310, "310µs"),
        (999.4, "999µs"),
        (999.6, "1.00ms"),
        (2_100, "2.10ms"),
        (999_600, "1.00 s"),
        (61_000_000, "61.0 s"),
        (3.6e10, "10.0 h"),
        (None, "–"),
    ],
)
def test_duration(value_us: float, shown: str) -> None:
    assert numbers.duration(value_us) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (999, "999 B"),
        (1000, "1.00kB"),
        (96_400, "96.4kB"),
        (999_600, "1.00MB"),
        (0.3, "0.30 B"),
        (None, "–"),
    ],
)
def test_size(value: float, shown: str) -> None:
    assert numbers.size(value) == shown


def test_count_is_exact_while_it_fits() -> None:
    assert numbers.count(1_234_567) == "1,234,567"
    assert numbers.count(12_345_678) == "12.3M"
    assert numbers.count(12_345_678, 15) == "12,345,678"
    assert numbers.count(None) == "–"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.2, "0.2 s"), (1.0, "1 s"), (9.98, "9.98 s"), (725, "12 min 05 s"), (11_220, "3 h 07 min")],
)
def test_span(seconds: float, shown: str) -> None:
    assert numbers.span(seconds) == shown


@given(FINITE)
def test_widths_hold(value: float) -> None:
    assert cell_len(numbers.rate(value)) <= numbers.RATE_WIDTH
    assert cell_len(numbers.size(value)) <= numbers.BYTES_WIDTH
    assert cell_len(numbers.count(int(value), 9)) <= 9


@given(st.floats(min_value=1e-9, max_value=1e15, allow_nan=False))
def test_what_is_not_zero_never_reads_as_zero(value: float) -> None:
    assert any(digit in "123456789" for digit in numbers.rate(value))
    assert any(digit in "123456789" for digit in numbers.duration(value))
    assert any(digit in "123456789" for digit in numbers.size(value))


def test_a_unit_stays_put_near_its_boundary() -> None:
    units = numbers.SteadyUnits()
    shown = [units.duration("p99", value) for value in (990.0, 1010.0, 9_000.0, 990.0)]
    assert shown == ["990µs", "1010µs", "9000µs", "990µs"]


def test_a_unit_moves_when_it_no_longer_reads_well() -> None:
    units = numbers.SteadyUnits()
    shown = [units.duration("p99", value) for value in (990.0, 12_000.0, 1_100.0, 90.0)]
    assert shown == ["990µs", "12.0ms", "1.10ms", "90.0µs"]


@given(DURATIONS_US)
def test_durations_hold_their_width(value_us: float) -> None:
    assert cell_len(numbers.duration(value_us)) <= numbers.DURATION_WIDTH


@given(st.lists(DURATIONS_US, min_size=1, max_size=20))
def test_steady_units_hold_the_width_too(values: list[float]) -> None:
    units = numbers.SteadyUnits()
    widths = [cell_len(units.duration("here", value)) for value in values]
    assert max(widths) <= numbers.DURATION_WIDTH


def test_percentages_in_sentences() -> None:
    values = (0.0, 0.04, 3.94, 9.94, 9.96, 96.6, 100.0)
    shown = [numbers.spoken(value) for value in values]
    assert shown == ["0.0", "< 0.1", "3.9", "9.9", "10", "97", "100"]


def test_numbers_in_sentences_stand_apart_from_their_unit() -> None:
    shown = [numbers.spaced(text) for text in ("2.31ms", "310µs", "1.00 s", "512 B", "–", "<.01µs")]
    assert shown == ["2.31 ms", "310 µs", "1.00 s", "512 B", "–", "<.01 µs"]
