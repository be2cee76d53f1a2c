"""A bar says where the limit is and how far it is; a sparkline says how it went."""

from __future__ import annotations

from typing import Optional

from hypothesis import given
from hypothesis import strategies as st

from udsprobe.views.bars import limit_bar, sparkline, steady_ceiling

COUNTS = st.integers(min_value=0, max_value=70_000)


def test_limit_bar() -> None:
    assert limit_bar(0, 129, 10) == "▕        ▏"
    assert limit_bar(64, 128, 10) == "▕████    ▏"
    assert limit_bar(129, 129, 10) == "▕████████▏"
    assert limit_bar(None, 129, 10) == "▕········▏"
    assert limit_bar(3, None, 10) == "▕········▏"


def test_limit_bar_marks_the_high_water() -> None:
    assert limit_bar(32, 128, 10, peak=96) == "▕██    ╎ ▏"
    assert limit_bar(32, 128, 10, peak=128) == "▕██     ╎▏"
    assert limit_bar(32, 128, 10, peak=32) == "▕██      ▏"


@given(COUNTS, st.integers(min_value=1, max_value=70_000), st.integers(min_value=3, max_value=40))
def test_limit_bar_is_full_only_at_the_limit_and_empty_only_at_zero(
    now: int, limit: int, width: int
) -> None:
    bar = limit_bar(now, limit, width)
    assert len(bar) == width
    assert (bar == "▕" + "█" * (width - 2) + "▏") == (now >= limit)
    assert (bar[1:-1].strip() == "") == (now == 0)


def test_sparkline_has_gaps_where_nothing_was_measured() -> None:
    assert sparkline([0.0, 50.0, None, 100.0], 6, 100.0) == "  ▁▅ █"
    assert sparkline([1.0, 100.0], 1, 100.0) == "█"


@given(st.lists(st.one_of(st.none(), st.floats(min_value=0, max_value=1e12)), max_size=20))
def test_the_ceiling_is_round_and_near(values: list[Optional[float]]) -> None:
    ceiling = steady_ceiling(values)
    largest = max((value for value in values if value), default=0.0)
    assert ceiling >= largest
    assert largest == 0 or ceiling <= 2 * largest
