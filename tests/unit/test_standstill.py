"""A server that stands still now and then: too few requests meet it for percentiles to show."""

from __future__ import annotations

from dataclasses import replace
from typing import List

import pytest

from tests.unit import ill
from udsprobe.model.report import Report, StageMeans, Verdict, WholeRequest
from udsprobe.rules.judge import judged

SERVED, STOOD_US = 40_000, 300_000.0


def kept(at_ms: float, unread_us: float, app_us: float = 200.0) -> WholeRequest:
    """One that was answered at that time of a minute."""
    return replace(
        ill.kept_request(4711),
        at=f"2026-11-28T12:00:{at_ms / 1e3:06.3f}+00:00",
        latency_us=unread_us + app_us,
        stages_us=StageMeans(None, unread_us, 3.0, app_us, 7.0),
    )


def reported(slowest: List[WholeRequest]) -> Report:
    """A loop that is busy for a fifth of the time; 1 request in 1,000 waits for 0.3 s."""
    requests = ill.served(SERVED, recv_wait=700, app=90)
    latency = replace(requests.latency_us, p50=170.0, p90=640.0, p99=2_900.0, p999=STOOD_US)
    report = ill.service(
        replace(requests, latency_us=latency), ill.thread(user=0.2, sys_socket=0.01)
    )
    return replace(report, requests=replace(report.requests, slowest=slowest))


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def together(count: int, at_ms: float = 1_000.0, unread_us: float = STOOD_US) -> List[WholeRequest]:
    return [kept(at_ms + each, unread_us - each) for each in range(count)]


def test_requests_that_lay_unread_and_were_answered_together() -> None:
    found = verdict(reported(together(20)))
    assert (found.cause, found.harm.kind) == ("app-cpu", "slow")
    assert found.summary.startswith("at times requests lie unread for up to 300 ms: ")
    assert found.evidence[0].says == (
        "20 requests of the slowest lay unread for up to 300 ms and were then answered together"
    )


def one_after_the_other() -> List[WholeRequest]:
    """A queue that is worked off."""
    return [kept(1_000 + 100 * each, STOOD_US) for each in range(20)]


def slow_by_themselves() -> List[WholeRequest]:
    return [kept(1_000 + each, 100.0, app_us=STOOD_US) for each in range(20)]


@pytest.mark.parametrize(
    "slowest",
    [
        pytest.param(together(4), id="too few"),
        pytest.param(one_after_the_other(), id="one after the other"),
        pytest.param(slow_by_themselves(), id="read at once"),
        pytest.param(together(20, unread_us=90_000.0), id="short"),
        pytest.param([*together(5), *slow_by_themselves()], id="most are slow by themselves"),
    ],
)
def test_what_is_no_standstill(slowest: List[WholeRequest]) -> None:
    assert verdict(reported(slowest)).cause == "healthy"


def test_what_takes_less_than_a_hundredth_of_a_long_window_is_none() -> None:
    report = reported(together(20))
    hour = replace(report, window=replace(report.window, duration_s=60.0))
    assert verdict(hour).cause == "healthy"
