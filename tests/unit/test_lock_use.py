"""A lock that is hardly ever free, though the waits for it are short."""

from __future__ import annotations

from dataclasses import replace
from typing import List

from tests.unit import ill
from udsprobe.model.report import Lock, Report, Verdict
from udsprobe.rules.accounts.lock_use import busiest_lock
from udsprobe.rules.accounts.service import whole_service
from udsprobe.rules.judge import judged


def lock(waited_s: float, waiters: int = 2, address: str = "0x7f00") -> Lock:
    return Lock(4711, address, waiters, 40_000, waited_s * 1e6, [], None)


def contending(locks: List[Lock], lock_pct: float = 45.0) -> Report:
    """Two threads; 60,000 requests of 0.33 ms, of which 0.15 ms are a wait for a lock."""
    requests = ill.served(60_000, app=330.0, cpu=100 - lock_pct, lock=lock_pct)
    threads = [ill.thread(4711 + n, user=0.5, blocked_lock=0.45) for n in range(2)]
    return replace(ill.service(requests, *threads), locks=locks)


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def test_a_lock_that_somebody_always_waits_for_is_near_its_limit() -> None:
    found = verdict(contending([lock(9.4), lock(1.0, address="0x10")]))
    assert found.cause == "healthy"
    assert "Near a limit: somebody waits for the lock at 0x7f00 of process 4711" in found.summary
    (fact,) = [each for each in found.evidence if each.metric == "lock_held_share"]
    assert fact.value == 0.94


def test_waits_at_once_are_not_time_that_it_is_held() -> None:
    """Of five threads four can wait at once: a third of the time would do for that."""
    report = contending([lock(9.4, waiters=5)])
    found = busiest_lock(report, whole_service(report))
    assert found is not None and round(found.share, 6) == 0.235
    assert "Near a limit" not in verdict(report).summary


def test_threads_that_wait_for_work_use_no_lock() -> None:
    report = contending([lock(19.0)])
    assert busiest_lock(report, whole_service(report)) is None
    assert "lock at" not in verdict(replace(report, locks=None)).summary
