"""Whose work it is: mistakes of verdicts on drawn and planted systems, and their accounts."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional

import pytest

from tests.unit import ill, reports
from tests.unit.reports import crowded, syscall
from tests.unit.test_rules import chain
from udsprobe.model.report import (
    BusyTime,
    Listener,
    Loop,
    ProcessTime,
    Report,
    ServedBy,
    StageMeans,
    ThreadTime,
    Verdict,
    Waiting,
)
from udsprobe.rules.accounts.moving import moving
from udsprobe.rules.accounts.request_time import request_time
from udsprobe.rules.accounts.service import serving_threads, whole_service
from udsprobe.rules.judge import judged
from udsprobe.rules.suspects.churn import is_most_of_the_work

MB = 1024 * 1024


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


# -- a reply that goes on after its request ends ---------------------------------------------------


def relayed(reply: int) -> Report:
    """Three threads that pass on replies of so many bytes; the first call ends a request."""
    threads = [
        ill.thread(4711 + n, sys_socket=0.25, runq=0.1, blocked_recv=0.65, blocked_poll=0.0)
        for n in range(3)
    ]
    row = replace(ill.connection(sent=100 * reply), requests=100)
    requests = ill.served(4000, recv_wait=5, recv=150, app=700, send=40, upstream=90, cpu=10)
    return ill.service(requests, *threads, connections=[row])


def test_large_replies_are_moved_after_their_request_has_ended() -> None:
    large = relayed(7 * MB)
    service = whole_service(large)
    found = moving(large, service, request_time(service))
    assert found.mean_us == pytest.approx(7.5e6 / 4000, rel=0.01)
    assert verdict(large).cause == "transport"


def test_small_replies_are_over_with_their_request() -> None:
    assert verdict(relayed(1000)).cause == "healthy"


# -- connections that cost something else than the thread that is busy -----------------------------


def churning(handler_us: float) -> Report:
    """4,000 connections for 4,000 requests, at a thread that is busy all the time."""
    listening = replace(ill.quiet_listener(), established=4000, accepted=4000)
    accepting = replace(syscall("accept4", calls=4000), cpu_us=1e6)
    saturated = ill.thread(user=0.9, sys_socket=0.08)
    requests = ill.served(4000, recv_wait=100, app=handler_us)
    return ill.service(requests, saturated, listeners=[listening], syscalls=[accepting])


def test_connections_are_the_reason_where_they_are_most_of_the_work() -> None:
    assert verdict(churning(100)).cause == "connection-churn"
    assert verdict(churning(2000)).cause == "app-cpu"


@pytest.mark.parametrize(
    ("at_once", "threads", "expected"), [(1.0, 1, False), (8.0, 1, True), (8.0, 8, False)]
)
def test_the_work_for_one_request_lies_within_others_in_hand(
    at_once: float, threads: int, expected: bool
) -> None:
    """An event loop receives eight and then replies to each; eight threads have one each."""
    alone = whole_service(churning(2000))
    crew = tuple(replace(alone.threads[0], tid=4711 + n) for n in range(threads))
    service = replace(alone, at_once=at_once, threads=crew)
    assert is_most_of_the_work(service) is expected


def test_a_call_that_requests_make_too_is_only_in_part_for_connections() -> None:
    """epoll_ctl for each of 100 requests of a connection: two of them are for the connection."""
    listening = replace(ill.quiet_listener(), established=4000, accepted=4000)
    arming = replace(syscall("epoll_ctl", "other", calls=400_000), cpu_us=2e6)
    thread = ill.thread(user=0.9, sys_socket=0.08)
    requests = ill.served(20_000, recv_wait=100, app=10)
    report = ill.service(requests, thread, listeners=[listening], syscalls=[arming])
    assert verdict(report).cause == "app-cpu"
    once = replace(arming, calls=8000)
    assert verdict(replace(report, syscalls=[once])).cause == "connection-churn"


def test_connections_of_another_service_keep_no_thread_busy() -> None:
    """Clients reconnect to nginx; the node behind it, whose connections are kept, computes."""
    front = replace(ill.quiet_listener(), pids=[812], established=4000, accepted=4000)
    calls = [replace(syscall("accept4", calls=4000), cpu_us=3e5)]
    report = replace(chain(5000.0), listeners=[front], syscalls=calls)
    found = judged(report)
    assert "connection-churn" in [each.id for each in found.findings or [] if each.severity]
    assert found.verdict is not None
    assert (found.verdict.cause, found.verdict.subject) == ("app-cpu", "node thread 4711")


# -- a lock that processes share -------------------------------------------------------------------


def taking_turns(computing: float) -> Report:
    """Twelve processes of one thread, one of which owns the lock at any moment."""
    share = {"user": computing, "blocked_lock": 0.42, "blocked_poll": 0.0}
    rest = {"blocked_recv": 1 - 0.42 - computing}
    threads = [replace(ill.thread(n, **{**share, **rest}), pid=n) for n in range(4711, 4723)]
    requests = ill.served(1700, recv_wait=0, recv=100, app=36_000, lock=82, cpu=16, other=2)
    report = ill.service(requests, *threads)
    assert report.time is not None
    processes = [ProcessTime(t.pid, "service", 1, ill.SECONDS, t.share) for t in threads]
    return replace(report, time=replace(report.time, processes=processes))


def test_processes_that_take_turns_at_one_lock_compute() -> None:
    found = verdict(taking_turns(0.08))
    assert found.cause == "app-cpu"
    assert "its processes contend for one lock" in found.summary


def test_a_lock_whose_owner_in_another_process_sleeps_is_a_wait() -> None:
    assert verdict(taking_turns(0.001)).cause == "app-blocked"


# -- queues ----------------------------------------------------------------------------------------


def queueing(accepted: int, now: int, threads: int = 4) -> Listener:
    """Workers of which each takes a connection now and then; each waits for two seconds."""
    quiet = ill.quiet_listener()
    return replace(
        quiet,
        depth=replace(quiet.depth, now=now, max=20, histogram={"19": accepted}),
        accepted=accepted,
        accepted_by_thread={str(4711 + n): 1 for n in range(threads)},
        wait_us=ill.flat(accepted, 2e6),
    )


def idle(count: int, **share: float) -> List[ThreadTime]:
    return [
        ill.thread(
            4711 + n, **{"blocked_recv": 1 - sum(share.values()), "blocked_poll": 0, **share}
        )
        for n in range(count)
    ]


def test_who_still_waits_counts_among_those_that_wait() -> None:
    requests = ill.served(100, app=300)
    long = ill.service(requests, *idle(4), listeners=[queueing(4, now=20)])
    assert verdict(long).cause == "accept-starved"
    assert verdict(ill.service(requests, *idle(4), listeners=[queueing(4, 0)])).cause == "healthy"


def held_by_uploads(receiving_us: float) -> Report:
    """Four workers asleep in receive calls, for so long in each of 100 requests."""
    requests = ill.served(100, before=300_000, recv=receiving_us, app=300)
    report = ill.service(requests, *idle(4), listeners=[queueing(4, now=20)])
    means, none = StageMeans(None, 20.0, receiving_us, 300.0, 7.0), Waiting(0, None)
    own = (4711, "gunicorn", 100, 10.0, requests.latency_us, means, requests.app_time_pct)
    row = ServedBy(*own, 0, 0, [], in_progress=none, unread=none, asking=none)
    return replace(report, requests=replace(report.requests, served_by=[row]))


def test_workers_that_wait_for_clients_to_send_are_told_so() -> None:
    """A larger part of the wait for them than of their sleep is not their upstream's."""
    found = verdict(held_by_uploads(300_000))
    assert found.cause == "accept-starved"
    assert "waiting for clients to send the rest of their requests" in found.summary
    assert "a proxy in front" in found.actions[0].say
    other = verdict(held_by_uploads(3))
    assert other.cause == "accept-starved"
    assert "asleep in a receive call" in other.summary
    assert not any("proxy in front" in action.say for action in other.actions)


