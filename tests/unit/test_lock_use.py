"""A lock that is hardly ever free, though the waits for it are short."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional

import pytest

from tests.unit import ill
from udsprobe.model.report import Lock, Report, RootAuthor, Verdict, Wait
from udsprobe.rules.accounts.authors import waits_of
from udsprobe.rules.accounts.lock_use import busiest_lock, queue_at_locks
from udsprobe.rules.accounts.request_time import request_time
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


# -- requests that queue at a lock -----------------------------------------------------------------


def author(tid: Optional[int], was: str, us: float, by: str = "thread") -> RootAuthor:
    pid = None if tid is None else 4711
    return RootAuthor(by, pid, tid, "node", True, was, None, us, [])


def waiting(count: int, *authors: RootAuthor, idle_s: float = 0.0) -> Report:
    """Two threads that wait for a lock for 30 of 40 ms in each of so many requests in 10 s; with
    waits for work, which a loop brings."""
    requests = ill.served(count, recv_wait=0, recv=0, send=0, app=40_000, lock=75.0, other=25.0)
    in_requests_us = count * 30_000 / 2
    loop = ill.thread(4700, "loop", sys_poll=0.01)
    threads = [
        ill.thread(4711 + n, blocked_lock=0.4, sys_socket=0.01, blocked_poll=0.0, blocked_other=0.2)
        for n in range(2)
    ]
    brought = RootAuthor("thread", 4711, 4700, "loop", True, "poll", None, 1e6 * idle_s, [])
    scaled = [replace(each, total_us=each.total_us * in_requests_us) for each in authors]
    told = [*scaled, *([brought] if idle_s else [])]
    whole_us = sum(each.total_us for each in told)
    waits = [
        Wait(4711, t.tid, "node", "lock", count, whole_us, 1e5, list(told), 0.0, told)
        for t in threads
    ]
    accepting = replace(ill.quiet_listener(), accepted_by_thread={"4700": 2})
    return replace(ill.service(requests, loop, *threads, listeners=[accepting]), waits=waits)


IN_TURNS = (author(4711, "lock", 0.4), author(4712, "lock", 0.3), author(4712, "sleep", 0.3))
BY_ONE = (author(4799, "disk", 1.0),)
EACH_ITS_OWN = tuple(author(4790 + n, "sleep", 0.25) for n in range(4))


@pytest.mark.parametrize(
    ("count", "authors", "queue"),
    [
        (1000, IN_TURNS, True),
        (1000, BY_ONE, True),
        # A thread for each to wait for; and hardly one that waits at any moment.
        (1000, EACH_ITS_OWN, False),
        (200, IN_TURNS, False),
    ],
)
def test_requests_queue_at_a_lock_that_one_has_after_the_other(
    count: int, authors: List[RootAuthor], queue: bool
) -> None:
    service = whole_service(waiting(count, *authors))
    assert queue_at_locks(service, request_time(service)) is queue


def test_waits_for_work_that_a_loop_brings_are_left_out() -> None:
    service = whole_service(waiting(1000, *IN_TURNS, idle_s=40.0))
    time = request_time(service)
    rows = waits_of(service, "lock", time.asleep_us("lock"))
    assert [row.total_us for row in rows] == [pytest.approx(15e6)] * 2
    assert queue_at_locks(service, time)
