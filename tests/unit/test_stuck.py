"""Replies that are owed: judged by the waits that go on, without a name that is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional, Sequence, Tuple

import pytest

from tests.unit import ill
from tests.unit.reports import connect, listener, syscall, target
from tests.unit.test_code_places import found, slept
from udsprobe.model.report import (
    Connection,
    Latency,
    Peer,
    Report,
    RunnerUp,
    ServedBy,
    Stacks,
    StageMeans,
    Verdict,
    Waiting,
    WaitNow,
    Waker,
)
from udsprobe.rules import judged
from udsprobe.rules.peers.late import hung_after_us
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.thresholds import HUNG_US_MIN

NONE = Waiting(0, None)
APP, OTHER = Peer(300, "app"), Peer(498, "postgres")


def wait(tid: int = 4711, **changes: Any) -> WaitNow:
    fixed = WaitNow(
        *(4711, tid, "node", "lock", "futex", "2026-11-25T02:05:32.635+00:00", 3e6, 1, "0x7f00"),
        last_woken_by=None,
        connection=None,
        peer=None,
        is_serving=True,
    )
    return replace(fixed, **changes)


def owing(count: int = 0, owed: int = 1, oldest_us: float = 3.1e6, **changes: Any) -> ServedBy:
    waiting = Waiting(owed, oldest_us)
    fixed = ServedBy(
        *(4711, "node", count, None, Latency(0), StageMeans(), None, 0, 0, []),
        in_progress=waiting if count else NONE,
        unread=NONE,
        asking=NONE,
        unanswered=waiting,
    )
    return replace(fixed, **changes)


def reported(
    *waits: WaitNow, threads: int = 1, row: Optional[ServedBy] = None, served: int = 0
) -> Report:
    report = ill.service(ill.served(served), ill.thread())
    requests = replace(report.requests, served_by=[owing() if row is None else row])
    one = replace(target(4711, "node"), threads=threads)
    return replace(report, requests=requests, targets=[one], waits_now=list(waits))


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def is_quiet(report: Report) -> bool:
    found = verdict(report)
    return (found.cause, found.harm.kind) in (("unknown", "unknown"), ("healthy", "none"))


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("kind", ["lock", "disk", "child", "pipe", "file_lock", "sleep", "other"])
def test_a_thread_that_has_the_request_and_sleeps(kind: str, threads: int) -> None:
    found = verdict(reported(wait(kind=kind), threads=threads))
    assert (found.cause, found.subject) == ("app-blocked", "node 4711")
    assert (found.harm.kind, found.harm.count, found.harm.since_s) == ("stuck", 1, 3.1)
    assert "who will end that is not known yet" in found.summary


def test_a_poller_that_does_not_look_at_its_client() -> None:
    """PostgreSQL waits for a row so, and for its client's next query in another set."""
    row = wait(kind="poll", call="epoll_wait", connection="served", peer=APP)
    assert is_quiet(reported(row))
    assert is_quiet(reported(replace(row, polls_clients=True)))
    found = verdict(reported(replace(row, polls_clients=False)))
    assert (found.cause, found.subject) == ("app-blocked", "node 4711")
    assert "app 300 waits for the reply" in [fact.says for fact in found.evidence]


def test_an_idle_process_is_not_stuck() -> None:
    none = owing(owed=0)
    idle = wait(replies_owed=0)
    assert is_quiet(reported(idle, row=none))
    # It has a client, and has served it.
    assert is_quiet(reported(replace(idle, connection="served"), row=none))
    for kind, role in (("recv", "served"), ("accept", None), ("recv", None)):
        assert is_quiet(reported(wait(kind=kind, connection=role)))


def test_a_request_from_before_we_came() -> None:
    """Nothing was seen of it; a thread that waits for its client would be in another call."""
    row = wait(replies_owed=0, connection="served", peer=APP, is_serving=False)
    found = verdict(reported(row, row=owing(owed=0)))
    assert (found.cause, found.confidence) == ("app-blocked", 0.33)
    assert found.summary.startswith("1 reply outstanding, the oldest for 3 s or longer: ")
    assert is_quiet(reported(row, row=owing(owed=0), threads=2))
    assert is_quiet(reported(replace(row, connection=None), row=owing(owed=0)))
    assert is_quiet(reported(replace(row, kind="sleep"), row=owing(owed=0)))