def held_pool(receiving_us: float, dispatcher: ThreadTime) -> Report:
    """Four threads of a pool, and who accepts for them; 80 requests of ten seconds, most of which
    wait for a thread."""
    requests = ill.served(80, recv_wait=600_000, recv=receiving_us, app=300)
    quiet = replace(ill.quiet_listener(), pids=[4711])
    report = ill.service(requests, *idle(4), dispatcher, listeners=[quiet])
    kept = [ill.kept_request(tid) for tid in range(4711, 4715)]
    return replace(report, requests=replace(report.requests, slowest=kept))


def test_a_pool_that_clients_hold_is_full_though_who_accepts_is_idle() -> None:
    dispatcher = ill.thread(4720, blocked_poll=0.999, sys_socket=0.001)
    found = verdict(held_pool(490_000, dispatcher))
    assert found.cause == "accept-starved"
    assert "clients hold the threads of node at unix:/run/app.sock, which" in found.summary
    assert found.harm.says == "requests wait 600 ms on average for a thread"
    assert "a proxy in front" in found.actions[0].say
    assert verdict(held_pool(200_000, dispatcher)).cause == "healthy"


def test_threads_that_accept_side_by_side_work_a_burst_off_sooner() -> None:
    """19 connections before it, 70 ms of CPU time each: one thread takes them 1.3 s, two half."""
    requests = ill.served(100, app=300)
    one = [*idle(1, user=0.07), *idle(4)[1:]]
    alone = ill.service(requests, *one, listeners=[queueing(10, 20, threads=1)])
    assert verdict(alone).cause == "healthy"
    both = [*idle(2, user=0.035), *idle(4)[2:]]
    two = ill.service(requests, *both, listeners=[queueing(10, 20, threads=2)])
    assert verdict(two).cause == "accept-starved"


