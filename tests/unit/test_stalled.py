"""Servers that answer nobody since before udsprobe came: what keeps them, where it can be told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest

from tests.unit import ill
from tests.unit.test_stuck import NONE, OTHER, owing, reported, verdict, wait
from udsprobe.model.report import Peer, Report, ServedBy, Waiting, WaitNow

UPSTREAM = {"kind": "recv", "call": "recvfrom", "connection": "upstream", "peer": OTHER}


def before(asked: int = 4, unread: int = 0) -> ServedBy:
    return replace(
        owing(owed=0),
        asked_before=Waiting(asked, 9e6) if asked else NONE,
        unread=Waiting(unread, 10e6) if unread else NONE,
    )


def asleep(tid: int, **changes: Any) -> WaitNow:
    return wait(tid, **{"replies_owed": 0, "is_serving": False, "lasted_us": 10e6, **changes})


def hangs(*waits: WaitNow, row: Optional[ServedBy] = None) -> Report:
    return reported(*waits, threads=8, row=before() if row is None else row)


def poller(polls_clients: Optional[bool], tid: int = 4711, call: str = "epoll_wait") -> WaitNow:
    return asleep(tid, kind="poll", call=call, lock=None, polls_clients=polls_clients)


def test_threads_that_all_wait_for_one_lock() -> None:
    """Another one waits for messages, in the background."""
    locked = [asleep(tid) for tid in (4712, 4713, 4714, 4715)]
    found = verdict(hangs(*locked, asleep(4716, **UPSTREAM, lock=None)))
    assert (found.cause, found.harm.kind, found.harm.count) == ("app-blocked", "stuck", 4)
    assert found.summary.startswith("4 replies outstanding, the oldest for 9 s: ")
    assert "waiting for a lock (futex) for 10 s or longer" in found.summary
    assert "on 4 connections the client has spoken last, 9 s ago" in found.evidence[0].says


@pytest.mark.parametrize(
    ("socket", "begins"),
    [
        ("/run/postgresql/.s.PGSQL.5432", "psql -c"),
        ("/run/postgresql/.s.PGSQL.5433", "psql -p 5433 -c"),
        ("/srv/my db/.s.PGSQL.5432", "psql -h '/srv/my db' -c"),
    ],
)
def test_psql_is_told_where_postgresql_listens(socket: str, begins: str) -> None:
    locked = [asleep(tid) for tid in (4712, 4713, 4714, 4715)]
    report = hangs(*locked)
    postgres = [replace(each, comm="postgres") for each in report.targets]
    listener = replace(ill.quiet_listener(), transport="unix", address=socket, pids=[1])
    found = verdict(replace(report, targets=postgres, listeners=[listener]))
    assert (found.actions[0].run or "").startswith(f"sudo -u postgres {begins} ")
    assert found.actions[0].do == found.actions[0].run


def test_one_thread_that_sleeps_beside_a_loop_is_a_helper_perhaps() -> None:
    """It looks names up for the loop, which polls with a time limit: no sleep of it is long."""
    assert verdict(hangs(asleep(4712))).cause == "unknown"
    assert verdict(hangs(asleep(4712), row=before(asked=1))).cause == "app-blocked"


@pytest.mark.parametrize("language", ["go", None])
def test_what_may_be_a_subscriber_is_looked_at_and_nothing_is_ended(
    language: Optional[str],
) -> None:
    """As of nats-server, whose dump of goroutines ends it."""
    report = hangs(asleep(4712))
    spoken = replace(report, targets=[replace(report.targets[0], language=language)])
    found = verdict(spoken)
    assert (found.cause, {each.effect for each in found.actions}) == ("unknown", {"looks"})


@pytest.mark.parametrize(
    ("asleep_threads", "polls", "is_told"), [(4, True, True), (4, None, True), (1, True, False)]
)
def test_a_pool_whose_threads_all_sleep_leaves_requests_unread(
    asleep_threads: int, polls: Optional[bool], is_told: bool
) -> None:
    """The loop sleeps beside them: it has handed these connections over."""
    pool = [asleep(4712 + n, kind="sleep", call="nanosleep") for n in range(asleep_threads)]
    found = verdict(hangs(poller(polls), *pool, row=before(asked=0, unread=3)))
    assert found.summary.startswith("3 requests unread, the oldest for 10 s")
    assert ("asleep by a timer (nanosleep) for 10 s or longer" in found.summary) == is_told
    if is_told:
        assert "4 threads of it that may have one wait" in [f.says for f in found.evidence]


@pytest.mark.parametrize(
    ("main", "cause", "says"),
    [
        (asleep(4711, **UPSTREAM), "upstream-wait", "postgres 498 has sent nothing since"),
        (asleep(4711, kind="child", call="wait4"), "app-blocked", "(wait4) for 10 s or longer"),
        (poller(False), "app-blocked", "of which none can be its client's"),
    ],
    ids=["upstream", "child", "another set"],
)
@pytest.mark.parametrize("unread", [0, 3])
def test_an_event_loop_that_waits_for_something_else(
    main: WaitNow, cause: str, says: str, unread: int
) -> None:
    """However many threads of its pool have no work."""
    pool = [asleep(tid) for tid in (4712, 4713, 4714, 4715)]
    found = verdict(hangs(main, *pool, row=before(unread=unread)))
    assert (found.cause, says in found.summary) == (cause, True)
    assert found.summary.startswith(
        "3 requests unread, the oldest for 10 s or longer"
        if unread
        else "4 replies outstanding, the oldest for 9 s: "
    )


@pytest.mark.parametrize(
    "waits",
    [
        [poller(True), asleep(4712), asleep(4713)],
        # Of poll() it is not known for whom.
        [poller(None, call="poll"), asleep(4712), asleep(4713)],
        [asleep(4711, kind="recv", connection="served"), asleep(4712), asleep(4713)],
        # Each waits for something of its own.
        [asleep(4712, lock="0x1"), asleep(4713, lock="0x2")],
        [asleep(4711, kind="other"), asleep(4712, kind="sleep")],
        # The loop, or a first thread that leaves all work to the others.
        [asleep(4711, kind="sleep"), asleep(4712), asleep(4713)],
    ],
    ids=["polls clients", "poll()", "receives", "two locks", "not told", "sleeps"],
)
def test_what_cannot_be_told(waits: Any) -> None:
    found = verdict(hangs(*waits))
    assert (found.cause, found.harm.kind) == ("unknown", "unknown")
    assert found.summary.startswith("On 4 connections the client has spoken last, ")
    assert "requests that hang, long polls, or messages that need no reply" in found.summary
    assert [each.effect for each in found.actions] == ["looks"]


def test_the_only_thread_sleeps() -> None:
    found = verdict(hangs(asleep(4711, kind="sleep", call="clock_nanosleep")))
    assert found.cause == "app-blocked"
    assert "(clock_nanosleep) for 10 s or longer" in found.summary


def naps(threads: int = 1, row: Optional[ServedBy] = None, **share: float) -> Report:
    """Its sleeps are short: none goes on for long."""
    report = reported(threads=threads, row=before() if row is None else row)
    spent = {"blocked_other": 1 - sum(share.values()), "blocked_poll": 0.0, **share}
    return replace(report, time=ill.time_of(ill.thread(**spent)))


def test_the_only_thread_sleeps_time_after_time() -> None:
    found = verdict(naps())
    assert (found.cause, found.harm.kind, found.harm.count) == ("app-blocked", "stuck", 4)
    assert "4 replies outstanding, the oldest for 9 s: node 4711 is asleep" in found.summary
    assert "on 4 connections the client has spoken last, 9 s ago" in found.evidence[0].says
    assert found.confidence > 0.9


@pytest.mark.parametrize(
    "report",
    [
        naps(sys_poll=0.001),
        naps(sys_socket=0.001),
        naps(blocked_recv=0.1),
        naps(threads=2),
        naps(row=before(asked=0)),
        naps(row=replace(before(), asked_before=Waiting(4, 9e5))),
        naps(row=replace(before(), count=3)),
        naps(user=0.3),
    ],
    ids=["polls", "receives", "reads", "two", "nobody asks", "just came", "serves", "computes"],
)
def test_who_may_attend_its_clients_between_two_sleeps(report: Report) -> None:
    assert verdict(report).cause == "unknown"


def test_who_computes_waits_for_nothing() -> None:
    report = replace(
        hangs(poller(False), row=before(unread=3)), time=ill.time_of(ill.thread(4713, user=1.0))
    )
    assert verdict(report).cause == "app-cpu"


def test_who_serves_is_not_hung() -> None:
    found = verdict(hangs(poller(False), row=replace(before(), count=3)))
    assert found.cause == "unknown"


def test_nobody_waits() -> None:
    found = verdict(hangs(poller(False), row=before(asked=0)))
    assert (found.cause, found.evidence[0].metric) == ("unknown", "requests")


def test_who_has_asked_before_is_told_beside_those_that_are_served() -> None:
    """Whether these are stuck is not known: it is evidence, and no headline."""
    requests = ill.served(2000, app=50)
    report = ill.service(requests, ill.thread(user=0.1))
    row = replace(before(asked=3), count=2000)
    asked = replace(report.requests, served_by=[row])
    found = verdict(replace(report, requests=asked))
    assert (found.cause, found.harm.kind) == ("healthy", "none")
    assert "on 3 connections the client has spoken last" in found.evidence[0].says
    assert "outstanding" not in found.summary


def test_what_a_proxy_waits_for_while_it_serves_others_is_told_in_the_headline() -> None:
    """Of three clients since before: nginx has asked for them, and serves those of another path."""
    report = ill.service(ill.served(2000, app=50), ill.thread(user=0.1))
    row = replace(before(asked=3), count=2000)
    peer = Peer(55, "slow", "127.0.0.1:8080")
    asks = replace(ill.connection(role="upstream", peer=peer), transport="tcp", asking_us=9e6)
    stalled = replace(
        report,
        requests=replace(report.requests, served_by=[row]),
        connections=[replace(asks, pid=row.pid)] * 3,
    )
    found = verdict(stalled)
    assert (found.cause, found.harm.kind) == ("healthy", "none")
    assert "; on 3 connections the client has spoken last" in found.summary
    assert "wait for slow 55 at tcp:127.0.0.1:8080, the oldest for 9 s" in found.summary
    assert found.actions[0].run is not None and "attach" in found.actions[0].run
    # It is for nobody who has asked since, nor for the last frame of HTTP/2.
    earlier = [replace(asks, pid=row.pid, asking_us=20e6)] * 3
    assert "wait for slow" not in verdict(replace(stalled, connections=earlier)).summary
    frames = replace(stalled.requests, served_by=[replace(row, multiplexed=2000)])
    assert "wait for slow" not in verdict(replace(stalled, requests=frames)).summary
    # What another process waits for may be for nobody.
    other = replace(stalled, connections=[replace(asks, pid=row.pid + 1)] * 3)
    assert "wait for slow" not in verdict(other).summary
