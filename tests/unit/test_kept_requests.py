"""Which requests are kept: the slowest of every time up to now, and no more than need be."""

from __future__ import annotations

import random
from typing import List

import pytest

from tests.unit.kept import kept
from udsprobe.kept_requests import (
    KEPT_MAX,
    SAMPLED_KEPT,
    SLOWEST_KEPT,
    highest,
    still_kept,
    told_in_samples,
)
from udsprobe.sample import KeptRequest


def made(count: int, seed: int, *, is_slow: bool) -> List[KeptRequest]:
    draw = random.Random(seed)
    ranks = [draw.randrange(1, 10_000_000) for _ in range(count)]
    return [kept(at, rank, is_slow=is_slow, text="{}") for at, rank in enumerate(ranks)]


@pytest.mark.parametrize(("is_slow", "count"), [(True, SLOWEST_KEPT), (False, SAMPLED_KEPT)])
@pytest.mark.parametrize("seed", range(5))
def test_the_highest_of_any_time_up_to_now_are_kept(seed: int, is_slow: bool, count: int) -> None:
    every = made(600, seed, is_slow=is_slow)
    now = ()
    for at in range(0, 600, 30):
        now = still_kept((*now, *every[at : at + 30]))
        for begin in range(0, at + 30, 7):
            window = every[begin : at + 30]
            told = [each for each in now if each.replied_ns >= window[0].replied_ns]
            assert highest(told, count) == highest(window, count)
    assert len(now) < 12 * count


def test_what_only_gets_quicker_is_bounded_and_the_oldest_go() -> None:
    every = [kept(at, 10_000_000 - at, text="{}") for at in range(2 * KEPT_MAX)]
    now = still_kept(every)
    assert now == tuple(every[-KEPT_MAX:])


def test_samples_have_those_of_each_minute_and_few_new_ones_a_second() -> None:
    draw, now, told = random.Random(5), (), []
    every: List[KeptRequest] = []
    for second in range(180):
        fresh = [
            kept(second * 1000 + ms, draw.randrange(1, 10_000_000), text="{}")
            for ms in range(0, 1000, 20)
        ]
        every += fresh
        now = still_kept((*now, *fresh))
        end_ns = every[-1].replied_ns
        told.append(told_in_samples(now, end_ns))
        for length_s in (60, 61, 90, 1000):
            begin_ns = end_ns - length_s * 1_000_000_000
            window = [each for each in every if each.replied_ns > begin_ns]
            shown = [each for each in told[-1] if each.replied_ns > begin_ns]
            assert highest(shown, SLOWEST_KEPT) == highest(window, SLOWEST_KEPT)
    names = {each.name for sample in told for each in sample}
    # Twenty of the first second, and then some in a second, not twenty.
    assert len(names) < 20 + 180


def test_they_are_in_the_order_of_their_replies() -> None:
    now = still_kept([*made(50, 1, is_slow=True), *made(50, 2, is_slow=False)])
    times = [each.replied_ns for each in now]
    assert times == sorted(times)