def test_a_burst_that_was_queued_before_we_looked_is_worked_off_one_after_the_other() -> None:
    """500 connections, 0.7 ms of CPU time each: the middle one waits 175 ms, and no other came."""
    in_time = replace(
        queueing(500, now=0, threads=1),
        wait_us=ill.flat(500, 170_000),
        accepted_early=500,
    )
    before = replace(in_time, depth=replace(in_time.depth, histogram={}))
    requests = ill.served(500, app=700)
    busy = ill.thread(4711, user=0.035, blocked_poll=0.965)
    assert verdict(ill.service(requests, busy, listeners=[before])).cause == "healthy"
    late = replace(before, wait_us=ill.flat(500, 900_000))
    assert verdict(ill.service(requests, busy, listeners=[late])).cause == "accept-starved"


def stormed(accepted: int) -> Report:
    """Two workers that sleep in requests, and a queue that refuses far more than they take."""
    share = {"blocked_other": 0.95, "blocked_recv": 0.04, "sys_socket": 0.01, "blocked_poll": 0.0}
    asleep = [ill.thread(4711 + n, **share) for n in range(2)]
    full = replace(
        crowded(),
        depth=replace(crowded().depth, now=2, max=2, limit=2, histogram={"2": accepted}),
        backlog=replace(crowded().backlog, effective=1, clamped_by=None),
        accepted=accepted,
        refused={"EAGAIN": 300_000},
        wait_us=ill.flat(accepted, 2e7 / accepted),
        blocked_connects=None,
    )
    each_us = 0.95 * 2e7 / accepted
    requests = ill.served(accepted, recv_wait=10, app=each_us, other=99, cpu=1)
    return ill.service(requests, *asleep, listeners=[full])


