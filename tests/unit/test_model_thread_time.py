"""Thread time: differences, threads that come and go, numbers used again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.samples import ACTIVITIES, BOOT_NS, SECOND_NS, activities, sample, thread
from udsprobe.model.report import Time
from udsprobe.model.threads.thread_time import THREADS_SHOWN_MAX, busy_share, shares, thread_time
from udsprobe.sample import Sample, ThreadActivities


def measured(first: Sample, last: Sample) -> Time:
    found = thread_time(first, last)
    assert found is not None
    return found


def test_shares_are_of_the_window_only() -> None:
    first = sample(threads=(thread(user=9000, blocked_poll=500),))
    last = sample(1, threads=(thread(user=9300, blocked_poll=1200),))
    (row,) = measured(first, last).threads
    assert row.share == activities() | {"user": 0.3, "blocked_poll": 0.7}
    assert (row.pid, row.tid, row.comm) == (4711, 4711, "node")


@pytest.mark.parametrize("activity", ACTIVITIES)
def test_every_activity_has_a_share(activity: str) -> None:
    last = sample(1, threads=(thread(**{activity: 40}),))
    time = measured(sample(), last)
    assert time.threads[0].share[activity] == time.total[activity] == 1.0
    assert sum(time.total.values()) == 1.0
    assert list(time.total) == list(ACTIVITIES)


def test_the_total_weighs_threads_by_their_time() -> None:
    last = sample(1, threads=(thread(1, user=100), thread(2, blocked_recv=300)))
    assert measured(sample(), last).total["user"] == 0.25


def test_a_thread_that_ended_is_in_the_total_only() -> None:
    """What it had spent before the window is not in it, though the ended's sum holds that."""
    first = sample(threads=(thread(1), thread(2, user=70, blocked_lock=30)))
    last = sample(
        1,
        threads=(thread(1, blocked_poll=80),),
        exited_activity_ns=activities(user=90, blocked_lock=30),
    )
    time = measured(first, last)
    assert [row.tid for row in time.threads] == [1]
    assert time.total == activities() | {"user": 0.2, "blocked_poll": 0.8}


def test_those_that_ended_before_the_window_are_in_nothing() -> None:
    ended = activities(user=1000)
    first = sample(exited_activity_ns=ended)
    last = sample(1, threads=(thread(runq=5),), exited_activity_ns=ended)
    assert measured(first, last).total == activities() | {"runq": 1.0}


def test_a_thread_that_was_born_and_ended_in_the_window() -> None:
    last = sample(1, exited_activity_ns=activities(sys_other=7))
    time = measured(sample(), last)
    assert (time.threads, time.busiest, time.total["sys_other"]) == ([], None, 1.0)


def test_a_newborn_has_shares_of_its_own_time() -> None:
    first = sample(threads=(thread(1),))
    last = sample(1, threads=(thread(1, blocked_poll=1000), thread(2, user=3, runq=1)))
    rows = {row.tid: row.share for row in measured(first, last).threads}
    assert (rows[2]["user"], rows[2]["runq"]) == (0.75, 0.25)


def test_a_number_used_again_is_another_thread() -> None:
    """Older than the other was, and yet some activity of it is less."""
    first = sample(threads=(thread(7, user=50, blocked_lock=10),))
    last = sample(
        1,
        threads=(thread(7, user=20, blocked_lock=80),),
        exited_activity_ns=activities(user=60, blocked_lock=10),
    )
    time = measured(first, last)
    assert time.threads[0].share == activities() | {"user": 0.2, "blocked_lock": 0.8}
    assert time.total["user"] == pytest.approx((20 + 60 - 50) / (100 + 10))


def test_the_same_number_in_another_process_is_another_thread() -> None:
    first = sample(threads=(thread(7, pid=1, user=50),))
    last = sample(
        1,
        threads=(thread(7, pid=2, user=60, blocked_poll=40),),
        exited_activity_ns=activities(user=50),
    )
    assert measured(first, last).threads[0].share["user"] == 0.6


def test_a_thread_without_time_is_not_shown() -> None:
    same = thread(5, user=100)
    time = measured(sample(threads=(same,)), sample(1, threads=(same,)))
    assert (time.threads, time.busiest) == ([], None)
    assert time.total == dict.fromkeys(ACTIVITIES, 0.0)


def test_an_ended_thread_is_counted_once_even_when_it_was_seen_living() -> None:
    """It ended between two readings of one sample: the next one must not count below zero."""
    first = sample(threads=(thread(3, user=100),), exited_activity_ns=activities(user=100))
    last = sample(1, exited_activity_ns=activities(user=100))
    assert measured(first, last).total == dict.fromkeys(ACTIVITIES, 0.0)


