"""Requests that one thread receives and another one of a pool answers: what they waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import FrozenSet

import pytest

from tests.unit import ill
from udsprobe.model.report import Report
from udsprobe.rules.accounts.request_time import RequestTime, request_time
from udsprobe.rules.accounts.saturation import saturation
from udsprobe.rules.accounts.service import Service, whole_service

FIRST, POOL = 4712, 8
REPLIERS: FrozenSet[int] = frozenset(range(FIRST, FIRST + POOL))


def pool(app_us: float, **share: float) -> Report:
    """500 requests, which eight threads answer; they do this, and wait for a lock else."""
    rest = {"blocked_lock": 1 - sum(share.values()), "sys_socket": 0.001, "blocked_poll": 0.0}
    threads = [ill.thread(tid, "python", **{**rest, **share}) for tid in sorted(REPLIERS)]
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=app_us, lock=100.0)
    return ill.service(requests, ill.thread(4711, "python", sys_socket=0.01), *threads)


def service_of(report: Report) -> Service:
    return replace(whole_service(report), repliers=REPLIERS, handed_over=300)


def divided(report: Report) -> RequestTime:
    return request_time(service_of(report))


def test_a_pool_at_one_lock_is_busy_though_no_thread_of_it_is() -> None:
    """It computes all the time, and most requests are answered by another thread."""
    service = service_of(pool(320_000, user=0.12))
    found = request_time(service)
    assert found.behind_locks < 0.5 < found.by_others
    assert found.share("cpu") > 0.9
    saturated = saturation(service, found)
    assert saturated is not None and (saturated.how, saturated.kind) == ("process", "cpu")


@pytest.mark.parametrize(
    ("activity", "part"), [("blocked_other", "sleep"), ("blocked_disk", "disk")]
)
def test_a_full_pool_s_requests_wait_for_what_its_threads_wait_for(
    activity: str, part: str
) -> None:
    """Sixteen at once for eight threads: half of the time they wait until one takes them."""
    found = divided(pool(320_000, **{activity: 0.98}))
    handed = 300 / 500
    assert found.share(part) == pytest.approx(handed, abs=0.02)
    assert found.share("timer") < 0.02


def test_what_a_pool_with_time_waits_for_stays_unknown() -> None:
    found = divided(pool(320_000, blocked_other=0.1))
    assert found.share("timer") > 0.3
