"""Whether the budget has room for light: what it costs, when it goes and when it comes back."""

from __future__ import annotations

import pytest

from udsprobe.auto.light_cost import AGAIN, AWAY_S, OVER_S, SHARE_MAX, LightCost

BUDGET = 0.01


def after(programs_s: float, seconds: int, cost: LightCost) -> LightCost:
    for _ in range(seconds):
        cost.took(programs_s, 1.0)
    return cost


def test_what_light_takes_is_not_there_for_windows() -> None:
    cost = after(0.4 * BUDGET, int(10 * OVER_S), LightCost(BUDGET))
    assert cost.left == pytest.approx(0.6 * BUDGET, rel=0.01)
    assert not cost.is_too_much


def test_a_burst_does_not_take_light_off() -> None:
    assert not after(3 * BUDGET, 5, LightCost(BUDGET)).is_too_much


def test_a_rate_that_costs_more_than_light_may_does() -> None:
    cost = after(1.5 * BUDGET, int(OVER_S), LightCost(BUDGET))
    assert cost.is_too_much
    assert cost.left == pytest.approx((1 - SHARE_MAX) * BUDGET)


def off(events_per_s: float) -> LightCost:
    """Light took the whole budget at so many events."""
    cost = after(BUDGET, int(20 * OVER_S), LightCost(BUDGET))
    cost.in_window(events_per_s)
    cost.taken_off(0.0)
    return cost


def test_while_light_is_off_windows_have_everything() -> None:
    cost = off(10_000.0)
    assert cost.left == BUDGET
    assert not cost.is_too_much


@pytest.mark.parametrize(
    ("share", "fits"), [(1.0, False), (1.1 * AGAIN * SHARE_MAX, False), (0.3, True), (0.0, True)]
)
def test_it_comes_back_at_a_rate_that_is_clearly_lower(share: float, fits: bool) -> None:
    cost = off(10_000.0)
    cost.in_window(share * 10_000.0)
    assert not cost.fits_again(AWAY_S - 1)
    assert cost.fits_again(AWAY_S) == fits


def test_where_nothing_tells_it_is_tried() -> None:
    cost = after(BUDGET, int(20 * OVER_S), LightCost(BUDGET))
    cost.taken_off(0.0)
    assert cost.fits_again(AWAY_S)
    cost.put_back()
    assert not cost.fits_again(2 * AWAY_S)