def test_busiest_worked_or_waited_for_a_cpu_the_longest() -> None:
    last = sample(
        1,
        threads=(
            thread(1, user=SECOND_NS // 2, blocked_poll=SECOND_NS // 2),
            thread(2, runq=SECOND_NS // 2, sys_poll=SECOND_NS // 4, blocked_poll=SECOND_NS // 4),
            thread(3, blocked_lock=SECOND_NS),
        ),
    )
    time = measured(sample(), last)
    assert [row.tid for row in time.threads] == [2, 1, 3]
    assert time.busiest == time.threads[0]
    assert [busy_share(row.share) for row in time.threads] == [0.75, 0.5, 0.0]


def test_a_thread_born_a_moment_ago_is_not_the_busiest() -> None:
    last = sample(
        1,
        threads=(
            thread(1, user=SECOND_NS * 9 // 10, blocked_poll=SECOND_NS // 10),
            thread(2, user=9),
        ),
    )
    busiest = measured(sample(), last).busiest
    assert busiest is not None
    assert busiest.tid == 1


def test_of_equally_busy_threads_the_first_is_first() -> None:
    last = sample(1, threads=(thread(9, user=5), thread(8, user=5)))
    assert [row.tid for row in measured(sample(), last).threads] == [8, 9]


def test_the_busiest_fifty_are_shown_and_all_are_in_the_total() -> None:
    crowd = [thread(tid, user=tid, blocked_lock=1000 - tid) for tid in range(1, 201)]
    time = measured(sample(), sample(1, threads=tuple(crowd)))
    assert [row.tid for row in time.threads] == list(range(200, 200 - THREADS_SHOWN_MAX, -1))
    assert time.total["user"] == pytest.approx(sum(range(1, 201)) / 200_000)


def test_not_measured_is_none() -> None:
    assert thread_time(sample(), sample(1, threads=None)) is None
    assert thread_time(sample(), sample(1, exited_activity_ns=None)) is None


def test_measured_from_the_last_sample_on() -> None:
    """Nothing is known of before: everything is new."""
    first = sample(threads=None, exited_activity_ns=None)
    last = sample(1, threads=(thread(user=4),), exited_activity_ns=activities(user=4))
    assert measured(first, last).total["user"] == 1.0


def test_the_sum_of_the_ended_does_not_shrink() -> None:
    with pytest.raises(ValueError, match="ended user went backwards"):
        thread_time(sample(exited_activity_ns=activities(user=2)), sample(1))


def test_shares_of_no_time_are_zero() -> None:
    assert shares({"user": 0, "runq": 0}) == {"user": 0.0, "runq": 0.0}


def test_a_process_is_all_its_threads() -> None:
    last = sample(
        1,
        threads=(
            thread(4712, user=SECOND_NS),
            thread(4711, blocked_poll=3 * SECOND_NS),
        ),
    )
    time = measured(sample(), last)
    (process,) = time.processes
    assert (process.pid, process.comm, process.threads) == (4711, "node", 2)
    assert (process.observed_s, time.total_s) == (4.0, 4.0)
    assert process.share == activities() | {"user": 0.25, "blocked_poll": 0.75}
    assert [row.observed_s for row in time.threads] == [1.0, 3.0]


def asleep(activity: str, since_s: float, **before: int) -> Callable[[int, int], ThreadActivities]:
    """A thread that sleeps since then."""
    since_ns = BOOT_NS + round(since_s * SECOND_NS)
    return lambda tid, pid: replace(
        thread(tid, pid, **before), asleep=activity, asleep_since_ns=since_ns
    )


SLEEPS = st.builds(
    lambda since_s, activity, user: asleep(activity, since_s, user=user),
    st.sampled_from([-3.0, 0.25, 1.5]),
    st.sampled_from(ACTIVITIES[5:]),
    st.integers(0, 9),
)
WORKS = st.builds(
    lambda spent: lambda tid, pid: thread(tid, pid, **dict(zip(("user", "runq"), spent))),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
LIVES = st.lists(st.tuples(st.integers(1, 4), SLEEPS | WORKS, SLEEPS | WORKS | st.none()))


@given(LIVES)
def test_those_that_sleep_on_are_told_as_those_that_were_read_again(lives: Any) -> None:
    """The same objects in both samples, and the same numbers apart, say the same."""
    first, last, apart = [], [], []
    for tid, (pid, before, after) in enumerate(lives, 1):
        first.append(before(tid, pid))
        last.append(first[-1] if after is None else after(tid, pid))
        apart.append(replace(last[-1]))
    ended = activities(user=100, runq=100, blocked_other=100)
    began = sample(0.5, threads=tuple(first), exited_activity_ns=ended)
    ends = {"exited_activity_ns": ended}
    kept = thread_time(began, sample(2, threads=tuple(last), **ends))
    assert kept == thread_time(began, sample(2, threads=tuple(apart), **ends))


def test_a_sleep_goes_on_without_being_told_again() -> None:
    sleeper = asleep("blocked_poll", -1.0, user=5)(7, 7)
    time = measured(sample(1, threads=(sleeper,)), sample(3, threads=(sleeper,)))
    (row,) = time.threads
    assert row.share == activities() | {"blocked_poll": 1.0}
    assert (row.observed_s, time.total_s) == (2.0, 2.0)


def test_of_a_sleep_that_began_in_the_window_only_that_part_counts() -> None:
    sleeper = asleep("blocked_poll", 1.5)(7, 7)
    assert measured(sample(1, threads=(sleeper,)), sample(3, threads=(sleeper,))).total_s == 1.5
