"""When full windows are open in detail auto: period, pressure that begins, bounds.

Hours are simulated: each sample's moment and signs go in, windows come out.
"""

from __future__ import annotations

from typing import Callable, Iterable, List, NamedTuple, Tuple, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from udsprobe.auto.beginnings import FORGET_S, HELD_S, WINDOWS_WITHOUT, Sign
from udsprobe.auto.control import (
    BURST,
    BURST_S,
    COVER_S,
    GOES_ON,
    PERIOD_S,
    PRESSURE,
    QUIET_S,
    RESERVED,
    SCHEDULE,
    VERDICT_S,
    Bounds,
    Control,
    Costs,
    quiet_pace_s,
)
from udsprobe.auto.reserve import HOUR_S, Reserve

CHEAP = Costs(0.001, 0.001)
# What windows took on a saturated service.
DEAR = Costs(0.35, 0.15)
QUEUE = Sign("a queue is half full")
BUSY = Sign("processes are busy")
SIGN = (QUEUE,)
Signs = Union[bool, Tuple[Sign, ...]]


class Tick(NamedTuple):
    at_s: float
    is_open: bool


def followed(
    control: Control,
    seen: Iterable[Tuple[float, Signs]],
    costs: Costs = CHEAP,
) -> List[Tick]:
    """What the control does with (moment, signs of pressure); as its user drives it."""
    ticks = []
    for at_s, pressed in seen:
        if control.is_open:
            control.spent(at_s, costs)
        signs = pressed if isinstance(pressed, tuple) else SIGN * pressed
        wants = control.wants_open(at_s, signs)
        if wants and not control.is_open:
            control.opened(at_s, costs)
        elif control.is_open and not wants:
            control.closed()
        ticks.append(Tick(at_s, control.is_open))
    return ticks


def openings(ticks: List[Tick]) -> List[float]:
    before = [Tick(0.0, False), *ticks]
    return [now.at_s for last, now in zip(before, ticks) if now.is_open and not last.is_open]


def saturated() -> Control:
    """Of a service whose windows are dear."""
    control = Control()
    control.expect(DEAR)
    return control


def hour(signs_at: Callable[[int], Signs], first_s: int = 0) -> List[Tuple[float, Signs]]:
    """One hour, a sample each second."""
    return [(float(at), signs_at(at)) for at in range(first_s, first_s + int(HOUR_S))]


def seconds_open(ticks: List[Tick], first_s: float, end_s: float) -> int:
    return sum(t.is_open for t in ticks if first_s <= t.at_s < end_s)


def quiet(until_s: int) -> List[Tuple[float, bool]]:
    return [(float(at), False) for at in range(until_s)]


def test_the_first_window_is_at_once_and_a_second_long() -> None:
    assert [t.is_open for t in followed(Control(), quiet(4))] == [True, False, False, False]


def test_one_second_in_each_thirty() -> None:
    assert openings(followed(Control(), quiet(100))) == [0.0, 30.0, 60.0, 90.0]


def test_what_is_dear_comes_less_often() -> None:
    control = Control(Bounds(budget=0.01))
    control.expect(Costs(0.4, 0.1))
    assert control.period_s == pytest.approx(100.0)
    assert openings(followed(control, quiet(301), Costs(0.4, 0.1))) == [0.0, 100.0, 200.0, 300.0]


def test_what_light_leaves_is_for_windows() -> None:
    control = Control(Bounds(budget=0.01))
    control.expect(Costs(0.4, 0.1), budget=0.005)
    assert control.period_s == pytest.approx(200.0)
    control.expect(Costs(0.4, 0.1), budget=0.01)
    assert control.period_s == pytest.approx(100.0)


def test_long_windows_come_less_often() -> None:
    assert Control(Bounds(window_s=5.0)).period_s == pytest.approx(40.0)


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


def test_what_is_over_at_once_has_a_verdict() -> None:
    ticks = followed(Control(), [(float(at), at == 12) for at in range(30)])
    assert [t.at_s for t in ticks if t.is_open and t.at_s > 1] == [
        12.0 + at for at in range(int(VERDICT_S))
    ]


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