@pytest.mark.parametrize(
    ("accepted", "waiting", "cause"),
    [(0, 3, "app-blocked"), (0, 0, "unknown"), (9, 3, "unknown")],
    ids=["keeps others waiting", "nobody waits", "accepts"],
)
def test_who_just_sleeps_is_stuck_while_connections_wait(
    accepted: int, waiting: int, cause: str
) -> None:
    row = wait(replies_owed=0, connection="served", kind="sleep", lock=None, is_serving=False)
    report = reported(row, row=owing(owed=0))
    queue = replace(listener("/run/app.sock", now=waiting, pids=[4711]), accepted=accepted)
    found = verdict(replace(report, listeners=[queue]))
    assert found.cause == cause
    if cause == "app-blocked":
        assert (found.confidence, found.harm.says) == (0.67, "3 connections not accepted")
        assert found.runners_up == [RunnerUp("accept-starved", 100.0)]


HANDLES = (("main", "app"), ("handle", "app"), ("sleep", "libc.so.6"))


def slept_in(row: WaitNow, threads: int, frames: Sequence[Tuple[str, str]] = HANDLES) -> Stacks:
    """A place that so many threads sleep in."""
    counted = slept(row.call or "", *frames, ms=3000 * threads, owing_ms=0)
    told_of = found(replace(counted, pid=row.pid))
    assert told_of.sleeps is not None
    return replace(told_of, sleeps=replace(told_of.sleeps, watched_s=3.0))


@pytest.mark.parametrize(
    ("kind", "call", "threads", "asleep", "is_named"),
    [
        ("sleep", "clock_nanosleep", 1, 1, True),
        ("lock", "futex", 1, 1, True),
        ("sleep", "clock_nanosleep", 8, 2, True),
        ("sleep", "clock_nanosleep", 8, 1, False),
        ("lock", "futex", 8, 2, False),
    ],
    ids=["one thread", "its lock", "most of two", "one of three", "a pool that is idle"],
)
def test_a_wait_that_goes_on_is_told_with_its_code(
    kind: str, call: str, threads: int, asleep: int, is_named: bool
) -> None:
    """Of a pool's threads that wait for locks it is not told which have work."""
    waiting = 1 if threads == 1 else 3
    rows = [wait(4711 + n, kind=kind, call=call) for n in range(waiting)]
    report = reported(*rows, threads=threads)
    told_of = verdict(replace(report, stacks=slept_in(rows[0], asleep)))
    in_code = f"({call}) for 3 s, in sleep ← handle (app); who will end that"
    assert (in_code in told_of.summary) == is_named
    assert bool(told_of.code) == is_named


def test_a_wait_that_goes_on_is_told_with_what_a_library_waits_for() -> None:
    """What it waits for is known then, who ends it is not; its client does not."""
    row = wait(kind="poll", call="epoll_wait", polls_clients=False, lock=None)
    frames = (("main", "postgres"), ("ProcSleep", "postgres"))
    found = verdict(replace(reported(row), stacks=slept_in(row, 1, frames)))
    assert (
        "waiting for events (epoll_wait) for 3 s, for a lock of the database: "
        "100 % in ProcSleep ← main (postgres); who will end that is not known yet. It is not"
    ) in found.summary


def test_who_waits_for_an_upstream_is_told_with_its_code_and_where_that_is() -> None:
    """The remedy is at the upstream: what the function waits in needs no cure."""
    there = Peer(None, None, "127.0.0.1:8080")
    row = wait(kind="recv", call="poll", connection="upstream", peer=there, lock=None)
    connection = replace(ill.connection(role="upstream", peer=there), transport="tcp")
    report = replace(reported(row), connections=[replace(connection, pid=row.pid)])
    found = verdict(replace(report, stacks=slept_in(row, 1)))
    assert (found.cause, found.subject) == ("upstream-wait", "127.0.0.1:8080")
    assert "(poll) for 3 s, in sleep ← handle (app): 127.0.0.1:8080 has sent nothing since" in (
        found.summary
    )
    assert [each.run for each in found.actions][:1] == [
        "sudo udsprobe attach --listener 127.0.0.1:8080"
    ]
    assert found.code and not any("head -v" in (each.run or "") for each in found.actions)


