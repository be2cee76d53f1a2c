"""Clients that give up: the harm of what makes them wait, or an illness of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional, Tuple

import pytest

from tests.unit import ill
from tests.unit.reports import target
from udsprobe.model.report import (
    CodePlace,
    Connection,
    GivenUp,
    Latency,
    Peer,
    ProcessSleep,
    Report,
    ServedBy,
    SleepCall,
    Sleeps,
    Stacks,
    StageMeans,
    ThreadTime,
    Unanswered,
    Verdict,
    Waiting,
    WaitNow,
)
from udsprobe.rules import judged

NONE, PID = Waiting(0, None), 4711


def left(count: int = 50, after_us: Optional[float] = 1e6, **changes: Any) -> GivenUp:
    return replace(
        GivenUp(count, 0, after_us if count else None, 0.0 if count else None), **changes
    )


def row(given_up: Optional[GivenUp], served: int = 150, **changes: Any) -> ServedBy:
    fixed = ServedBy(
        *(PID, "node", served, served / 10, ill.flat(served, 400.0), StageMeans(), None, 0, 0, []),
        in_progress=NONE,
        unread=NONE,
        asking=NONE,
        given_up=given_up,
    )
    return replace(fixed, **changes)


def reported(one: ServedBy, *threads: ThreadTime, app_us: float = 150.0) -> Report:
    report = ill.service(ill.served(one.count, app=app_us), *(threads or (ill.thread(),)))
    requests = replace(report.requests, served_by=[one])
    return replace(report, requests=requests, targets=[target(PID, one.comm or "node")])


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def test_a_loop_that_leaves_requests_without_a_reply() -> None:
    found = verdict(reported(row(left()), ill.thread(user=0.02, blocked_poll=0.98)))
    assert (found.cause, found.class_, found.subject) == (
        "app-blocked",
        "not-transport",
        "node 4711",
    )
    assert (found.harm.kind, found.harm.count, found.harm.share_pct) == ("failed", 50, 25.0)
    assert found.summary.startswith(
        "25 % of requests end without a reply: their clients give up after 1 s on average: "
        "node 4711 does not answer them, and its threads that serve are asleep in its poller for "
        "98 % of the time"
    )
    assert found.actions[0].run is None and "timeout" in found.actions[0].say


@pytest.mark.parametrize(("call", "is_told"), [("openat", True), ("futex", False)])
def test_threads_of_its_pool_that_are_in_the_middle_of_something_are_told(
    call: str, is_told: bool
) -> None:
    """Node's four, in a file system that does not answer: the loop is free all the while."""
    report = reported(row(left()), ill.thread(user=0.02, blocked_poll=0.98))
    at = "2026-11-29T18:00:00"
    waits = [
        WaitNow(PID, tid, "node", "other", call, at, 1e6 * tid, 9, None, None, None, None)
        for tid in (5, 6, 7, 8)
    ]
    found = verdict(replace(report, waits_now=waits))
    says = "; 4 other threads sleep in openat, for 8 s now"
    assert (says in found.summary) == is_told
    assert [each.run is not None for each in found.actions] == [True] * is_told + [False]


def test_what_idle_threads_of_a_pool_sleep_in_is_not_told_of_it() -> None:
    """Node's wait for work, in a lock, while its loop waits for events."""
    report = reported(row(left()), ill.thread(user=0.02, blocked_poll=0.98))
    place = CodePlace(
        *("uv_cond_wait", "node", None, None, 100.0, "off-cpu", ["uv_cond_wait (node)"], None)
    )
    calls = [SleepCall("futex", 9, 0, 4e6, 4e6, [place])]
    slept = Sleeps(4.0, 9, 0, 0, 4e6, [ProcessSleep(PID, 9, 4e6, 4e6, calls)])
    stacks = Stacks(99, 4.0, 0, 0, 0, [PID], [], True, [], [], [], 0, slept)
    found = verdict(replace(report, stacks=stacks))
    assert "uv_cond_wait" not in found.summary and not found.code
    # Of what its own threads sleep in while they serve, it is.
    busy = reported(row(left()), ill.thread(user=0.02, blocked_futex=0.98))
    assert "uv_cond_wait" in verdict(replace(busy, stacks=stacks)).summary