def test_a_queue_that_empties_in_milliseconds_is_too_short_for_those_that_come_again() -> None:
    found = verdict(stormed(3000))
    assert (found.cause, found.class_) == ("accept-queue-full", "set-up")


def test_a_queue_whose_last_place_waits_long_is_full_because_of_what_is_slow() -> None:
    assert verdict(stormed(60)).cause == "app-blocked"


def test_an_acceptor_that_waits_for_a_free_thread_is_no_thread_that_has_time() -> None:
    """Puma with one thread: its server thread waits for it before each accept()."""
    worker = ill.thread(4711, "srv tp 001", sys_socket=0.001, blocked_lock=0.95, blocked_poll=0.049)
    acceptor = ill.thread(4712, "srv", sys_socket=0.0005, blocked_lock=0.99, blocked_poll=0.0095)
    late = replace(queueing(19, 5, threads=0), accepted_by_thread={"4712": 19})
    requests = ill.served(470, recv_wait=10, app=20_000, lock=96, cpu=4)
    report = ill.service(requests, worker, acceptor, listeners=[late])
    assert [t.tid for t in serving_threads(whole_service(report))] == [4711]
    assert verdict(report).cause == "app-blocked"
    seats: Dict[str, int] = {"4711": 10, "4712": 9}
    both = replace(late, accepted_by_thread=seats)
    assert len(serving_threads(whole_service(replace(report, listeners=[both])))) == 2


def test_a_service_of_several_targets_has_the_name_of_the_one_that_serves() -> None:
    """A worker that computes for a queue beside it is busier."""
    worker = replace(ill.thread(4712, "celery", user=0.9), pid=4712)
    report = ill.service(ill.served(100), worker)
    served = ServedBy(
        *(4711, "gunicorn", 100, 10.0, ill.flat(100, 400.0), StageMeans(), None, 0, 0, []),
        *(Waiting(0, None), Waiting(0, None), Waiting(0, None)),
    )
    assert report.time is not None
    time = replace(report.time, busiest=report.time.threads[0])
    targets = [reports.target(4712, "celery"), reports.target(4711, "gunicorn")]
    one = replace(report, targets=targets, time=time)
    assert whole_service(one).name == "celery"
    requests = replace(report.requests, served_by=[served])
    assert whole_service(replace(one, requests=requests)).name == "gunicorn"


# -- readers ---------------------------------------------------------------------------------------


def unread(stalled_us: float, transport: str = "tcp") -> Report:
    """A reply of 1.2 MB that fits into the sender's buffer; its reader takes nothing of it."""
    row = replace(
        ill.connection(queued=1_228_157, buffer=4_194_304, sent=0),
        transport=transport,
        requests=0,
        stopped_us=0.0,
        stops=0,
        reader_busy_us=3e4,
        stalled_us=stalled_us,
    )
    return ill.service(ill.served(0), idle(1)[0], connections=[row])


def test_a_tcp_reader_that_takes_nothing_stops_replies_that_fit_into_the_buffer() -> None:
    found = verdict(unread(3e6))
    assert found.cause == "send-blocked"
    assert found.harm.says == "replies on 1 connection are not read"
    assert verdict(unread(4e4)).cause == "unknown"


# -- requests that were there before udsprobe ------------------------------------------------------


@pytest.mark.parametrize(("is_first", "use"), [(False, 0.75), (True, 0.75 / 0.85), (None, 0.6)])
def test_requests_from_before_the_observation_kept_a_thread_too(
    is_first: Optional[bool], use: float
) -> None:
    """A worker asleep for 1.5 s in each of five requests, of which 10 s show five: what it did
    when udsprobe came is none of them. `None`: in each of ten for 0.6 s."""
    count, us = (10, 0.6e6) if is_first is None else (5, 1.5e6)
    worker = ill.thread(blocked_other=0.99, sys_socket=0.01, blocked_poll=0.0)
    report = ill.service(ill.served(count, app=us, other=100), worker)
    report = replace(report, window=replace(report.window, is_first=bool(is_first)))
    assert whole_service(report).counted_share == pytest.approx(0.85 if is_first else 1.0)
    assert request_time(whole_service(report)).occupied == pytest.approx(use + 0.01, rel=0.01)
    brief = replace(report, window=replace(report.window, duration_s=1.0))
    assert whole_service(brief).counted_share == (0.5 if is_first else 1.0)


