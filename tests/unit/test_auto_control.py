"""When full windows are open in detail auto: period, pressure, bounds."""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from udsprobe.auto.control import (
    BURST,
    BURST_S,
    HOUR_S,
    PERIOD_S,
    PRESSURE,
    QUIET_S,
    SCHEDULE,
    Bounds,
    Control,
    Costs,
)

CHEAP = Costs(0.001, 0.001)
SIGN = ("a queue is half full",)


class Tick(NamedTuple):
    at_s: float
    is_open: bool


def followed(
    control: Control,
    seen: Iterable[Tuple[float, bool]],
    costs: Costs = CHEAP,
) -> List[Tick]:
    """What the control does with (moment, whether there is pressure); as its user drives it."""
    ticks = []
    for at_s, pressed in seen:
        if control.is_open:
            control.spent(at_s, costs)
        wants = control.wants_open(at_s, SIGN if pressed else ())
        if wants and not control.is_open:
            control.opened(at_s, costs)
        elif control.is_open and not wants:
            control.closed()
        ticks.append(Tick(at_s, control.is_open))
    return ticks


def openings(ticks: List[Tick]) -> List[float]:
    before = [Tick(0.0, False), *ticks]
    return [now.at_s for last, now in zip(before, ticks) if now.is_open and not last.is_open]


def quiet(until_s: int) -> List[Tuple[float, bool]]:
    return [(float(at), False) for at in range(until_s)]


def test_the_first_window_is_at_once_and_a_second_long() -> None:
    assert [t.is_open for t in followed(Control(), quiet(4))] == [True, False, False, False]


def test_one_second_in_each_thirty() -> None:
    assert openings(followed(Control(), quiet(100))) == [0.0, 30.0, 60.0, 90.0]


def test_what_is_dear_comes_less_often() -> None:
    control = Control(Bounds(budget=0.01))
    control.expect(Costs(0.6, 0.15))
    assert control.period_s == pytest.approx(100.0)
    assert openings(followed(control, quiet(301), Costs(0.6, 0.15))) == [0.0, 100.0, 200.0, 300.0]


def test_a_longer_window_is_that_long() -> None:
    control = Control(Bounds(window_s=5.0))
    ticks = followed(control, [(5.0 * n, False) for n in range(4)])
    assert [t.is_open for t in ticks] == [True, False, False, False]


def test_pressure_opens_at_once_and_quiet_closes() -> None:
    seen = [(float(at), 12 <= at < 20) for at in range(40)]
    ticks = followed(Control(), seen)
    assert openings(ticks) == [0.0, 12.0]
    last = max(t.at_s for t in ticks if t.is_open)
    assert last == 19.0 + QUIET_S - 1.0


def test_pressure_right_behind_a_scheduled_window() -> None:
    seen = [(float(at), at >= 2) for at in range(5)]
    assert openings(followed(Control(), seen)) == [0.0, 2.0]


def test_pressure_in_a_scheduled_window_keeps_it_open() -> None:
    control = Control()
    ticks = followed(control, [(0.0, False), (0.5, True), (1.0, True), (3.0, True)])
    assert all(t.is_open for t in ticks)
    assert control.cause == PRESSURE


def test_the_cause_is_told() -> None:
    control = Control()
    control.wants_open(0.0, ())
    control.opened(0.0, CHEAP)
    assert control.cause == SCHEDULE
    control.closed()
    assert control.cause is None


def test_budget_ends_what_pressure_began_and_says_so() -> None:
    control = Control(Bounds(budget=0.001))
    seen = [(float(at), True) for at in range(100)]
    ticks = followed(control, seen, Costs(0.5, 0.5))
    # 3.6 CPU seconds: half a one to open, and the rest at half a one each second.
    assert sum(t.is_open for t in ticks) == 7
    assert control.held_back == "the budget of 0.1 % of a CPU is used up for now"


def test_the_share_of_an_hour_is_bounded_and_comes_back() -> None:
    control = Control(Bounds(budget=1.0, full_share_max=0.01))
    seen = [(float(at), True) for at in range(int(2.2 * HOUR_S))]
    ticks = followed(control, seen)
    first = sum(t.is_open for t in ticks if t.at_s < HOUR_S)
    assert first == 36
    assert any(t.is_open for t in ticks if t.at_s > HOUR_S + 100)


def test_a_window_that_fails_to_open_is_not_tried_each_second() -> None:
    control, tried = Control(), []
    for at in range(100):
        if control.wants_open(float(at), SIGN):
            tried.append(at)
            control.opened(float(at), CHEAP)
            control.closed()
    assert all(sum(first <= other < first + BURST_S for other in tried) <= BURST for first in tried)


@st.composite
def days(draw: st.DrawFn) -> List[Tuple[float, bool]]:
    """Moments of samples, some late, with pressure for stretches."""
    at_s, seen = 0.0, []
    for _ in range(draw(st.integers(1, 40))):
        pressed = draw(st.booleans())
        every_s = draw(st.sampled_from([0.1, 1.0, 5.0, 60.0]))
        for _ in range(draw(st.integers(1, 60))):
            seen.append((at_s, pressed))
            at_s += every_s
    return seen


COSTS = st.builds(Costs, st.floats(0.001, 3.0), st.floats(0.0, 1.0))


@given(days(), COSTS, st.floats(0.001, 0.5), st.floats(0.01, 1.0))
def test_bounds_hold_whatever_comes(
    seen: List[Tuple[float, bool]], costs: Costs, budget: float, share: float
) -> None:
    control = Control(Bounds(budget, 1.0, share))
    steps = max((b[0] - a[0] for a, b in zip(seen, seen[1:])), default=0.0)
    before = Tick(0.0, False)
    opened: List[float] = []
    for tick in seen:
        (now,) = followed(control, [tick], costs)
        open_s, cpu_s = control.used()
        # The window that crosses a bound is seen to do so at the next sample.
        assert open_s <= share * HOUR_S + steps + 1e-6
        assert cpu_s <= budget * HOUR_S + costs.opening_s + costs.running_s * steps + 1e-6
        if now.is_open and not before.is_open:
            opened.append(now.at_s)
        before = now
    for at in opened:
        assert sum(at <= other < at + BURST_S - 1e-6 for other in opened) <= BURST


@given(days())
def test_without_pressure_windows_come_no_more_often_than_the_period(
    seen: List[Tuple[float, bool]],
) -> None:
    control = Control()
    found = openings(followed(control, [(at, False) for at, _ in seen]))
    assert all(b - a >= PERIOD_S - 1e-6 for a, b in zip(found, found[1:]))


@given(days())
def test_pressure_is_followed_by_full_detail_or_a_reason(seen: List[Tuple[float, bool]]) -> None:
    control = Control()
    for at_s, pressed in seen:
        (tick,) = followed(control, [(at_s, pressed)])
        if pressed:
            assert tick.is_open or control.held_back or control.used()[1] >= 36.0