def test_the_wait_that_is_told_is_the_one_whose_place_is() -> None:
    """Another thread of the process sleeps for longer, in another call."""
    older = wait(4712, kind="lock", call="futex", lasted_us=3.05e6)
    row = wait(4713, kind="sleep", call="nanosleep", lasted_us=2.9e6)
    report = reported(older, row, threads=8)
    told_of = verdict(replace(report, stacks=slept_in(row, 1)))
    assert "node 4711/4713 has been asleep by a timer (nanosleep) for 2.9 s, in sleep ←" in (
        told_of.summary
    )


def test_a_worker_that_has_a_client_and_waits_for_its_upstream_since_before_we_came() -> None:
    row = wait(
        replies_owed=0, kind="recv", call="recvfrom", connection="upstream", peer=OTHER, lock=None
    )
    row = replace(row, is_serving=False)
    report = reported(row, row=owing(owed=0))
    assert is_quiet(report)
    report = replace(report, waits_now=[replace(row, clients=1)])
    found = verdict(report)
    assert (found.cause, found.subject) == ("upstream-wait", "postgres 498")
    assert found.summary.startswith("1 reply outstanding, the oldest for 3 s or longer: ")
    assert is_quiet(replace(report, targets=[replace(report.targets[0], threads=2)]))


def test_a_thread_that_takes_no_requests_itself_may_have_no_work() -> None:
    """One of a pool; and any of a process in which another one polls for all."""
    assert is_quiet(reported(wait(is_serving=False), threads=8))
    loop = wait(4712, kind="poll", call="epoll_wait")
    assert is_quiet(reported(wait(), loop, threads=8))
    busy = ill.thread(4713, sys_poll=0.1, sys_socket=0.1)
    polled = replace(
        reported(wait(), threads=8), time=ill.time_of(busy), syscalls=[syscall("epoll_wait")]
    )
    assert is_quiet(polled)


def test_a_wait_from_before_the_request_is_none_for_it() -> None:
    assert is_quiet(reported(wait(lasted_us=9e6), threads=8))


def test_short_waits_are_none() -> None:
    assert is_quiet(reported(wait(lasted_us=0.8e6), row=owing(oldest_us=0.9e6)))


@pytest.mark.parametrize(("took_us", "cause"), [(3.5e6, "quiet"), (2e6, "app-blocked")])
def test_an_age_that_requests_reach_as_a_rule_is_none(took_us: float, cause: str) -> None:
    """Another process of that name has answered 30, in 3.5 s or in 2 s each."""
    report = reported(wait())
    alike = replace(owing(30), pid=4712, latency_us=ill.flat(30, took_us), unanswered=NONE)
    rows = [*(report.requests.served_by or []), alike]
    found = replace(report, requests=replace(report.requests, served_by=rows))
    assert is_quiet(found) if cause == "quiet" else verdict(found).cause == cause
    assert hung_after_us(found, "node") == took_us
    assert hung_after_us(found, "postgres") == HUNG_US_MIN
    few = replace(found, requests=replace(found.requests, served_by=[replace(alike, count=4)]))
    assert hung_after_us(few, "node") == HUNG_US_MIN


def test_who_woke_the_last_one_is_no_holder() -> None:
    found = verdict(reported(wait(last_woken_by=Waker(4711, 4720, "flusher"))))
    assert found.subject == "node 4711"
    assert "flusher" not in found.summary
    assert any("flusher 4711/4720 woke who waited" in fact.says for fact in found.evidence)


FULL = {"kind": "pipe", "call": "write", "lock": None}


