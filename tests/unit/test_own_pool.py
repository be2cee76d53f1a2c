"""An event loop that hands requests to threads: what they sleep for is what requests wait for."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from tests.unit import ill
from udsprobe.model.report import Author, Report, RootAuthor, Wait
from udsprobe.rules.accounts.own_pool import own_pool
from udsprobe.rules.accounts.request_time import request_time
from udsprobe.rules.accounts.service import whole_service
from udsprobe.rules.judge import judged
from udsprobe.rules.suspects import processing

POLLED_US = 4_000_000.0
PID, FIRST = 4711, 4801


def ended(tid: int, was: Optional[str], call: Optional[str], us: float) -> Author:
    return Author("thread", PID, tid, "node", True, was, call, us)


def polled(*authors: Author) -> Wait:
    """Of the loop, in its poller."""
    roots = [RootAuthor(**vars(each)) for each in authors]
    whole = sum(each.total_us for each in authors)
    return Wait(PID, PID, "node", "poll", 400, whole, 1e5, list(authors), 0.0, roots)


def handed_over(was: str, call: Optional[str], threads: int = 4) -> Report:
    """400 requests of 50 ms, 45 of them in a thread that does so; behind the longest are others."""
    requests = ill.served(400, recv_wait=0, recv=0, send=0, app=50_000, poll=90.0, cpu=10.0)
    loop = replace(ill.thread(PID, user=0.1, sys_poll=0.01, blocked_poll=0.85), pid=PID)
    doing = {
        "sleep": "blocked_other",
        "disk": "blocked_disk",
        "recv": "blocked_recv",
        "cpu": "user",
    }[was]
    pool = [
        replace(ill.thread(FIRST + at, "node", **{doing: 0.98, "blocked_lock": 0.02}), pid=PID)
        for at in range(threads)
    ]
    by_own = [ended(FIRST + at, was, call, POLLED_US / threads / 2) for at in range(threads)]
    others = Author("others", None, None, None, False, None, None, POLLED_US / 2)
    report = ill.service(requests, loop, *pool)
    return replace(report, waits=[polled(*by_own, others)])


@pytest.mark.parametrize(
    ("was", "call", "part"),
    [
        ("sleep", "clock_nanosleep", "sleep"),
        ("disk", "fsync", "disk"),
        ("recv", "recvfrom", "upstream"),
        ("cpu", None, "cpu"),
    ],
)
def test_a_wait_in_the_poller_is_what_its_threads_did(
    was: str, call: Optional[str], part: str
) -> None:
    time = request_time(whole_service(handed_over(was, call)))
    # The loop's own 5 ms are on a CPU.
    assert time.mean_us(part) == pytest.approx(50_000.0 if part == "cpu" else 45_000.0, rel=0.01)
    assert time.mean_us("timer") == pytest.approx(0.0, abs=1.0)


def parked(sleepers: int, *, holds: bool = False) -> Report:
    """Two loops: one is in the poller, and parks the other at a lock; the pool wakes either.

    Args:
        sleepers: threads of the pool that woke them. holds: one thread woke most of the time.
    """
    report = handed_over("sleep", "clock_nanosleep")
    requests = ill.served(
        400, recv_wait=0, recv=0, send=0, app=50_000, poll=45.0, lock=45.0, cpu=10.0
    )
    each_us = POLLED_US / sleepers
    by_own = [ended(FIRST + at, "sleep", "clock_nanosleep", each_us) for at in range(sleepers)]
    if holds:
        by_own[0] = replace(by_own[0], total_us=9 * POLLED_US)
    sibling = ended(PID + 1, "lock", "futex", sum(each.total_us for each in by_own))
    through = [RootAuthor(**vars(each), via=[f"node {PID}/{PID + 1}"]) for each in by_own]
    poll = replace(polled(sibling), roots=through)
    lock = replace(polled(*by_own), tid=PID + 1, kind="lock")
    assert report.time is not None
    loops = [
        replace(ill.thread(tid, "node", sys_poll=0.01, sys_socket=0.1, **share), pid=PID)
        for tid, share in ((PID, {}), (PID + 1, {"blocked_lock": 0.8}))
    ]
    threads = [*loops, *(each for each in report.time.threads if each.tid != PID)]
    return replace(
        report,
        requests=replace(report.requests, served=requests),
        time=replace(report.time, threads=threads),
        waits=[poll, lock],
    )


def test_loops_that_park_each_other_wait_for_what_their_threads_did() -> None:
    """Tokio's, which hand over to threads that may block."""
    report = parked(4)
    time = request_time(whole_service(report))
    assert time.mean_us("sleep") == pytest.approx(45_000.0, rel=0.01)
    assert (time.mean_us("timer"), time.mean_us("lock")) == pytest.approx((0.0, 0.0), abs=1.0)
    found = judged(report).verdict
    assert found is not None and found.cause == "app-blocked"
    assert "node waits for its own threads: 100 % of that time asleep by a timer" in found.summary