# -- who accepts and leaves the request to a child -------------------------------------------------


def forking(before_us: float) -> Report:
    """The parent is busy with fork(); each request is that of a child that has ended."""
    accepted = replace(ill.quiet_listener(), accepted=400, accepted_by_thread={"4711": 400})
    parent = ill.thread(4711, sys_other=0.98, user=0.02)
    child = replace(ill.thread(4712, sys_socket=0.02, user=0.01), observed_s=0.5)
    requests = ill.served(400, before=before_us, app=60, recv_wait=10, cpu=100)
    return ill.service(requests, parent, child, listeners=[accepted])


def test_who_accepts_is_the_bottleneck_where_requests_wait_for_it() -> None:
    found = verdict(forking(90_000.0))
    assert (found.cause, found.subject) == ("app-cpu", "node thread 4711")


def test_who_accepts_may_work_where_nobody_waits_for_it() -> None:
    assert verdict(forking(10.0)).cause == "healthy"


def test_a_loop_that_polls_without_a_pause_keeps_nobody_waiting() -> None:
    """Its thread is all busy, and requests are there for a twelfth of the time."""
    requests = ill.served(4000, recv_wait=20, recv=5, send=15, app=160, cpu=100)
    spinning = ill.thread(user=0.78, sys_poll=0.21, sys_socket=0.01)
    polls = replace(syscall("epoll_wait", "other", calls=1_000_000), cpu_us=2e6)

    def polling(report: Report, times: int = 1_000_000) -> Report:
        assert report.time is not None
        loop = Loop(4711, 4711, "node", times, BusyTime(8.0, 500.0))
        return replace(report, time=replace(report.time, loops=[loop]))

    found = verdict(polling(ill.service(requests, spinning, syscalls=[polls])))
    assert found.cause == "healthy"
    assert any("with what no request waits for" in fact.says for fact in found.evidence)
    # Of two seconds of polling, what was while a request was there.
    assert found.max_gain_pct is not None and found.transport_share_pct is not None
    assert found.max_gain_pct - found.transport_share_pct == pytest.approx(19.2)
    late = ill.served(4000, recv_wait=20_000, recv=5, send=15, app=160, cpu=100)
    assert verdict(polling(ill.service(late, spinning))).cause == "app-cpu"
    # A connection for each request: what it is busy with may be their handshakes.
    new = replace(ill.quiet_listener(), established=1000, accepted=1000)
    assert verdict(polling(ill.service(requests, spinning, listeners=[new]))).cause == "app-cpu"
    # It polls once or twice for each request, and what it is busy with may be these.
    assert verdict(polling(ill.service(requests, spinning), 8000)).cause == "app-cpu"


@pytest.mark.parametrize(
    ("call", "opened", "told"),
    [("poll", 900, True), ("epoll_wait", 900, False), ("poll", 20, False)],
)
def test_a_poller_that_looks_at_all_descriptors(call: str, opened: int, told: bool) -> None:
    requests = ill.served(20_000, recv_wait=1200, app=1, cpu=100)
    thread = ill.thread(user=0.02, sys_poll=0.92, sys_socket=0.05)
    polls = replace(syscall(call, "other", calls=8000), cpu_us=9.2e6)
    fds = replace(reports.target(4711, "node").fds, open=opened)
    found = verdict(ill.service(requests, thread, syscalls=[polls], fds=fds))
    assert found.cause == "transport"
    assert ("spends its time in poll()" in found.summary) is told
    assert any("wait with epoll in place of poll()" in each.say for each in found.actions) is told
