"""Signs that something which should come does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest

from tests.unit.test_light import light_report
from udsprobe.auto.beginnings import Sign
from udsprobe.auto.missing import PAST_MIN, UNANSWERED_US_MIN, Missing
from udsprobe.model.report import Latency, Report, ServedBy, StageMeans, Upstream, Waiting

NOBODY = Waiting(0, None)


def quiet() -> Report:
    base = light_report()
    requests = replace(base.requests, served_by=[], upstream=[])
    return replace(base, listeners=[], requests=requests)


def signs(missing: Missing, interval: Report, usual_us: Optional[float] = None) -> list[Sign]:
    return list(missing.signs(interval, usual_us))


# replies


def process(**waiting: Waiting) -> ServedBy:
    nothing = dict.fromkeys(("in_progress", "unread", "asking"), NOBODY)
    fields: dict[str, Any] = {**nothing, **waiting}
    return ServedBy(
        pid=7,
        comm="app",
        count=0,
        rate_per_s=0.0,
        latency_us=Latency(count=0, mean=None, p50=None, p99=None, max=None),
        stages_mean_us=StageMeans(None, None, None, None, None),
        app_time_pct=None,
        handed_over=None,
        pipelined=None,
        upstream=[],
        **fields,
    )


def with_processes(*rows: ServedBy) -> Report:
    base = quiet()
    return replace(base, requests=replace(base.requests, served_by=list(rows)))


@pytest.mark.parametrize("where", ["in_progress", "unread"])
def test_a_request_that_waits_for_half_a_second_is_one(where: str) -> None:
    for oldest_us, expected in (
        (UNANSWERED_US_MIN - 1, []),
        (UNANSWERED_US_MIN, [Sign("requests wait for their replies", 3)]),
    ):
        row = process(**{where: Waiting(3, oldest_us)})
        assert signs(Missing(), with_processes(row, process())) == expected


def test_where_requests_take_long_one_may_wait_as_long() -> None:
    interval = with_processes(process(in_progress=Waiting(1, 4_900_000.0)))
    assert signs(Missing(), interval, 200_000.0)
    assert not signs(Missing(), interval, 1_000_000.0)


def test_what_the_target_waits_for_is_none() -> None:
    assert not signs(Missing(), with_processes(process(asking=Waiting(1, 60e6))))


# accepts


def with_depth(now: int) -> Report:
    base = quiet()
    (row, *_) = light_report().listeners or ()
    return replace(base, listeners=[replace(row, depth=replace(row.depth, now=now, max=now))])


def test_a_queue_that_is_not_emptied_between_two_samples_is_one() -> None:
    missing = Missing()
    assert [bool(signs(missing, with_depth(now))) for now in (2, 0, 1, 1, 2, 5, 1)] == [
        *(False, False, False, False, False, True, False)
    ]


# requests to an upstream


def with_upstream(served: int, asked: int, address: str = "/run/db.sock") -> Report:
    base = quiet()
    assert base.requests.served is not None
    no_latency = Latency(count=asked, mean=None, p50=None, p99=None, max=None)
    rows = [Upstream("unix", address, None, asked, no_latency)] if asked else []
    requests = replace(
        base.requests, served=replace(base.requests.served, count=served), upstream=rows
    )
    return replace(base, requests=requests)


def test_an_upstream_that_is_hardly_asked_any_more_is_one() -> None:
    missing = Missing()
    for _ in range(PAST_MIN):
        assert not signs(missing, with_upstream(100, 50))
    assert not signs(missing, with_upstream(100, 13))
    assert not signs(missing, with_upstream(200, 100))
    assert signs(missing, with_upstream(100, 12)) == [
        Sign("/run/db.sock is asked less than before")
    ]
    assert signs(missing, with_upstream(100, 0))


def test_fewer_requests_ask_less() -> None:
    missing = Missing()
    for _ in range(PAST_MIN):
        signs(missing, with_upstream(1000, 500))
    # Too few to say, as many as before of each, and too little past.
    for interval in (with_upstream(19, 0), with_upstream(30, 0), with_upstream(100, 50)):
        assert not signs(missing, interval)
    other = Missing()
    signs(other, with_upstream(1000, 500))
    assert not signs(other, with_upstream(1000, 0))


def test_an_upstream_that_is_gone_for_long_is_forgotten() -> None:
    missing = Missing()
    for _ in range(PAST_MIN):
        signs(missing, with_upstream(100, 50))
    seen = [bool(signs(missing, with_upstream(100, 100, "/run/other.sock"))) for _ in range(70)]
    # Half of its past is without it by then.
    assert seen[: PAST_MIN + 1] == [True] * (PAST_MIN + 1)
    assert not any(seen[PAST_MIN + 1 :])
    assert set(missing._asked) == {"/run/other.sock"}