def test_the_share_of_an_hour_is_bounded_and_comes_back() -> None:
    control = Control(Bounds(budget=1.0, full_share_max=0.02))
    # Each two minutes another pressure.
    seen = [(float(at), at % 120 < 50) for at in range(int(2.2 * HOUR_S))]
    ticks = followed(control, seen)
    assert 30 < seconds_open(ticks, 0, HOUR_S) <= 73
    assert 30 < seconds_open(ticks, HOUR_S, 2 * HOUR_S) <= 73


# pressure that begins, and pressure that goes on


def test_what_goes_on_is_looked_at_for_a_minute_and_then_by_the_schedule() -> None:
    control = Control()
    ticks = followed(control, hour(lambda _: True))
    assert HELD_S <= seconds_open(ticks, 0, 90) <= HELD_S + QUIET_S
    later = [at for at in openings(ticks) if at > 90]
    assert len(later) >= 100
    assert seconds_open(ticks, 90, HOUR_S) == len(later)
    assert control.held_back == GOES_ON


def test_saturation_for_hours_does_not_burn_the_budget() -> None:
    """What is left after four hours of it is as much as a first incident gets."""
    control = saturated()
    ticks: List[Tick] = []
    for number in range(4):
        seen = hour(lambda _: (BUSY,), number * int(HOUR_S))
        ticks += followed(control, seen, DEAR)
        assert control.used()[1] <= 36.0 + DEAR.opening_s
    # The beginning had what an incident may take; then the schedule alone.
    assert COVER_S <= seconds_open(ticks, 0, 95) <= COVER_S + QUIET_S
    for first_s in range(0, int(4 * HOUR_S), 600):
        assert 2 <= seconds_open(ticks, first_s + 180, first_s + 600) <= 8
    began_s = int(4 * HOUR_S)
    seen = [(float(at), (BUSY, QUEUE)) for at in range(began_s, began_s + 20)]
    assert all(t.is_open for t in followed(control, seen, DEAR))
    assert control.cause == PRESSURE


def incidents(at: int, every_s: int = 133, length_s: int = 20) -> Tuple[Sign, ...]:
    """27 in an hour."""
    is_one = 60 <= at % every_s < 60 + length_s
    return (QUEUE,) if is_one else ()


def covered(ticks: List[Tick], every_s: int = 133, length_s: int = 20) -> List[int]:
    """Seconds of each incident in which full detail was open."""
    begins = range(60, int(HOUR_S) - length_s, every_s)
    return [seconds_open(ticks, at, at + length_s) for at in begins]


def test_27_incidents_in_an_hour_are_covered_from_their_beginning() -> None:
    found = covered(followed(Control(), hour(incidents), Costs(0.05, 0.02)))
    assert found == [20] * 27


@pytest.mark.parametrize("steady", [(), (BUSY,)], ids=["alone", "beside old pressure"])
def test_incidents_that_cost_more_than_there_is_get_all_of_it(steady: Tuple[Sign, ...]) -> None:
    control = saturated()
    ticks = followed(control, hour(lambda at: (*steady, *incidents(at))), DEAR)
    assert 0.8 * 36.0 <= control.used()[1] <= 36.0 + DEAR.opening_s
    found = covered(ticks)
    # Not the first ones alone: of each third of the hour some have a verdict.
    for third in range(3):
        assert any(seconds >= VERDICT_S for seconds in found[9 * third : 9 * (third + 1)])
    # Half of the budget is for them.
    assert sum(found) * DEAR.running_s >= 0.4 * 18.0


def test_an_incident_beside_old_pressure_is_covered() -> None:
    ticks = followed(Control(), hour(lambda at: (BUSY, *incidents(at))), Costs(0.05, 0.02))
    assert covered(ticks) == [20] * 27


@pytest.mark.parametrize("period_s", [2, 6, 20, 90])
def test_a_sign_that_flaps_leaves_enough_for_another(period_s: int) -> None:
    control = saturated()

    def flapping(at: int) -> Tuple[Sign, ...]:
        return (BUSY,) if at % period_s < period_s / 2 else ()

    ticks = followed(control, hour(flapping), DEAR)
    assert control.used()[1] <= 36.0 + DEAR.opening_s
    if period_s < FORGET_S:
        assert len([at for at in openings(ticks) if at < HOUR_S / 2]) <= 1800 / PERIOD_S
        assert seconds_open(ticks, HELD_S + QUIET_S, HOUR_S) <= HOUR_S / PERIOD_S
    at_s = int(HOUR_S)
    seen = [(float(at), (*flapping(at), QUEUE)) for at in range(at_s, at_s + 300)]
    assert seconds_open(followed(control, seen, DEAR), at_s, at_s + 300) >= VERDICT_S


