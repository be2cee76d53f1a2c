"""Requests that one thread receives and another one of a pool answers: what they waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, FrozenSet, List, Optional

import pytest

from tests.unit import ill, reports
from udsprobe.model.report import Author, OwnRequests, Report, RootAuthor, Wait
from udsprobe.rules.accounts.request_time import RequestTime, request_time
from udsprobe.rules.accounts.saturation import saturation
from udsprobe.rules.accounts.service import Service, whole_service
from udsprobe.rules.servers import asks_for_lock_again

FIRST, POOL = 4712, 8
REPLIERS: FrozenSet[int] = frozenset(range(FIRST, FIRST + POOL))


def pool(app_us: float, **share: float) -> Report:
    """500 requests, which eight threads answer; they do this, and wait for a lock else."""
    rest = {"blocked_lock": 1 - sum(share.values()), "sys_socket": 0.001, "blocked_poll": 0.0}
    threads = [ill.thread(tid, "python", **{**rest, **share}) for tid in sorted(REPLIERS)]
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=app_us, lock=100.0)
    return ill.service(requests, ill.thread(4711, "python", sys_socket=0.01), *threads)


def service_of(report: Report, handed: float = 300 / 500) -> Service:
    """Of 500 requests 300 are handed over; `handed`: what they have of the time of all."""
    service = whole_service(report)
    handed_us = handed * service.stage_sums_us["app"]
    return replace(service, repliers=REPLIERS, handed_over=300, handed_us=handed_us)


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


def test_quick_ones_that_stay_with_their_thread_do_not_tell_of_those_handed_over() -> None:
    """What a thread answers itself (HTTP/2's settings) is short, and computes all the while."""
    report = pool(320_000, blocked_other=0.98)
    quick = ill.served(500, recv_wait=0, recv=0, send=0, app=320_000, cpu=50.0, runq=50.0)
    report = replace(report, requests=replace(report.requests, served=quick))
    found = request_time(service_of(report, handed=0.999))
    assert found.share("sleep") > 0.95
    assert found.share("cpu", "runq") < 0.02


@pytest.mark.parametrize(
    ("address", "part"), [("127.0.0.1:2379", "sleep"), ("10.0.0.7:2379", "upstream")]
)
def test_who_waits_for_what_its_process_asks_itself_waits_for_that(address: str, part: str) -> None:
    """As etcd's gateway of HTTP, which asks its own listener over gRPC: half of what it serves."""
    asked = OwnRequests("tcp", address, None, 250, 320_000.0)
    row = replace(ill.served_by(4711, 500, "etcd"), handed_over=500, handed_over_us=160e6)
    own = replace(ill.quiet_listener(), transport="tcp", address="0.0.0.0:2379", pids=[4711])
    everything = pool(320_000, blocked_other=0.98)
    upstream = [replace(ill.upstream(250, 320_000.0, address), transport="tcp")]
    requests = replace(
        everything.requests, served_by=[replace(row, upstream=[asked])], upstream=upstream
    )
    report = replace(everything, requests=requests, listeners=[own])
    service = replace(whole_service(report), repliers=REPLIERS)
    assert bool(service.upstream) == (part == "upstream")
    found = request_time(service)
    assert max(found.parts_us, key=lambda name: found.parts_us[name]) == part
    assert found.total_us == pytest.approx(service.total_us)


def test_those_handed_over_take_what_the_report_says() -> None:
    report = pool(320_000, blocked_other=0.98)
    row = replace(ill.served_by(4711, 500, "python"), handed_over=300, handed_over_us=12e6)
    report = replace(report, requests=replace(report.requests, served_by=[row]))
    assert (whole_service(report).handed_over, whole_service(report).handed_us) == (300, 12e6)
    longer = replace(row, handed_over_us=1e12)
    report = replace(report, requests=replace(report.requests, served_by=[longer]))
    assert whole_service(report).handed_us == 500 * 320_000


def test_what_a_pool_with_time_waits_for_stays_unknown() -> None:
    found = divided(pool(320_000, blocked_other=0.1))
    assert found.share("timer") > 0.3


def ended_by(waker: Callable[[int], Optional[int]]) -> List[Wait]:
    """Each thread of the pool waits for locks nearly always, until another thread ends that; None:
    until a time limit does."""
    waits = []
    for tid in sorted(REPLIERS):
        us, by = 0.98e7, waker(tid)
        author = Author("thread", 4711, by, "python", True, "lock", "futex", us)
        if by is None:
            author = Author("timer", None, None, None, False, None, None, us)
        root = RootAuthor(**vars(author))
        waits.append(Wait(4711, tid, "python", "lock", 500, us, 1.0, [author], 0.0, [root]))
    return waits


def next_of(tid: int) -> int:
    return FIRST + (tid + 1 - FIRST) % POOL


@pytest.mark.parametrize("app_us", [160_000, 640_000])
def test_a_pool_whose_threads_end_each_other_s_waits_is_at_a_lock(app_us: float) -> None:
    """Eight at once, and thirty-two: those that no thread has wait for what the threads wait for.

    It computes for 16 % of the time, and that is all that is its own.
    """
    found = divided(replace(pool(app_us, user=0.02), waits=ended_by(next_of)))
    assert found.share("lock") > 0.8
    assert found.share("timer") < 0.02


@pytest.mark.parametrize("app_us", [160_000, 640_000])
def test_a_pool_whose_threads_sleep_until_a_time_is_not_busy(app_us: float) -> None:
    """Java's `Thread.sleep` is a wait for a lock with a time limit, which nobody holds."""
    report = replace(pool(app_us, user=0.09), waits=ended_by(lambda _: None))
    assert divided(report).share("lock") > 0.85
    # Of an interpreter that asks for its lock again and again it may be: others compute.
    again = replace(service_of(report), asks_for_lock_again=True)
    assert request_time(again).share("cpu") > 0.6


def test_a_pool_that_is_brought_work_is_at_no_lock() -> None:
    """It idles, and requests wait for something that is in none of its threads."""
    found = divided(replace(pool(160_000, user=0.02), waits=ended_by(lambda _: 4711)))
    assert found.share("timer") > 0.4


def test_time_limits_of_waits_for_work_are_no_time_of_requests() -> None:
    """One request at a time: of eight threads that ask for work again and again seven idle."""
    found = divided(replace(pool(20_000, user=0.02), waits=ended_by(lambda _: None)))
    handed = 300 / 500
    assert found.share("lock") < 1 - handed + 0.02


@pytest.mark.parametrize(
    ("comm", "cmdline", "asks"),
    [
        ("java", "java -jar shop.jar", False),
        ("nginx", "nginx: worker process", False),
        ("gunicorn", "gunicorn: worker [app]", True),
        ("celery", "/usr/bin/python3 /usr/bin/celery", True),
        ("puma", "puma 6.0", True),
        # It may have an interpreter inside.
        ("shop", "./shop", True),
    ],
)
def test_who_asks_for_its_lock_again(comm: str, cmdline: str, asks: bool) -> None:
    one = replace(reports.target(4711, comm), cmdline=cmdline)
    assert asks_for_lock_again(replace(pool(1_000), targets=[one]), None) is asks
