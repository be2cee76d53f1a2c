"""Requests by process: rows of a window, what waits now, and which sleep is for answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List

import pytest

from tests.unit.samples import (
    BOOT_NS,
    SECOND_NS,
    activities,
    own_requests,
    sample,
    served,
    server,
    unmeasured_sample,
)
from udsprobe.model.report import OwnRequests, Peer, ServedBy
from udsprobe.model.requests.served_by import served_by
from udsprobe.model.requests.served_requests import app_parts_ns, served_requests
from udsprobe.sample import HttpReplyCounts, ServerReading, Waiting

MS = 1_000_000


def rows(before: List[ServerReading], after: List[ServerReading]) -> List[ServedBy]:
    found = served_by(sample(served_by=tuple(before)), sample(2, served_by=tuple(after)))
    assert found is not None
    return found


def test_not_measured_is_none() -> None:
    assert served_by(sample(), unmeasured_sample(1)) is None


def test_only_the_window_is_counted() -> None:
    before = server([MS] * 3)
    after = replace(server([MS] * 3 + [5 * MS] * 4), accept_waits=2, handed_over=1, pipelined=1)
    after = replace(after, stages_ns={**after.stages_ns, "accept_wait": 6 * MS, "recv": 8 * MS})
    (row,) = rows([before], [after])
    assert (row.pid, row.comm, row.count, row.rate_per_s) == (4711, "node", 4, 2.0)
    assert (row.latency_us.count, row.latency_us.mean, row.latency_us.max) == (4, 5000.0, 5000.0)
    assert row.latency_us.p50 is None
    stages = row.stages_mean_us
    assert (stages.accept_wait, stages.recv, stages.app, stages.send) == (3000.0, 2000.0, 5000.0, 0)
    assert (row.handed_over, row.pipelined) == (1, 1)


def test_the_busiest_first_and_the_idle_not_at_all() -> None:
    quiet = server([MS], pid=2)
    found = rows([quiet], [quiet, server([MS], pid=3), server([MS] * 2, pid=9)])
    assert [row.pid for row in found] == [9, 3]


def test_a_process_with_something_waiting_is_there() -> None:
    waiting = Waiting(2, BOOT_NS + SECOND_NS)
    (row,) = rows([], [server(unread=waiting, in_progress=waiting)])
    assert (row.unread.count, row.unread.oldest_us) == (2, 1_000_000.0)
    assert (row.in_progress.count, row.in_progress.oldest_us) == (0, None)
    assert row.stages_mean_us.app is row.latency_us.mean is row.app_time_pct is None


def test_who_ever_replied_has_requests_in_progress() -> None:
    after = server([MS], in_progress=Waiting(1, BOOT_NS + 3 * SECOND_NS))
    (row,) = rows([server([MS])], [after])
    assert (row.count, row.in_progress.count, row.in_progress.oldest_us) == (0, 1, 0)


def test_own_requests_of_the_window() -> None:
    before = server([MS], upstream=(own_requests(2, 2 * MS), own_requests(5, 5, address="@x")))
    after = server([MS], upstream=(own_requests(4, 8 * MS), own_requests(5, 5, address="@x")))
    (row,) = rows([before], [after])
    assert row.upstream == [
        OwnRequests("unix", "/run/db.sock", Peer(812, "postgres"), count=2, latency_mean_us=3000.0)
    ]


def test_how_long_answers_lay_unread() -> None:
    before = server([MS], upstream=(own_requests(2, 2 * MS, recv_wait_ns=MS),))
    after = server([MS], upstream=(own_requests(4, 8 * MS, recv_wait_ns=5 * MS),))
    assert [each.recv_wait_mean_us for each in rows([before], [after])[0].upstream] == [2000.0]


@pytest.mark.parametrize(
    ("explained", "spent", "upstream", "rest"),
    [
        (0, {"blocked_poll": 10}, 0, {"poll": 10}),
        (4, {"blocked_poll": 10, "user": 5}, 4, {"poll": 6, "cpu": 5}),
        (99, {"blocked_poll": 10, "user": 5, "blocked_disk": 3}, 10, {"cpu": 5, "disk": 3}),
        (15, {"blocked_poll": 10, "blocked_lock": 10}, 15, {"lock": 5}),
        (25, {"blocked_poll": 10, "blocked_lock": 10, "blocked_other": 9}, 25, {"other": 4}),
        # What slept in a receive call explains that much itself.
        (10, {"blocked_recv": 10, "blocked_other": 10}, 10, {"other": 10}),
        (10, {"blocked_connect": 7, "blocked_send": 1, "blocked_poll": 10}, 18, {}),
    ],
)
def test_sleep_that_own_requests_explain(
    explained: int, spent: Dict[str, int], upstream: int, rest: Dict[str, int]
) -> None:
    parts = app_parts_ns(activities(**spent), explained)
    assert {name: ns for name, ns in parts.items() if ns} == {
        **({"upstream": upstream} if upstream else {}),
        **rest,
    }


def test_requests_of_one_process_explain_nothing_in_another() -> None:
    asks = server([9], pid=1, app_activity_ns=activities(user=9), upstream_wait_ns=50)
    sleeps = server([9], pid=2, app_activity_ns=activities(blocked_poll=31))
    both = replace(served([9, 9]), app_activity_ns=activities(user=9, blocked_poll=31))
    last = sample(1, served=both, served_by=(asks, sleeps))
    found = served_requests(sample(), last, 1.0)
    assert found is not None and found.app_time_pct is not None
    assert (found.app_time_pct["poll"], found.app_time_pct["upstream"]) == (77.5, 0)
    explained = replace(sleeps, upstream_wait_ns=11)
    found = served_requests(sample(), replace(last, served_by=(asks, explained)), 1.0)
    assert found is not None and found.app_time_pct is not None
    assert (found.app_time_pct["poll"], found.app_time_pct["upstream"]) == (50.0, 27.5)


def uploads(rest_ns: int, replies: int = 4, **changes: Any) -> ServerReading:
    """Four requests of 10 ms in the application; the client takes a part of that to send them."""
    http = HttpReplyCounts(replies, 0, 0, {})
    spent = activities(user=3 * MS, blocked_disk=MS)
    reading = server([10 * MS] * 4, app_activity_ns=spent, rest_ns=rest_ns, http=http)
    return replace(reading, **changes)


def parts(reading: ServerReading) -> Dict[str, float]:
    """Of its `app` stages; the same as of the only process."""
    (row,) = rows([], [reading])
    first, last = sample(served=served()), sample(2, served=served(), served_by=(reading,))
    busy = replace(served([10 * MS] * 4), app_activity_ns=reading.app_activity_ns)
    together = served_requests(first, replace(last, served=busy), 2.0)
    assert together is not None and row.app_time_pct == together.app_time_pct
    return {name: pct for name, pct in (row.app_time_pct or {}).items() if pct}


def test_what_a_client_has_not_sent_is_no_time_of_the_thread() -> None:
    assert parts(uploads(30 * MS)) == {"client": 75.0, "cpu": 18.75, "disk": 6.25}
    assert parts(uploads(0)) == {"cpu": 75.0, "disk": 25.0}
    assert parts(uploads(41 * MS)) == {"client": 100.0}


def test_the_stages_of_those_handed_over_are_not_divided() -> None:
    assert parts(uploads(12 * MS, handed_over=2))["client"] == 75.0


def test_those_handed_over_took_what_is_not_told_of() -> None:
    """4 of 40 ms are told of, and 15 are the client's: how many requests were handed over does not
    say how long they took."""
    (row,) = rows([], [uploads(15 * MS, handed_over=1)])
    assert row.handed_over_us == 21_000.0
    (row,) = rows([], [uploads(15 * MS)])
    assert row.handed_over_us == 0.0
    (row,) = rows([], [uploads(15 * MS, handed_over=None)])
    assert row.handed_over_us is None


@pytest.mark.parametrize("unlike", ["http", "rest_ns"])
def test_where_it_is_not_known_it_is_not_told(unlike: str) -> None:
    unknown = replace(uploads(30 * MS), **{unlike: None})  # type: ignore[arg-type]
    assert parts(unknown) == {"cpu": 75.0, "disk": 25.0}


def test_other_protocols_may_ask_again_before_a_reply() -> None:
    assert parts(uploads(30 * MS, replies=3)) == {"cpu": 75.0, "disk": 25.0}
