"""Several workers with a listener each, one of which is full: its sleep is the root."""

from __future__ import annotations

from dataclasses import replace

from tests.unit import ill
from udsprobe.model.report import Report
from udsprobe.rules.accounts.request_time import RequestTime, request_time
from udsprobe.rules.accounts.service import whole_service

LATE_US = 400_000.0


def workers(**of_one: float) -> Report:
    """One and three that idle; connections wait for accept()."""
    one = ill.thread(4711, "python3", **of_one)
    idle = [replace(ill.thread(4712 + n, "python3", user=0.01), pid=4712 + n) for n in range(3)]
    served = ill.served(500, before=LATE_US, recv_wait=30_000, app=7_000, other=97.0, cpu=3.0)
    return ill.service(served, one, *idle)


def divided(report: Report) -> RequestTime:
    return request_time(whole_service(report), starved=True)


def test_connections_wait_for_the_sleep_of_the_one_that_is_full() -> None:
    found = divided(workers(blocked_other=0.97, blocked_poll=0.02))
    assert found.occupied >= 0.97
    assert found.share("accept") == 0.0
    assert found.share("sleep") > 0.8


def test_connections_of_workers_that_have_time_wait_for_accept() -> None:
    found = divided(workers(blocked_other=0.4, blocked_poll=0.6))
    assert found.occupied < 0.5
    assert found.mean_us("accept") == LATE_US