@pytest.mark.parametrize(("sleepers", "holds"), [(1, False), (4, True)])
def test_a_lock_that_one_thread_holds_stays_a_lock(sleepers: int, holds: bool) -> None:
    time = request_time(whole_service(parked(sleepers, holds=holds)))
    assert time.mean_us("lock") >= 0.8 * 22_500


@pytest.mark.parametrize("polled_share", [0.0, 0.05])
def test_a_worker_that_computes_all_the_time_is_the_bottleneck(polled_share: float) -> None:
    """Node's workers have an event loop of their own, which is hardly ever met in its poller."""
    report = handed_over("cpu", None, threads=1)
    assert report.time is not None
    loop = replace(ill.thread(PID, sys_socket=0.01, sys_poll=0.01, blocked_poll=0.9), pid=PID)
    busy = {"user": 0.95 - polled_share, "runq": 0.04, "blocked_poll": polled_share}
    worker = replace(ill.thread(FIRST, "node", **busy), pid=PID)
    wait = polled(ended(FIRST, "cpu", None, POLLED_US))
    threads = replace(report.time, threads=[loop, worker])
    found = judged(replace(report, time=threads, waits=[wait])).verdict
    assert found is not None and found.cause == "app-cpu"
    assert f"node thread {FIRST} is " in found.summary


def test_waits_that_took_no_time_tell_nothing() -> None:
    report = handed_over("sleep", "clock_nanosleep")
    service = whole_service(replace(report, waits=[polled(ended(FIRST, "sleep", None, 0.0))]))
    assert own_pool(service, "sleep", 0.0) is None
    assert request_time(service).share("sleep") == 0.0


def test_the_verdict_says_what_the_threads_do() -> None:
    found = judged(handed_over("sleep", "clock_nanosleep")).verdict
    assert found is not None and (found.cause, found.subject) == ("app-blocked", "node 4711")
    says = "node waits for its own threads: 100 % of that time asleep by a timer"
    assert says in found.summary


def by_processes(was: str, call: Optional[str]) -> Report:
    """The same of three processes that stay; a thread of the loop's process waits for each."""
    report = handed_over("sleep", "clock_nanosleep", threads=3)
    assert report.time is not None
    pids = {tid: tid for tid in range(FIRST, FIRST + 3)}
    threads = [replace(t, pid=pids.get(t.tid, PID)) for t in report.time.threads]
    relay = ended(PID + 1, "poll", "poll", POLLED_US)
    did = [
        RootAuthor("thread", tid, tid, "node", True, was, call, POLLED_US / 3, [f"node {PID}/4712"])
        for tid in pids
    ]
    waits = [replace(polled(relay), roots=did)]
    return replace(report, time=replace(report.time, threads=threads), waits=waits)


def test_processes_that_work_for_a_loop_are_a_pool() -> None:
    """Python's `ProcessPoolExecutor`."""
    report = by_processes("sleep", "clock_nanosleep")
    assert request_time(whole_service(report)).mean_us("sleep") == pytest.approx(45_000, rel=0.01)
    found = own_pool(replace(whole_service(report), at_once=12.0), "sleep", 400 * 45_000.0)
    says = "its own processes, all 3 busy: 100 % of that time asleep by a timer (clock_nanosleep)"
    assert found is not None and found.clause() == says
    told = judged(report).verdict
    assert told is not None and (told.cause, told.subject) == ("app-blocked", f"node {FIRST}")
    assert "node waits for its own processes: 100 % of that time asleep by" in told.summary


def test_a_process_for_each_request_is_none_of_a_pool() -> None:
    """Its program's name is told."""
    report = by_processes("sleep", "clock_nanosleep")
    assert report.time is not None
    threads = [
        each if each.pid == PID else replace(each, observed_s=0.1) for each in report.time.threads
    ]
    brief = replace(report, time=replace(report.time, threads=threads))
    assert request_time(whole_service(brief)).share("sleep") == 0.0
    assert own_pool(whole_service(brief), "sleep", 400 * 45_000.0) is None


def test_what_they_wait_for_at_a_pipe_may_be_work() -> None:
    report = by_processes("pipe", "read")
    assert request_time(whole_service(report)).share("sleep") == 0.0
    assert own_pool(whole_service(report), "sleep", 400 * 45_000.0) is None


@pytest.mark.parametrize(("at_once", "full"), [(4.0, None), (12.0, 4)])
def test_a_pool_is_full_where_more_requests_are_in_progress(
    at_once: float, full: Optional[int]
) -> None:
    service = replace(whole_service(handed_over("sleep", "clock_nanosleep")), at_once=at_once)
    found = own_pool(service, "sleep", 400 * 45_000.0)
    assert found is not None and found.full == full
    assert ("all 4 busy" in found.clause()) is (full is not None)


def test_threads_that_wait_for_work_are_no_pool_without_time() -> None:
    """All of them slept now and then; one at a time."""
    service = whole_service(handed_over("sleep", "clock_nanosleep"))
    idle = {"blocked_other": 0.25, "blocked_lock": 0.75}
    threads = tuple(
        t if t.tid == PID else replace(t, share={**t.share, **idle}) for t in service.threads
    )
    found = own_pool(replace(service, threads=threads, at_once=12.0), "sleep", 400 * 45_000.0)
    assert found is not None and found.full is None