@pytest.mark.parametrize(("threads", "is_told"), [(1, False), (4, True)])
def test_threads_that_are_in_one_function_all_the_time_are_told(
    threads: int, is_told: bool
) -> None:
    """Workers of gRPC, each held by a stream, while its poller waits for events."""
    report = reported(row(left()), ill.thread(user=0.02, blocked_poll=0.98))
    watch = "watch (api.py:8)"
    place = CodePlace(*(watch, None, "api.py", 8, 100.0, "off-cpu", [watch], watch))
    calls = [SleepCall("clock_nanosleep", 80, 0, threads * 4e6, None, [place])]
    slept = Sleeps(4.0, 80, 0, 0, threads * 4e6, [ProcessSleep(PID, 80, 4e6, None, calls)])
    stacks = Stacks(99, 4.0, 0, 0, 0, [PID], [], True, [], [], [], 0, slept)
    found = verdict(replace(report, stacks=stacks))
    assert (f"; 4 of its threads are all the time in {watch}" in found.summary) == is_told
    assert bool(found.code) == is_told
    assert ("more threads" in (found.actions[0].do or "")) == is_told


def test_of_those_whose_connections_stay_open_it_is_not_known_when_they_left() -> None:
    kept = row(left(0, kept_open=50), abandoned=Waiting(60, 40e6), unanswered=Waiting(60, 40e6))
    found = verdict(reported(kept))
    assert (found.cause, found.harm.kind, found.harm.count) == ("app-blocked", "failed", 50)
    assert "give up: node 4711 does not answer them" in found.summary
    assert [(each.metric, each.value) for each in found.evidence] == [
        ("given_up", 50),
        ("abandoned", 60),
    ]


@pytest.mark.parametrize(
    "one",
    [
        row(None),
        row(left(0)),
        row(left(2)),
        row(left(50), served=10_000),
        # Who did not wait as long as the slow ones that got a reply.
        row(left(after_us=10_000.0), latency_us=ill.flat(150, 20_000.0)),
        # A moment ago; its reply may be on its way.
        row(left(0, kept_open=50), abandoned=Waiting(50, 0.2e6)),
        # Of long ago.
        row(left(0), abandoned=Waiting(50, 3600e6)),
    ],
    ids=["not measured", "none", "two", "one in two hundred", "impatient", "just now", "old"],
)
def test_what_is_none(one: ServedBy) -> None:
    found = verdict(reported(one))
    assert (found.cause, found.harm.kind) == ("healthy", "none")


def test_at_a_deadline_replies_and_clients_that_leave_take_as_long() -> None:
    """gRPC's server replies at the client's deadline, if it is first."""
    found = verdict(reported(row(left(11, 303_000.0), 4, latency_us=ill.flat(4, 308_000.0))))
    assert (found.cause, found.harm.kind, found.harm.count) == ("app-blocked", "failed", 11)


def test_what_makes_requests_that_late_is_the_reason() -> None:
    slow = row(left(after_us=100_000.0), latency_us=ill.flat(150, 80_000.0))
    slow = replace(slow, stages_mean_us=StageMeans(app=80_000.0))
    busy = ill.thread(user=0.97, sys_socket=0.02)
    found = verdict(reported(slow, busy, app_us=80_000.0))
    assert (found.cause, found.harm.kind, found.harm.count) == ("app-cpu", "failed", 50)
    assert found.summary.startswith("25 % of requests end without a reply: their clients give up")
    assert "given_up" in [each.metric for each in found.evidence]


def test_what_is_far_quicker_is_not() -> None:
    """A loop that is busy with quick requests does not explain a second."""
    found = verdict(reported(row(left()), ill.thread(user=0.97, sys_socket=0.02)))
    assert (found.cause, found.subject) == ("app-blocked", "node 4711")


def test_waiting_for_an_upstream_meanwhile() -> None:
    asked = Peer(498, "postgres", address="/run/pg.sock")
    waited = row(left(upstream_mean_us=0.9e6))
    report = reported(waited)
    found = verdict(replace(report, connections=[upstream(asked)], connections_total=1))
    assert (found.cause, found.subject) == ("upstream-wait", "unix:/run/pg.sock")
    assert "node 4711 waits for postgres 498 at unix:/run/pg.sock meanwhile" in found.summary
    assert found.actions[0].run == "sudo udsprobe attach --pid 498"
    several = verdict(report)
    assert (several.cause, "waits for an upstream meanwhile" in several.summary) == (
        "upstream-wait",
        True,
    )