def test_a_full_pipe_is_told_with_who_does_not_read_it() -> None:
    found = verdict(reported(wait(**FULL, held_by=Peer(55, "logger"))))
    assert (found.cause, found.subject) == ("app-blocked", "logger 55")
    assert "node 4711 has been waiting at a full pipe (write) for 3 s" in found.summary
    assert "logger 55 does not read it" in found.summary
    assert found.actions[0].run == "sudo ps -o pid,stat,wchan:24,etime,args -p 55"
    unknown = verdict(reported(wait(**FULL)))
    assert unknown.subject == "node 4711"
    assert "whoever has its other end does not read it" in unknown.summary
    assert all("-p 55" not in (action.run or "") for action in unknown.actions)


def test_who_writes_to_a_full_pipe_has_the_lock_that_others_wait_for() -> None:
    """Loggers write with a lock held; and with a client that has left by now."""
    locked = [wait(tid) for tid in (4712, 4713)]
    writer = wait(4714, **FULL, lasted_us=9e6, held_by=Peer(55, "logger"))
    assert verdict(reported(*locked, threads=4)).subject == "node 4711/4712"
    for waits in ((*locked, writer), (writer, *locked)):
        assert verdict(reported(*waits, threads=4)).subject == "logger 55"


def test_a_full_pipe_beside_an_event_loop() -> None:
    """Threads that serve in turns poll as well (Go); one that serves nobody may log late."""
    polling = wait(4712, kind="poll", call="epoll_pwait", lock=None, polls_clients=True)
    writer = wait(4714, **FULL, held_by=Peer(55, "logger"))
    aside = replace(writer, is_serving=False)
    assert verdict(reported(polling, writer, threads=4)).subject == "logger 55"
    assert verdict(reported(polling, aside, threads=4)).subject == "logger 55"
    answered = owing(count=900, owed=20)
    assert verdict(reported(polling, writer, threads=4, row=answered)).subject == "logger 55"
    for report in (
        reported(polling, aside, threads=4, row=answered),
        reported(polling, writer, threads=4, row=owing(owed=0)),
        reported(polling, wait(4714, kind="pipe", call="read", lock=None), threads=4),
    ):
        assert verdict(report).subject != "logger 55"


def test_who_holds_a_file_lock_is_known() -> None:
    found = verdict(reported(wait(kind="file_lock", call="fcntl", held_by=OTHER)))
    assert found.subject == "postgres 498"
    assert ", which postgres 498 holds" in found.summary
    assert found.actions[0].run == "sudo udsprobe attach --pid 498"


def test_an_upstream_is_the_root_of_those_that_wait_for_its_asker() -> None:
    asks = wait(4712, kind="recv", call="recvfrom", connection="upstream", peer=OTHER)
    found = verdict(reported(wait(), asks, threads=8, row=owing(owed=2)))
    assert (found.cause, found.subject) == ("upstream-wait", "postgres 498")
    assert "postgres 498 has sent nothing since" in found.summary
    # Not one of these: another process' thread that only it waits for.
    unnamed = verdict(reported(replace(asks, peer=None), threads=8))
    assert (unnamed.cause, unnamed.subject) == ("upstream-wait", "node 4711/4712")


def test_a_thread_that_works_meanwhile_is_told_and_not_blamed() -> None:
    disk = wait(4720, kind="disk", call="fsync", is_serving=False)
    found = verdict(reported(wait(), disk, threads=8))
    assert found.subject == "node 4711"
    assert any("node 4711/4720, has been on the disk (fsync)" in f.says for f in found.evidence)


def test_a_client_that_does_not_read() -> None:
    found = verdict(reported(wait(kind="send", call="sendto", connection="served", peer=APP)))
    assert (found.cause, found.subject) == ("send-blocked", "app 300")


def test_the_share_is_of_all_requests_and_few_are_no_pressure() -> None:
    report = reported(wait(), threads=8, row=owing(99), served=99)
    found = verdict(report)
    assert (found.harm.kind, found.harm.share_pct) == ("stuck", 1.0)
    assert is_quiet(reported(wait(), threads=8, row=owing(5000), served=5000))


