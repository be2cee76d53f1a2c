"""Served requests: stages, what `app` consists of, and whether turns are taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from tests.unit.samples import ACTIVITIES, activities, latency, sample, served
from udsprobe.model.report import Served
from udsprobe.model.requests.served_requests import APP_PARTS, served_requests
from udsprobe.sample import ServedCounts

PARTS = ("cpu", "runq", "upstream", "lock", "disk", "poll", "other")


def measured(before: ServedCounts, after: ServedCounts, elapsed_s: float = 2.0) -> Served:
    found = served_requests(sample(served=before), sample(2, served=after), elapsed_s)
    assert found is not None
    return found


def test_only_the_window_is_counted() -> None:
    before = served([1_000_000] * 3)
    after = served([1_000_000] * 3 + [5_000_000] * 4)
    found = measured(before, after)
    assert (found.count, found.rate_per_s) == (4, 2.0)
    assert (found.latency_us.count, found.latency_us.mean) == (4, 5000.0)
    assert found.stages_us.app is not None
    assert (found.stages_us.app.count, found.stages_us.app.mean) == (4, 5000.0)


def test_each_stage_has_its_own_latency() -> None:
    times = {
        name: latency([at * 1000] * at)
        for at, name in enumerate(("accept_wait", "recv_wait", "recv", "app", "send"), 1)
    }
    stages = measured(served(), replace(served([9]), stages=times)).stages_us
    found = [stages.accept_wait, stages.recv_wait, stages.recv, stages.app, stages.send]
    assert [(each.count, each.mean) for each in found if each] == [
        (at, float(at)) for at in range(1, 6)
    ]


def test_a_stage_this_kernel_does_not_tell_is_none() -> None:
    counts = replace(served([9]), stages={"app": latency([9])})
    stages = measured(replace(served(), stages={"app": latency()}), counts).stages_us
    assert stages.app is not None
    assert stages.recv_wait is stages.recv is stages.send is stages.accept_wait is None


def test_the_stages_of_no_request_are_empty_and_not_missing() -> None:
    found = measured(served([9]), served([9]))
    assert found.stages_us.recv is not None
    assert (found.count, found.stages_us.recv.count, found.stages_us.recv.mean) == (0, 0, None)
    assert found.app_time_pct is None
    assert found.turn_based is None


@pytest.mark.parametrize("activity", ACTIVITIES)
def test_every_activity_is_a_part_of_app(activity: str) -> None:
    after = replace(served([9]), app_activity_ns=activities(**{activity: 9}))
    parts = measured(served(), after).app_time_pct
    assert parts == {**dict.fromkeys(PARTS, 0.0), APP_PARTS[activity]: 100.0}


def test_app_time_is_of_the_window() -> None:
    before = replace(served([9]), app_activity_ns=activities(user=900, blocked_lock=10))
    spent = activities(user=900 + 30, sys_socket=20, blocked_lock=10 + 150)
    parts = measured(before, replace(served([9, 9]), app_activity_ns=spent)).app_time_pct
    assert parts == {**dict.fromkeys(PARTS, 0.0), "cpu": 25.0, "lock": 75.0}


def test_requests_handed_over_leave_nothing_to_divide() -> None:
    after = replace(served([9]), app_activity_ns=activities(), handed_over=1)
    assert measured(served(), after).app_time_pct is None


@pytest.mark.parametrize(("pipelined", "turn_based"), [(0, True), (2, True), (3, False)])
def test_more_than_one_in_a_hundred_sent_ahead_is_no_turn_taking(
    pipelined: int, turn_based: bool
) -> None:
    after = replace(served([9] * 200), pipelined=pipelined)
    assert measured(served(), after).turn_based is turn_based


@pytest.mark.parametrize(("multiplexed", "turn_based"), [(None, True), (0, True), (200, False)])
def test_turns_of_http2_are_no_requests(multiplexed: Optional[int], turn_based: bool) -> None:
    before = replace(served(), multiplexed=None if multiplexed is None else 0)
    found = measured(before, replace(served([9] * 200), multiplexed=multiplexed))
    assert (found.turn_based, found.multiplexed) == (turn_based, multiplexed)


def test_streams_of_http2_are_requests() -> None:
    before = replace(served(), multiplexed=0, streams=5)
    found = measured(before, replace(served([9] * 200), multiplexed=0, streams=205))
    assert (found.turn_based, found.multiplexed, found.streams) == (True, 0, 200)


def test_tls_handshakes_are_counted_beside_the_requests() -> None:
    after = replace(served([9] * 20), tls_handshakes=7)
    assert measured(replace(served(), tls_handshakes=4), after).tls_handshakes == 3
    assert measured(replace(served(), tls_handshakes=None), after).tls_handshakes is None


def test_pipelining_before_the_window_is_not_held_against_it() -> None:
    before = replace(served([9] * 10), pipelined=10)
    after = replace(served([9] * 20), pipelined=10)
    assert measured(before, after).turn_based is True


def test_a_window_without_length_has_no_rate() -> None:
    assert measured(served(), served([9]), elapsed_s=0.0).rate_per_s is None


def test_not_measured_is_none() -> None:
    assert served_requests(sample(served=None), sample(1), 1.0) is None
    assert served_requests(sample(), sample(1, served=None), 1.0) is None


def test_a_counter_that_shrinks_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="app user went backwards"):
        measured(served([9]), replace(served([9, 9]), app_activity_ns=activities()))