def test_what_is_much_stronger_begins_again() -> None:
    control = Control()

    def growing(at: int) -> Tuple[Sign, ...]:
        return (BUSY._replace(strength=1.0 if at < 1000 else 1.9 if at < 2000 else 2.0),)

    ticks = followed(control, hour(growing))
    assert seconds_open(ticks, 900, 2000) <= 1100 / PERIOD_S + 1
    assert seconds_open(ticks, 2000, 2060) >= HELD_S - 1


def test_what_waits_for_a_window_gets_it_when_there_is_enough_again() -> None:
    """Another incident while nothing is left, which goes on."""
    control = saturated()
    ticks = followed(control, hour(incidents), DEAR)
    held_back, at_s = [], int(HOUR_S)
    for at in range(at_s, at_s + 1200):
        ticks += followed(control, [(float(at), (BUSY,))], DEAR)
        held_back.append(control.held_back)
    assert RESERVED in held_back
    assert seconds_open(ticks, at_s, at_s + 1200) >= VERDICT_S


def test_what_only_full_detail_sees_keeps_a_scheduled_window_open_once() -> None:
    control = Control()
    sign = Sign("full detail names app-cpu", in_full=True)
    ticks: List[Tick] = []
    for at in range(600):
        ticks += followed(control, [(float(at), (sign,) if control.is_open else ())])
    assert seconds_open(ticks, 0, 100) >= HELD_S
    assert seconds_open(ticks, 100, 600) == len([at for at in openings(ticks) if at > 100])


def test_what_full_detail_does_not_see_any_more_begins_again() -> None:
    control = Control()
    sign = Sign("full detail names app-cpu", in_full=True)
    ticks: List[Tick] = []
    for at in range(600):
        is_there = at < 100 or at > 100 + PERIOD_S * (WINDOWS_WITHOUT + 1)
        signs = (sign,) if control.is_open and is_there else ()
        ticks += followed(control, [(float(at), signs)])
    assert seconds_open(ticks, 230, 330) >= HELD_S


def test_samples_that_are_far_apart_do_not_make_a_sign_new() -> None:
    control = Control(Bounds(window_s=90.0))
    ticks = followed(control, [(90.0 * n, True) for n in range(40)])
    assert sum(t.is_open for t in ticks) <= 2 + 3600 / control.period_s


@given(st.lists(st.tuples(st.floats(0.1, 300.0), st.floats(0.0, 20.0)), max_size=60))
def test_no_more_is_taken_than_there_is_in_an_hour(steps: List[Tuple[float, float]]) -> None:
    reserve, at_s, taken = Reserve(), 0.0, []
    for after_s, amount_s in steps:
        at_s += after_s
        reserve.refill(at_s, 36.0)
        if reserve.level_s >= amount_s:
            reserve.take(amount_s)
            taken.append((at_s, amount_s))
    for begin_s, _ in taken:
        within = sum(a for at, a in taken if begin_s <= at <= begin_s + HOUR_S)
        assert within <= 36.0 + 1e-6


def test_a_window_that_fails_to_open_is_not_tried_each_second() -> None:
    control, tried = Control(), []
    for at in range(100):
        if control.wants_open(float(at), SIGN):
            tried.append(at)
            control.failed(float(at), CHEAP)
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


@pytest.mark.parametrize(
    ("asked_s", "quiet_s"), [(0.1, 0.15), (1.0, 1.5), (1.2, 1.5), (2.0, 2.0), (60.0, 60.0)]
)
def test_between_windows_samples_are_further_apart(asked_s: float, quiet_s: float) -> None:
    """Of a second: still early enough to meet what begins within two."""
    assert quiet_pace_s(asked_s) == pytest.approx(quiet_s)