def test_more_and_longer_is_surer() -> None:
    short = verdict(reported(wait()))
    longer = verdict(reported(wait(lasted_us=40e6), row=owing(oldest_us=40e6)))
    more = verdict(reported(wait(replies_owed=9), row=owing(owed=9)))
    assert short.confidence < more.confidence
    assert short.confidence < longer.confidence


def test_processes_that_are_alike_are_one_suspect() -> None:
    report = reported(wait(), replace(wait(4712), pid=4712))
    more = replace(target(4712, "node"), threads=1)
    second = replace(owing(), pid=4712)
    found = verdict(
        replace(
            report,
            targets=[*report.targets, more],
            requests=replace(
                report.requests, served_by=[*(report.requests.served_by or []), second]
            ),
        )
    )
    assert found.harm.count == 2
    assert "and 1 more process like it" in found.summary


@pytest.mark.parametrize("server", ["postgresql", "mysql"])
def test_databases_have_a_line_that_finds_who_blocks(server: str) -> None:
    first, *_ = remedies("hung", server, pid=1)
    assert first.effect == "looks"
    assert first.run is not None
    assert "blocked_by" in first.run


def asking(*connections: Connection, total: Optional[int] = None, owed: int = 1) -> Report:
    row = owing(3, owed, asking=Waiting(1, 3e6))
    loop = wait(kind="poll", call="epoll_wait")
    many = len(connections) if total is None else total
    return replace(reported(loop, row=row), connections=list(connections), connections_total=many)


def upstream(pid: int = 498, address: str = "/run/db.sock") -> Connection:
    return ill.connection(role="upstream", peer=Peer(pid, "postgres", address))


@pytest.mark.parametrize("others", [0, 1])
def test_of_who_has_no_connection_the_name_server_is_named(others: int) -> None:
    """And the function that asks it. Whom it asks is not known where there are two."""
    asks = slept_in(
        wait(kind="recv", call="poll"), 1, (("resolve", "app"), ("getaddrinfo", "libc.so.6"))
    )
    connects = [connect(f"10.0.0.5{at}:53", "udp") for at in range(1 + others)]
    found = verdict(replace(asking(), connects=connects, stacks=asks))
    who = "an upstream" if others else "the name server udp:10.0.0.50:53"
    assert f"has waited 3 s for {who}, in resolve (app)" in found.summary
    assert [each.own for each in found.code] == ["resolve (app)"]


def test_an_upstream_is_named_where_there_is_one() -> None:
    found = verdict(asking(upstream()))
    assert (found.cause, found.subject) == ("upstream-wait", "unix:/run/db.sock")
    assert "has waited 3 s for postgres 498 at unix:/run/db.sock" in found.summary
    assert found.actions[0].run == "sudo udsprobe attach --pid 498"


def test_an_upstream_is_not_named_where_there_are_several() -> None:
    found = verdict(asking(upstream(), upstream(499, "/run/cache.sock")))
    assert (found.cause, found.subject) == ("upstream-wait", "node 4711")
    assert "for an upstream" in found.summary


def test_one_that_asked_before_the_window_may_not_be_listed() -> None:
    known = asking(upstream(), total=2)
    assert verdict(known).subject == "unix:/run/db.sock"
    short = replace(known, window=replace(known.window, duration_s=2.0))
    assert verdict(short).subject == "node 4711"


def test_a_pool_that_is_taken() -> None:
    found = verdict(asking(upstream(), owed=4))
    assert "1 connection to it: it is taken, and 3 requests wait for one" in found.summary
    assert "taken" not in verdict(asking(upstream(), owed=4, total=2)).summary


def test_a_thread_that_computes_while_requests_wait() -> None:
    report = reported(row=owing(3))
    found = verdict(replace(report, time=ill.time_of(ill.thread(user=0.97))))
    assert (found.cause, found.harm.kind) == ("app-cpu", "stuck")
    assert found.subject == "node thread 4711"


def test_a_process_that_may_not_run_waits_for_nothing_else() -> None:
    report = reported(wait())
    stopped = [replace(each, stopped="signal") for each in report.targets]
    assert verdict(replace(report, targets=stopped)).subject != "node 4711"