def test_what_requests_that_were_handed_over_sleep_for_is_told_by_who_replies() -> None:
    """HTTP/2 in Python: a thread receives, another one sleeps and replies."""
    whole = whole_service(replace(handed_over("sleep", "clock_nanosleep"), waits=[]))
    service = replace(whole, handed_over=whole.count, handed_us=whole.stage_sums_us["app"])
    assert request_time(service).share("sleep") == 0.0
    service = replace(service, repliers=frozenset(range(FIRST, FIRST + 4)))
    assert request_time(service).share("sleep") > 0.9


@pytest.mark.parametrize("by", ["program", "thread"])
@pytest.mark.parametrize("kind", ["poll", "child"])
def test_children_that_compute_for_requests_are_the_service_s_cpu(kind: str, by: str) -> None:
    """A process for each request; who serves waits for it in its poller, or until it ends."""
    pid = None if by == "program" else 5000
    child = replace(ended(5000, "cpu", None, POLLED_US), by=by, pid=pid, comm="convert")
    asleep = {"poll": {"poll": 90.0}, "child": {"other": 90.0}}[kind]
    requests = ill.served(400, recv_wait=0, recv=0, send=0, app=50_000, cpu=10.0, **asleep)
    blocked = {"poll": "blocked_poll", "child": "blocked_other"}[kind]
    loop = replace(ill.thread(PID, user=0.1, sys_poll=0.01, **{blocked: 0.85}), pid=PID)
    waits = [replace(polled(child), kind=kind)]
    time = request_time(whole_service(replace(ill.service(requests, loop), waits=waits)))
    assert time.mean_us("cpu") == pytest.approx(50_000.0, rel=0.01)
    assert time.by_others == pytest.approx(0.9, rel=0.01)
    # Of somebody who is no target it is not known that it works for this service.
    strangers = [replace(waits[0], roots=[], authors=[replace(child, is_target=False)])]
    time = request_time(whole_service(replace(ill.service(requests, loop), waits=strangers)))
    assert time.mean_us("cpu") == pytest.approx(5_000.0, rel=0.01)


@pytest.mark.parametrize(("at_once", "waiting"), [(4.5, None), (12.0, 8.0)])
def test_a_full_pool_that_computes_and_writes_is_what_requests_wait_for(
    at_once: float, waiting: Optional[float]
) -> None:
    """None of its threads is busy computing all the time, and none sleeps most of it."""
    report = handed_over("cpu", None)
    did = [
        ended(FIRST + at, *doing, us)
        for at in range(4)
        for doing, us in ((("cpu", None), 0.55e6), (("disk", "fsync"), 0.45e6))
    ]
    service = whole_service(replace(report, waits=[polled(*did)]))
    both = {"user": 0.55, "blocked_disk": 0.45}
    threads = tuple(t if t.tid == PID else replace(t, share=both) for t in service.threads)
    service = replace(service, threads=threads, at_once=at_once, spent_s={}, cpus=8)
    found = processing.pressure(processing.of(report, service, request_time(service), None))
    assert (found and (found.cause, found.evidence[0].value)) == (waiting and ("app-cpu", waiting))


def test_requests_that_change_the_loop_wait_for_its_pool_too() -> None:
    """Loops of one runtime take requests from each other."""
    service = whole_service(handed_over("sleep", "clock_nanosleep"))
    service = replace(service, handed_over=400, handed_us=service.stage_sums_us["app"])
    assert request_time(service).share("sleep") > 0.75


def test_threads_that_poll_a_connection_to_a_database_wait_for_it() -> None:
    """psycopg polls its connection: what its thread did is "waiting for events"."""
    report = handed_over("sleep", "clock_nanosleep")
    did = [ended(FIRST + at, "poll", "poll", POLLED_US / 4) for at in range(4)]
    roots = [
        RootAuthor("process", 55, None, "postgres", False, None, None, us, [f"node {PID}/{tid}"])
        for tid, us in ((each.tid, each.total_us) for each in did)
    ]
    polls = {"blocked_poll": 0.2, "blocked_lock": 0.7, "sys_socket": 0.02}
    report = replace(report, waits=[replace(polled(*did), roots=roots)])
    service = whole_service(report)
    loop = {"user": 0.1, "sys_socket": 0.03, "blocked_poll": 0.85}
    threads = tuple(replace(t, share=loop if t.tid == PID else polls) for t in service.threads)
    service = replace(service, threads=threads, repliers=frozenset({PID}))
    asks = frozenset({(PID, 55)})
    assert request_time(replace(service, partners=asks)).share("upstream") > 0.85
    # Also where most of it is behind the longest authors: it is no more than there is.
    beside = replace(service.waits[0], authors=[did[0], ended(FIRST + 9, "cpu", None, 0.5e6)])
    time = request_time(replace(service, partners=asks, waits=(beside,)))
    assert time.share("upstream") > 0.7
    assert time.sum_us("timer") >= 0.0
    # Of its client it waits for more to do.
    assert request_time(replace(service, partners=asks, clients=asks)).share("upstream") == 0.0
