"""Harm: who suffers comes first, and what hurts most wins."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional

import pytest

from tests.unit import ill
from tests.unit.reports import connect, crowded, syscall
from udsprobe.model.report import (
    CpuHolder,
    Latency,
    Listener,
    Peer,
    Report,
    ServedBy,
    StageMeans,
    ThreadTime,
    Verdict,
    Waiting,
    WaitNow,
)
from udsprobe.rules import judged
from udsprobe.rules.harm import slow_requests
from udsprobe.rules.turned_away.closed_unread import closed_unread_suspects
from udsprobe.views.fields.verdict import said


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def short_queue(refused: int, accepted: int, **more: object) -> Listener:
    """Backlog 4, always full."""
    row = crowded()
    fields = {
        "backlog": replace(
            row.backlog, requested=4, effective=4, clamped_by=None, equals_somaxconn=False
        ),
        "depth": replace(row.depth, now=5, max=5, limit=5, histogram={"4": 50, "5": 150}),
        "established": accepted,
        "accepted": accepted,
        "wait_us": ill.flat(accepted, 250.0),
        "refused": {"EAGAIN": refused},
        **more,
    }
    return replace(row, **fields)


def contended(report: Report, holder: str = "client") -> Report:
    """Its threads wait for a CPU that somebody else holds."""
    assert report.time is not None
    held = [CpuHolder(99, holder, False, 4_900_000.0, 100.0)]
    return replace(report, time=replace(report.time, cpu_holders=held))


def storm(*, user: float = 0.3, runq: float = 0.55, refused: int = 50_000) -> Report:
    """200 served, 50,000 refused, and the CPU held by those that try again."""
    requests = ill.served(200, recv_wait=500, app=400, runq=50.0, cpu=50.0)
    thread = ill.thread(user=user, sys_socket=0.1, runq=runq)
    return contended(ill.service(requests, thread, listeners=[short_queue(refused, 200)]))


def test_a_retry_storm_is_no_demand() -> None:
    found = verdict(storm())
    assert (found.cause, found.class_) == ("accept-queue-full", "set-up")
    assert (found.harm.kind, found.harm.count) == ("refused", 50_000)
    assert found.harm.share_pct == pytest.approx(100 * 50_000 / 50_200)
    assert found.summary.startswith(
        "99.6 % of connects refused: accept queue of unix:/run/app.sock is full at 5/5; backlog 4 "
        "is too small, node is 40 % busy."
    )
    assert any("backlog: 1024" in each.do for each in found.actions)


def test_a_storm_before_a_thread_that_works_all_the_time_has_its_root_there() -> None:
    found = verdict(storm(user=0.85, runq=0.02))
    assert (found.cause, found.class_) == ("app-cpu", "not-transport")
    assert found.harm.kind == "refused"
    assert found.summary.startswith("99.6 % of connects refused: node thread 4711 is 97 % busy")
    assert "as a result, accept queue" in found.summary


def test_a_root_is_as_severe_as_what_follows_from_it() -> None:
    """Workers that sleep in requests: late is a warning, and turned away is not."""
    requests = ill.served(400, app=20_000, cpu=1.0, other=99.0)
    sleeping = ill.thread(user=0.01, blocked_other=0.98)
    late = judged(ill.service(requests, sleeping))
    assert late.findings is not None
    assert [(each.id, each.severity) for each in late.findings] == [("app-blocked", "warning")]
    turned_away = [short_queue(2_000, 400, wait_us=ill.flat(400, 600_000.0))]
    found = judged(ill.service(requests, sleeping, listeners=turned_away))
    assert found.verdict is not None and found.verdict.cause == "app-blocked"
    assert found.verdict.harm.kind == "refused"
    assert found.findings is not None and found.findings[0].severity == "critical"


def test_a_storm_that_leaves_a_server_no_cpu_at_all() -> None:
    """Nothing is accepted, and not because nobody wants to: let them in, and they sleep."""
    nothing = {"wait_us": ill.flat(0, 0.0), "depth": replace(crowded().depth, now=5, histogram={})}
    row = short_queue(300_000, 0, **nothing)
    kept_off = ill.thread(runq=0.99)
    found = verdict(ill.service(ill.served(35, app=22_000), kept_off, listeners=[row]))
    assert (found.cause, found.harm.kind) == ("accept-queue-full", "refused")
    assert "node is 0.0 % busy" in found.summary


def test_a_loop_that_never_comes_back_is_the_root_of_its_queue() -> None:
    depth = replace(short_queue(1, 1).depth, histogram={})
    row = short_queue(300_000, 0, wait_us=ill.flat(0, 0.0), depth=depth)
    found = verdict(ill.service(ill.served(0), ill.thread(user=1.0), listeners=[row]))
    assert (found.cause, found.harm.kind) == ("app-cpu", "refused")


def test_a_server_that_waits_for_strangers_cpu_with_few_refusals_is_contended() -> None:
    found = verdict(storm(refused=100))
    assert (found.cause, found.harm.kind) == ("cpu-contention", "refused")


def test_a_full_queue_that_nobody_empties_is_starved() -> None:
    """All threads asleep in their poller: a longer queue would be a longer wait."""
    full = short_queue(40, 0, wait_us=ill.flat(0, 0.0))
    found = verdict(ill.service(ill.served(4000), ill.thread(user=0.05), listeners=[full]))
    assert (found.cause, found.class_, found.harm.kind) == ("accept-starved", "set-up", "refused")
    assert "the limit of connections or workers is reached" in found.summary
    assert "queue is full at 5/5" in found.summary
    assert all("backlog: 1024" not in each.do for each in found.actions)


def test_seats_that_are_free_now_and_then_are_taken_all_the_same() -> None:
    seldom = short_queue(400, 6, wait_us=ill.flat(6, 1_900_000.0))
    found = verdict(ill.service(ill.served(900), ill.thread(user=0.05), listeners=[seldom]))
    assert (found.cause, found.harm.kind) == ("accept-starved", "refused")


def test_a_socket_that_nobody_may_open_is_a_matter_of_its_set_up() -> None:
    refused = replace(ill.quiet_listener(), established=0, refused={"EACCES": 30})
    report = judged(ill.service(ill.served(0), listeners=[refused]))
    told = said(report)
    assert told is not None and report.verdict is not None
    assert told.name == "THE SOCKET'S SET-UP"
    assert report.verdict.harm.says == "100 % of connects to unix:/run/app.sock fail"
    assert "EACCES" in told.headline


def test_what_more_users_meet_comes_first() -> None:
    """Three lookups that fail, beside a queue that refuses half of all clients."""
    queue = short_queue(400, 400)
    report = ill.service(ill.served(4000), listeners=[queue])
    lookups = connect("/run/statsd.sock", calls=3, errors={"ENOENT": 3})
    assert verdict(replace(report, connects=[lookups])).cause == "accept-queue-full"
    all_of_them = connect("/run/pg.sock", calls=4000, errors={"ECONNREFUSED": 4000})
    assert verdict(replace(report, connects=[all_of_them])).cause == "connect-failing"


def hung(report: Report) -> Report:
    """A process that owes 48 replies and waits for a lock."""
    row = ServedBy(
        pid=4711,
        comm="node",
        count=3,
        rate_per_s=0.3,
        latency_us=ill.flat(3, 900.0),
        stages_mean_us=StageMeans(app=850.0),
        app_time_pct=None,
        handed_over=0,
        pipelined=0,
        upstream=[],
        in_progress=Waiting(48, 19_000_000.0),
        unread=Waiting(0, None),
        asking=Waiting(0, None),
    )
    return replace(report, requests=replace(report.requests, served_by=[row]))


def test_replies_that_are_owed_are_stuck_since_the_oldest() -> None:
    asleep = ill.thread(blocked_lock=0.97)
    found = verdict(hung(ill.service(ill.served(3), asleep)))
    assert (found.harm.kind, found.harm.count, found.harm.since_s) == ("stuck", 48, 19.0)


def unread_beside(computes: ThreadTime, polls_clients: Optional[bool]) -> Report:
    """48 requests that nobody reads, a thread that polls, and another one."""
    polls = ill.thread(4712, "watcher")
    report = hung(ill.service(ill.served(3), computes, polls))
    row = (report.requests.served_by or [])[0]
    nothing = Waiting(0, None)
    row = replace(row, count=0, in_progress=nothing, unread=Waiting(48, 19_000_000.0))
    poller = replace(asleep(4712), polls_clients=polls_clients)
    return replace(report, requests=replace(report.requests, served_by=[row]), waits_now=[poller])


def asleep(tid: int) -> WaitNow:
    at = "2026-11-25T02:05:32.635+00:00"
    return WaitNow(4711, tid, "watcher", "poll", "epoll_wait", at, 3e6, 0, None, None, None, None)


@pytest.mark.parametrize(
    ("share", "polls_clients", "cause"),
    [
        ({"user": 1.0}, False, "app-cpu"),
        # Strangers have the CPU half of the time: without them it would hang as well.
        ({"user": 0.45, "runq": 0.55}, False, "app-cpu"),
        ({"user": 0.02, "runq": 0.98}, False, "cpu-contention"),
        ({"blocked_lock": 1.0}, False, "app-blocked"),
        # There is somebody who would read.
        ({"user": 1.0}, None, "app-blocked"),
    ],
)
def test_who_computes_on_and_on_is_not_seen_to_serve(
    share: Dict[str, float], polls_clients: Optional[bool], cause: str
) -> None:
    busy = ill.thread(4711, **{"blocked_poll": 0.0, **share})
    found = verdict(unread_beside(busy, polls_clients))
    assert found.cause == cause


@pytest.mark.parametrize(("count", "kind"), [(4000, "none"), (3, "unknown")])
def test_nobody_suffers_or_nobody_knows(count: int, kind: str) -> None:
    found = verdict(ill.service(ill.served(count)))
    assert (found.harm.kind, found.harm.share_pct) == (kind, 0.0 if kind == "none" else None)


@pytest.mark.parametrize("peers", [[], [Peer(4711, "node")]])
def test_who_is_turned_away_is_told_by_whom(peers: List[Peer]) -> None:
    """Attached to the clients: the queue, and its owner where somebody answered once."""
    row = connect("/run/app.sock", calls=50_200, errors={"EAGAIN": 50_000})
    report = replace(ill.service(ill.served(0)), connects=[row], syscalls=[syscall("read")])
    asked = [replace(ill.upstream(200, 900.0, "/run/app.sock"), peer=peer) for peer in peers]
    requests = replace(report.requests, upstream=asked)
    found = verdict(replace(report, requests=requests))
    owner: Optional[str] = " of node 4711" if peers else ""
    assert found.summary.startswith(
        f"99.6 % of connects refused: accept queue of unix:/run/app.sock{owner} is full"
    )
    told = any("backlog: 1024" in each.do for each in found.actions)
    assert told == bool(peers)


def test_who_held_the_cpu_for_a_part_of_the_time_is_one_of_several() -> None:
    waiting = ill.served(4000, app=9000.0, runq=80.0, cpu=20.0)
    thread = ill.thread(user=0.1, runq=0.7)
    for share, told in ((86.0, "make 99 holds it"), (9.0, "make 99 held it for 9.0 % of")):
        report = ill.service(waiting, thread)
        assert report.time is not None
        others = [CpuHolder(100 + n, f"job{n}", False, 1_000.0, 8.0) for n in range(11)]
        held = [CpuHolder(99, "make", False, 1_100.0, share), *others]
        found = verdict(replace(report, time=replace(report.time, cpu_holders=held)))
        assert found.cause == "cpu-contention" and told in found.summary


@pytest.mark.parametrize(
    ("count", "says"),
    [
        (99, "the slowest of 99 requests takes 206 ms"),
        (100, "1 % of requests take 200 ms or more"),
    ],
)
def test_a_hundredth_of_fewer_than_a_hundred_is_the_slowest(count: int, says: str) -> None:
    latency = Latency(count, 9e3, p50=5e3, p90=8e3, p99=200e3, p999=206e3, max=206e3)
    served = replace(ill.served(count), latency_us=latency)
    assert slow_requests(ill.service(served, ill.thread())).says == says


def closing(
    closed: Optional[int], *, sent: int = 0, read_from: int = 0, kept: bool = False
) -> Report:
    """Of 5,000 connections so many are closed unread; `kept`: one from before has requests."""
    row = replace(
        ill.quiet_listener(),
        accepted=5000,
        established=5000,
        read_from=read_from,
        closed_unread=closed,
        closed_unread_sent=sent,
    )
    report = ill.service(
        ill.served(200), ill.thread(user=0.5, sys_socket=0.4), listeners=[row], syscalls=[]
    )
    return replace(report, connections=[replace(ill.connection(), local=row.address)] * kept)


def test_connections_that_are_closed_unread_are_refused_by_the_program() -> None:
    """As nginx does without worker_connections: its clients come again, and are no churn."""
    found = verdict(closing(4600, read_from=400))
    assert (found.cause, found.class_, found.harm.kind) == ("accept-starved", "set-up", "refused")
    assert (found.harm.count, found.summary[:30]) == (4600, "92 % of connects closed unread")
    assert "its own limit of connections is reached" in found.summary
    assert found.confidence > 0.9
    assert {each.metric: each.value for each in found.evidence} == {
        "closed_unread": 4600,
        "read_from": 400,
    }


def test_who_only_speaks_is_not_at_its_limit() -> None:
    """Daytime writes and closes, and its clients say nothing; others are served elsewhere."""
    assert closed_unread_suspects(closing(5000)) == []


@pytest.mark.parametrize("how", [{"read_from": 1}, {"kept": True}, {"sent": 50}])
def test_who_serves_others_there_or_was_asked_is(how: Dict[str, int]) -> None:
    (found,) = closed_unread_suspects(closing(5000, **how))  # type: ignore[arg-type]
    assert found.harm is not None and (found.harm.kind, found.harm.share_pct) == ("refused", 100)


def test_a_few_closed_unread_are_none_and_unknown_is_not_0() -> None:
    assert closed_unread_suspects(closing(49, read_from=4900)) == []
    assert len(closed_unread_suspects(closing(50, read_from=4900))) == 1
    assert closed_unread_suspects(closing(None, read_from=4900)) == []
    # The clients of daytime that send something are few.
    assert closed_unread_suspects(closing(5000, sent=49)) == []
