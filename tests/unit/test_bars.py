"""A bar says where the limit is and how far it is; a sparkline says how it went."""

from __future__ import annotations

from typing import List, Optional

from hypothesis import given
from hypothesis import strategies as st

from udsprobe.views.fields.bars import (
    Part,
    limit_bar,
    share_bar,
    sparkline,
    stacked_bar,
    steady_ceiling,
)

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


SHARES = st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=13)


def parts(*shares: float) -> List[Part]:
    return [Part(f"p{n}", share, "█░"[n % 2]) for n, share in enumerate(shares)]


def test_a_wide_part_is_named_inside_and_a_narrow_one_beside() -> None:
    bar, beside = stacked_bar(parts(0.9, 0.1), 22, 20)
    assert bar == "▕" + " p0 90.0 ".center(18, "█") + "░░▏"
    assert beside == "p1 10.0"


def test_equal_fills_are_divided() -> None:
    both = [Part("a", 0.5, "░"), Part("b", 0.5, "░")]
    assert stacked_bar(both, 22, 20) == ("▕░ a 50.0 ░│░ b 50.0 ▏", "")


def test_the_smallest_are_left_out_of_a_list_that_is_too_long() -> None:
    _, beside = stacked_bar(parts(0.94, 0.01, 0.03, 0.02), 30, 17)
    assert beside == "p2 3.0 · p3 2.0"


@given(SHARES, st.integers(min_value=20, max_value=200))
def test_a_stacked_bar_is_filled_and_nobody_vanishes(shares: List[float], width: int) -> None:
    whole = sum(shares)
    cut = parts(*(share / whole for share in shares)) if whole else parts(*shares)
    bar, beside = stacked_bar(cut, width, 1000)
    assert len(bar) == width
    for part in cut:
        if part.share >= 0.0005:
            assert f"{part.name} " in bar + beside


@given(st.integers(min_value=0, max_value=1000))
def test_a_share_is_empty_only_at_zero(part: int) -> None:
    bar = share_bar(part, 1000, 10)
    assert len(bar) == 10
    assert (bar.strip() == "") == (part == 0)
    assert (bar == "█" * 10) == (part == 1000)
