"""Requests that wait for what others send through the one that their server asks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit import ill
from udsprobe.model.report import Upstream, Verdict
from udsprobe.rules import judged

REDIS = "127.0.0.1:6379"


def of_front(answers_us: float, count: int = 600, **changes: Any) -> Verdict:
    """200 requests that wait 600 ms each, with three answers of Redis to each of them."""
    row = Upstream("tcp", REDIS, None, count, ill.flat(count, answers_us), **changes)
    requests = ill.served(200, app=610_000.0, cpu=1.0, upstream=99.0)
    report = ill.service(requests, ill.thread(user=0.01, blocked_recv=0.99))
    found = judged(replace(report, requests=replace(report.requests, upstream=[row]))).verdict
    assert found is not None
    return found


def test_a_result_of_a_worker_is_no_answer_of_the_queue() -> None:
    """Celery's get(): Redis answers at once, and publishes the result when there is one."""
    found = of_front(217.0)
    assert (found.cause, found.subject) == ("upstream-wait", f"tcp:{REDIS}")
    assert (
        "waits for what others send through tcp:127.0.0.1:6379, which itself answers in 217 µs"
        in (found.summary)
    )
    assert "start more of them where all are busy" in (found.actions[0].say or "")


@pytest.mark.parametrize(
    "answers_us, changes",
    [
        (200_000.0, {}),
        (217.0, {"multiplexed": True}),
        (217.0, {"connections": 1, "busy_pct": 95.0}),
        (217.0, {"count": 600_000}),
        (50_000.0, {"count": 200}),
    ],
    ids=["late", "many-at-once", "full-pool", "very-many", "one-after-the-other"],
)
def test_answers_that_take_that_long_are_waited_for(answers_us: float, changes: Any) -> None:
    found = of_front(answers_us, **changes)
    assert found.cause == "upstream-wait"
    assert " waits for tcp:127.0.0.1:6379, which " in found.summary
    assert "through" not in found.summary