def upstream(peer: Peer) -> Connection:
    return replace(ill.connection(), pid=PID, role="upstream", transport="unix", peer=peer)


A, B = Peer(61, "node", "127.0.0.1:9001"), Peer(None, None, "127.0.0.1:9002")


def behind(*own: Connection, asking: int = 8, oldest_us: float = 5e6) -> Report:
    """A proxy that keeps the connections of clients that have left, and what it has asked."""
    kept = row(
        GivenUp(0, 8, None, None),
        abandoned=Waiting(8, 5e6),
        asking=Waiting(asking, oldest_us),
        unanswered=Waiting(8, 5e6),
    )
    return replace(reported(kept), connections=list(own), connections_total=60)


def answering(peer: Peer) -> Connection:
    return replace(upstream(peer), transport="tcp", requests=9, bytes_in=900, bytes_out=900)


def silent(peer: Peer) -> Connection:
    return replace(upstream(peer), transport="tcp", requests=0, bytes_in=0, bytes_out=100)


def test_the_upstream_that_answers_nothing_while_others_do() -> None:
    found = verdict(behind(answering(A), *[silent(B)] * 4))
    assert (found.cause, found.subject) == ("upstream-wait", "tcp:127.0.0.1:9002")
    assert (
        "node 4711 waits for tcp:127.0.0.1:9002 (of its upstreams only this one answers nothing) "
        "meanwhile" in found.summary
    )
    assert found.actions[0].run == "sudo udsprobe attach --listener 127.0.0.1:9002"


@pytest.mark.parametrize(
    "own",
    [
        (answering(A), *[silent(B)] * 3),
        (answering(A), answering(B), *[silent(B)] * 4),
        (*[silent(A)] * 4, *[silent(B)] * 4),
    ],
    ids=["few of those that wait", "it answers others", "two"],
)
def test_which_upstream_answers_nothing_is_not_always_known(own: Tuple[Connection, ...]) -> None:
    found = verdict(behind(*own))
    assert (found.cause, "waits for an upstream meanwhile" in found.summary) == (
        "upstream-wait",
        True,
    )


def test_connections_kept_open_wait_for_upstreams_where_as_many_are_asked() -> None:
    assert verdict(behind(silent(B), asking=7)).cause == "app-blocked"
    assert verdict(behind(silent(B), oldest_us=2e6)).cause == "app-blocked"


def test_latency_without_percentiles() -> None:
    old = row(left(after_us=1e6), latency_us=Latency(count=150, mean=400.0, max=2e6))
    assert verdict(reported(old)).cause == "healthy"


def ends(count: int, served: int = 150, state: str = "running") -> Report:
    report = reported(replace(row(left(0), served=served), dropped=Unanswered(count, 20_000.0)))
    return replace(report, targets=[replace(report.targets[0], state=state)])


@pytest.mark.parametrize(
    ("state", "says"), [("running", "closes their connections"), ("exited", "ended with them")]
)
def test_a_program_that_ends_requests_without_a_reply(state: str, says: str) -> None:
    found = verdict(ends(50, state=state))
    assert (found.cause, found.harm.kind, found.harm.share_pct) == ("app-blocked", "failed", 25.0)
    assert found.summary.startswith("25 % of requests end without a reply: node 4711 " + says)
    assert "20 ms after it received them on average" in found.summary
    assert "in the log of node 4711" in found.actions[0].say


@pytest.mark.parametrize(("count", "served"), [(2, 20), (50, 10_000), (50, 0)])
def test_few_of_them_or_a_protocol_without_replies(count: int, served: int) -> None:
    found = verdict(ends(count, served=served))
    assert found.cause == ("unknown" if not served else "healthy")


@pytest.mark.parametrize(("after_us", "cause"), [(200_000.0, "unknown"), (2e6, "app-blocked")])
def test_who_never_replied_may_not_have_to(after_us: float, cause: str) -> None:
    """Half-closed uploads end so; clients that leave after seconds had hoped for something."""
    assert verdict(reported(row(left(after_us=after_us), served=0))).cause == cause
