"""Whom the waits of requests were for: named only where one stands out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Optional, Sequence, Tuple

import pytest

from tests.unit import ill, reports
from tests.unit.kept import call, kept, story
from tests.unit.reports import syscall
from udsprobe.model.report import (
    Author,
    Report,
    RootAuthor,
    SyscallsPerRequest,
    ThreadTime,
    Wait,
)
from udsprobe.model.requests.whole_requests import whole_request
from udsprobe.rules.accounts.asleep import waited_for
from udsprobe.rules.accounts.authors import LastAuthor, last_author
from udsprobe.rules.accounts.request_time import request_time
from udsprobe.rules.accounts.service import serving_threads, whole_service
from udsprobe.rules.judge import judged
from udsprobe.rules.remedy import choice

# 500 requests of 80 ms.
WAITED_US = 500 * 80_000.0


def part(share: float, **changes: Any) -> RootAuthor:
    fixed = Author("thread", 60, 61, "flusher", True, "disk", "fsync", share * WAITED_US)
    return RootAuthor(**{**vars(fixed), "via": [], **changes})


def wait(tid: int, *roots: RootAuthor, kind: str = "lock", times: float = 1.0) -> Wait:
    scaled = [replace(each, total_us=each.total_us * times) for each in roots]
    whole = sum(each.total_us for each in scaled)
    return Wait(4711, tid, "node", kind, 500, whole, 1.0, list(scaled), 0.0, scaled)


def locked(*waits: Wait, **author: float) -> Report:
    """One thread that serves and waits for a lock."""
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=80_000, lock=98.0, cpu=2.0)
    server = replace(
        ill.thread(4711, blocked_lock=0.95, user=0.02, blocked_poll=0.03), pid=4711, tid=4711
    )
    did = author or {"blocked_disk": 0.98}
    other: ThreadTime = ill.thread(61, "flusher", **{"blocked_poll": 0.0, **did})
    return replace(ill.service(requests, server, other), waits=list(waits))


def named(report: Report) -> Optional[LastAuthor]:
    service = whole_service(report)
    return last_author(service, "lock", WAITED_US)


def test_waits_of_threads_that_have_ended_are_waits_of_which_nothing_is_told() -> None:
    """A thread for each connection: what the accepting one waits for is the least of it."""
    known = wait(4711, RootAuthor("program", None, None, "node", True, "runq", None, WAITED_US / 9))
    gone = replace(wait(0), pid=0, comm=None, total_us=WAITED_US, unknown_us=WAITED_US)
    assert named(locked(known)) is not None
    assert named(locked(known, gone)) is None


def test_one_that_ends_most_of_the_waits_is_named() -> None:
    found = named(locked(wait(4711, part(0.8), part(0.2, was="cpu", call=None))))
    assert found is not None
    assert found.name == "flusher 60/61"
    assert (found.share, found.did_share) == (1.0, pytest.approx(0.8))
    assert (
        found.clause() == "woken by flusher 60/61, which was 80 % of that time on the disk (fsync)"
    )


@pytest.mark.parametrize(
    "waits",
    [
        # Nobody knows; several; a timer; a wait for work, far longer than all requests together;
        # another thread's.
        [],
        [wait(4711, *(part(0.25, tid=tid) for tid in range(70, 74)))],
        [wait(4711, part(1.0, by="timer", pid=None, tid=None))],
        [wait(4711, part(1.0), times=20)],
        [wait(9999, part(1.0))],
    ],
)
def test_where_nobody_stands_out_nobody_is_named(waits: List[Wait]) -> None:
    assert named(locked(*waits)) is None


def test_the_verdict_s_subject_is_the_last_author() -> None:
    verdict = judged(locked(wait(4711, part(1.0)))).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.subject) == ("app-blocked", "flusher 60/61")
    assert "woken by flusher 60/61" in verdict.summary
    assert "held" not in verdict.summary
    assert any(fact.metric == "waits_author_share" for fact in verdict.evidence)


@pytest.mark.parametrize(
    ("comm", "call", "share", "says"),
    [
        ("postgres", "fdatasync", 1.0, "synchronous_commit"),
        ("mariadbd", "fdatasync", 1.0, "innodb_flush_log_at_trx_commit"),
        ("shop", "fsync", 1.0, "call fsync once for many changes"),
        # It reads; it does something else for half of the time and more.
        ("postgres", "pread64", 1.0, ""),
        ("postgres", "fdatasync", 0.45, ""),
    ],
)
def test_who_waits_until_another_has_written_to_the_disk_is_told_what_helps_against_that(
    comm: str, call: str, share: float, says: str
) -> None:
    """Each commit, where sessions take turns: no query, no lock and no worker more is why."""
    flushes = part(share, pid=4711, comm=comm, call=call)
    rest = part(1 - share, pid=4711, comm=comm, was="poll", call="epoll_wait")
    report = locked(wait(4711, flushes, rest))
    targets = [replace(each, comm=comm) for each in report.targets]
    verdict = judged(replace(report, targets=targets)).verdict
    assert verdict is not None and verdict.cause == "app-blocked"
    is_told = "transaction" in verdict.actions[0].say and "iostat" in (verdict.actions[1].run or "")
    assert is_told is bool(says) and says in verdict.actions[0].say


@pytest.mark.parametrize(("comm", "is_told"), [("mariadbd", True), ("postgres", False)])
def test_a_log_that_is_written_past_the_page_cache(comm: str, is_told: bool) -> None:
    """InnoDB's, by the sessions for each other; what others write is pages, and no commit."""
    for in_turns, told in ((True, is_told), (False, False)):
        report = replace(locked(), targets=[reports.target(4711, comm)])
        found = choice.written_first(report, 4711, "pwrite64", in_turns)
        assert bool(found) is told


def queued_for_one_that_sleeps(kind: str, call: str) -> Report:
    """Two of three threads wait for a lock; the third holds it and waits for a reader."""
    holder = part(0.15, pid=4711, tid=4712, comm="node", was=kind, call=call)
    reader = part(0.3, pid=80, tid=80, comm="logger", is_target=False, was=None, call=None)
    before = part(0.15, pid=4711, tid=4713, comm="node", was="lock", call="futex")
    rows = [replace(wait(tid, holder, before), roots=[reader]) for tid in (4711, 4713)]
    threads = [
        replace(ill.thread(tid, **share), pid=4711)
        for tid, share in (
            (4711, {"blocked_lock": 0.6, "blocked_recv": 0.4}),
            (4712, {"blocked_other": 0.3, "blocked_recv": 0.7}),
            (4713, {"blocked_lock": 0.6, "blocked_recv": 0.4}),
        )
    ]
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=80_000, lock=67.0, other=33.0)
    if kind == "send":
        requests = ill.served(500, recv_wait=0, recv=0, send=0, app=80_000, lock=100.0)
    waits = [*rows, wait(4712, reader, kind=kind)]
    return replace(ill.service(requests, *threads), waits=waits)


def test_a_lock_whose_holder_waits_for_a_reader_is_a_wait_for_that_reader() -> None:
    report = queued_for_one_that_sleeps("send", "sendto")
    call = replace(syscall("sendto", calls=500), transport="unix", socket_type="dgram")
    slow = replace(call, wall_us=9.9e6, slow_us=9.9e6)
    found = judged(replace(report, syscalls=[slow])).verdict
    assert found is not None and found.cause == "send-blocked"
    assert "and holds a lock that others wait for: their reader, logger 80," in found.summary


def test_a_lock_whose_holder_waits_at_a_full_pipe_is_a_wait_for_who_reads_it() -> None:
    report = queued_for_one_that_sleeps("pipe", "write")
    writes = replace(syscall("write", "other", calls=500), wall_us=9.9e6)
    found = judged(replace(report, syscalls=[writes])).verdict
    assert found is not None and found.cause == "app-blocked"
    assert "sleeps on a pipe that is full, and holds a lock" in found.summary
    assert found.subject == "logger 80"
    assert "let logger 80 read faster" in found.actions[0].say


def test_goroutines_that_take_turns_at_a_pipe_wait_for_who_reads_it() -> None:
    """Nothing tells what a goroutine waits for; one thread after the other is in the write."""
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=80_000, poll=98.0, cpu=2.0)
    server = ill.thread(4711, "api", user=0.02, sys_poll=0.01, blocked_poll=0.97)
    reader = part(1.0, pid=80, tid=80, comm="logger", is_target=False, was=None, call=None)
    row = replace(wait(4799, reader, kind="pipe"), total_us=9.7e6)
    writes = replace(syscall("write", "other", calls=500), wall_us=9.7e6)
    report = ill.service(requests, server, syscalls=[writes])
    target = replace(report.targets[0], comm="api", cmdline="/bin/api", language="go")
    report = replace(report, targets=[target], waits=[row])
    found = judged(report).verdict
    assert found is not None and found.cause == "app-blocked"
    assert "one at a time on a pipe that is full: woken by logger 80" in found.summary
    seldom = judged(replace(report, waits=[replace(row, total_us=5e6)])).verdict
    assert seldom is not None and "wait for a timer, a lock or a channel" in seldom.summary


def test_a_service_that_starts_a_child_for_each_request_is_told_what_to_start_once() -> None:
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=80_000, poll=98.0, cpu=2.0)
    child = part(1.0, by="program", pid=None, tid=None, comm="slow.cgi", was="sleep", call=None)
    server = ill.thread(4711, user=0.02, sys_poll=0.01, blocked_poll=0.97)
    report = ill.service(requests, server)
    found = judged(replace(report, waits=[wait(4711, child, kind="poll")])).verdict
    assert found is not None and found.cause == "app-blocked"
    assert "node sleeps in its poller while requests wait for its reply: woken by " in found.summary
    assert found.subject == "slow.cgi processes"
    assert found.actions[0].say.startswith("start slow.cgi once and not for each request")


def test_children_that_compute_are_what_to_start_once() -> None:
    """Two of the three seconds of CPU time are theirs."""
    report = ill.service(ill.served(400, app=1000.0, cpu=99), ill.thread(user=0.1, sys_socket=0.02))
    assert report.time is not None
    spent_s = {name: share * report.time.total_s for name, share in report.time.total.items()}
    spent_s["user"] += 8.5
    whole_s = sum(spent_s.values())
    total = {name: value / whole_s for name, value in spent_s.items()}
    ended = [replace(report.targets[0], pid=n, comm="q.cgi", state="exited") for n in range(30)]
    report = replace(
        report,
        time=replace(report.time, total_s=whole_s, total=total),
        targets=[*report.targets, *ended],
        targets_exited=400,
        host=replace(report.host, cpus=1),
    )
    found = judged(report).verdict
    assert found is not None and found.cause == "app-cpu"
    assert found.actions[0].say.startswith("start q.cgi once")


def test_of_threads_that_take_turns_who_lets_the_first_one_go_is_named() -> None:
    """Six wait for a lock that a thread in the background holds asleep: each wakes the next."""
    others = [part(0.1, tid=tid, was="lock", call="futex") for tid in (70, 71, 72)]
    rest = part(0.3, by="others", pid=None, tid=None, comm=None, was=None, call=None)
    found = named(locked(wait(4711, part(0.4, was="sleep"), *others, rest)))
    assert found is not None and found.name == "flusher 60/61"
    assert (found.share, found.followed) == (1.0, pytest.approx(0.4))
    assert found.fact().says.endswith("as far as they were followed to their ends (40 %)")
    # Where they were hardly followed, it could be anybody.
    hidden = replace(rest, total_us=9 * WAITED_US)
    assert named(locked(wait(4711, part(0.4, was="sleep"), *others, hidden))) is None


# A session of a database waits for a row of another one, in its poller.
HOLDER = {"pid": 50, "tid": 50, "comm": "postgres", "was": "poll", "call": "epoll_wait"}
CLIENT = {"pid": 60, "tid": 60, "comm": "app", "is_target": False, "was": None, "call": None}


def polled(*waits: Wait, clients: Sequence[Tuple[int, int]] = ()) -> Optional[LastAuthor]:
    service = replace(
        whole_service(locked(*waits)), clients=frozenset(clients), partners=frozenset(clients)
    )
    return last_author(service, "timer", WAITED_US)


def row_lock() -> Wait:
    (author,) = (part(1.0, **HOLDER),)
    root = part(1.0, **CLIENT, via=["postgres 50/50"])
    return replace(wait(4711, author, kind="poll"), roots=[root])


def held_open() -> Wait:
    """By its client's silence."""
    return replace(wait(50, part(1.0, **CLIENT), kind="poll"), pid=50, comm="postgres", max_us=41e6)


def test_a_client_that_is_silent_while_its_server_holds_something() -> None:
    found = polled(row_lock(), held_open(), clients=[(50, 60)])
    assert found is not None
    assert found.name == "app 60"
    assert (
        found.clause()
        == "woken by postgres 50, whose client app 60 had said nothing for up to 41 s"
    )


def test_who_is_not_known_to_be_its_client_is_not_called_so() -> None:
    found = polled(row_lock(), held_open())
    assert found is not None
    assert found.clause() == "woken by app 60"


def test_a_poller_that_waits_for_clients_waits_for_no_request() -> None:
    """Neither for strangers that speak, nor for targets that are its clients."""
    stranger, target_client = part(1.0, **CLIENT), part(1.0, pid=70, tid=70, comm="proxy")
    assert polled(wait(4711, stranger, target_client, kind="poll"), clients=[(4711, 70)]) is None
    assert polled(wait(4711, target_client, kind="poll")) is not None


def test_a_child_for_each_request_is_one_author() -> None:
    """None of them ended more than 2 % of the waits."""
    slept = {"was": "sleep", "call": "clock_nanosleep"}
    each = [part(0.02, pid=n, tid=n, comm="slow.cgi", **slept) for n in range(20)]
    rest = part(0.5, by="program", pid=None, tid=None, comm="slow.cgi", **slept)
    found = polled(wait(4711, *each, rest, part(0.1, pid=9, tid=9, comm="log"), kind="poll"))
    assert found is not None and found.share == pytest.approx(0.9)
    slow = "slow.cgi processes, which were 100 % of that time asleep by a timer (clock_nanosleep)"
    assert found.clause() == f"woken by {slow}"
    assert "90 % of these waits end when slow.cgi processes wake who waits" in found.fact().says
    # A client of that name is none of them, and clients that come and go are none.
    client = part(0.02, pid=77, tid=77, comm="slow.cgi", is_target=False)
    alike = polled(wait(4711, client, rest, kind="poll"))
    assert alike is not None and alike.share == 1.0
    clients = replace(rest, is_target=False)
    assert polled(wait(4711, client, clients, kind="poll")) is None
    # A timer is nobody, and stays.
    timer = part(0.5, by="interrupt", pid=None, tid=None, comm=None, was=None, call=None)
    assert polled(wait(4711, clients, timer, part(0.6, pid=9, tid=9), kind="poll")) is not None


def test_threads_that_serve_and_wait_for_each_other_are_told_by_what_they_do() -> None:
    other = 4712
    going_on = part(0.2, pid=4711, tid=4713, comm="node", was="lock", call="futex")
    behind = part(0.1, by="others", pid=None, tid=None, comm=None, call=None)
    first = wait(4711, part(0.7, pid=4711, tid=other, comm="node"), going_on, behind, times=0.5)
    second = wait(other, part(0.7, pid=4711, tid=4711, comm="node"), going_on, behind, times=0.5)
    report = locked(first, second)
    assert report.time is not None
    serving = next(each for each in report.time.threads if each.tid == 4711)
    # Who accepts and is kept by a lock nearly always would hand over to others.
    share = {**serving.share, "blocked_lock": 0.4}
    threads = [replace(serving, tid=tid, share=share) for tid in (4711, other)]
    time = replace(report.time, threads=threads)
    found = named(replace(report, time=time))
    assert found is not None and found.in_turns == "threads"
    assert (found.share, found.followed) == (1.0, pytest.approx(0.8))
    assert found.clause() == (
        "woken by another of its threads, which was 100 % of that time on the disk (fsync)"
    )
    verdict = judged(replace(report, time=time)).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.subject) == ("app-blocked", "another of its threads")
    # One of them that does not wait itself is.
    found = named(replace(report, time=time, waits=[first]))
    assert found is not None
    assert found.author.tid == other


def test_without_authors_it_is_what_it_sleeps_on() -> None:
    verdict = judged(locked()).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.subject) == ("app-blocked", "a lock (futex)")


def test_a_lock_whose_author_computes_is_its_cpu_time() -> None:
    computing = part(1.0, was="cpu", call=None)
    report = locked(wait(4711, computing), user=0.98)
    time = request_time(whole_service(report))
    assert time.share("cpu") > 0.95
    verdict = judged(report).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.subject) == ("app-cpu", "flusher thread 61")


def test_of_many_that_take_turns_the_holders_are_who_did_not_wait() -> None:
    """The chain of those that held the lock before is longer than it is followed."""
    computing = part(0.3, was="cpu", call=None)
    waiting = part(0.7, was="lock", call="futex", via=["node 1/2", "node 1/3", "node 1/4"])
    time = request_time(whole_service(locked(wait(4711, computing, waiting), user=0.98)))
    assert time.share("cpu") > 0.95


def test_what_is_known_of_too_few_waits_says_nothing() -> None:
    """The other threads' own account does, as before."""
    rarely = part(0.1, was="cpu", call=None)
    timers = part(0.9, by="timer", pid=None, tid=None, was=None, call=None)
    time = request_time(whole_service(locked(wait(4711, rarely, timers))))
    assert time.share("lock") > 0.9


TIMED = part(1.0, by="timer", pid=None, tid=None, was=None, call=None)


@pytest.mark.parametrize(
    ("of", "waits", "kind"),
    [
        ("lock", [wait(4711, TIMED)], "timer"),
        ("lock", [wait(4711, part(0.6), replace(TIMED, total_us=0.4 * WAITED_US))], "lock"),
        ("sleep", [wait(4711, part(1.0), kind="pipe")], "pipe"),
        ("sleep", [wait(4711, TIMED, kind="sleep")], "sleep"),
        ("sleep", [wait(4711, part(0.5), kind="pipe"), wait(4711, TIMED, kind="sleep")], "sleep"),
        ("lock", [], None),
    ],
)
def test_what_a_service_is_asleep_for(of: str, waits: List[Wait], kind: Optional[str]) -> None:
    assert waited_for(whole_service(locked(*waits)), of, WAITED_US) == kind


@pytest.mark.parametrize(
    ("name", "waits", "words"),
    [
        ("write", "other", "write() of a terminal, an eventfd or another special file"),
        ("rt_sigtimedwait", "other", "a signal (rt_sigtimedwait)"),
        ("wait4", "child", "a child process (wait4)"),
        ("ioctl", "other", "ioctl()"),
    ],
)
def test_the_call_that_a_service_sleeps_in_is_that_of_its_requests(
    name: str, waits: str, words: str
) -> None:
    """Whatever other targets call meanwhile."""
    asleep = call(name, 60, 79_000, waits=waits, asleep=True)
    request = whole_request(kept(1, text=story(calls=[asleep])))
    server = ill.thread(4711, user=0.02, blocked_other=0.95, blocked_poll=0.03)
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=80_000, other=98.0, cpu=2.0)
    report = ill.service(requests, server)
    per_request = SyscallsPerRequest(1.5, {"clock_nanosleep": 1.5})
    asked = replace(report.requests, slowest=[request], syscalls_per_request=per_request)
    targets = [replace(report.targets[0], pid=request.pid)]
    found = judged(replace(report, requests=asked, targets=targets)).verdict
    assert found is not None and found.cause == "app-blocked"
    assert f"node sleeps on {words} while requests wait" in found.summary


@pytest.mark.parametrize(("at_pipes", "words"), [(3.0, "a pipe"), (0.5, "read() of a terminal")])
def test_where_threads_come_and_go_what_was_waited_for_is_known_without_names(
    at_pipes: float, words: str
) -> None:
    asleep = call("read", 60, 79_000, waits="other", asleep=True)
    request = whole_request(kept(1, text=story(calls=[asleep])))
    server = ill.thread(4711, user=0.02, blocked_other=0.95, blocked_poll=0.03)
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=80_000, other=98.0, cpu=2.0)
    report = ill.service(requests, server)
    nameless = [
        replace(wait(0, kind=kind), pid=0, total_us=us)
        for kind, us in (("pipe", at_pipes * 1e6), ("other", 1e6))
    ]
    asked = replace(report.requests, slowest=[request])
    targets = [replace(report.targets[0], pid=request.pid)]
    found = judged(replace(report, requests=asked, targets=targets, waits=nameless)).verdict
    assert found is not None and f"node sleeps on {words}" in found.summary


def shared_by(disk: float, requests: int = 500, threads: int = 4) -> Report:
    """One other thread takes requests in turn, on the disk and on a CPU, and is full by neither."""
    times = requests / 500
    on_disk, computed = part(disk / threads), part((1 - disk) / threads, was="cpu", call=None)
    serving = [
        replace(ill.thread(n, blocked_lock=0.98 * 4 * times / threads, sys_socket=0.01), pid=4711)
        for n in range(4711, 4711 + threads)
    ]
    flusher = {"blocked_disk": disk * times, "user": (1 - disk) * times, "blocked_poll": 1 - times}
    answered = ill.served(requests, recv_wait=0, recv=0, send=0, app=80_000, lock=98.0, cpu=2.0)
    report = ill.service(answered, *serving, ill.thread(61, "flusher", **flusher), listeners=[])
    waits = [wait(each.tid, on_disk, computed, times=times) for each in serving]
    return replace(report, waits=waits)


@pytest.mark.parametrize(("disk", "cause"), [(0.55, "app-blocked"), (0.45, "app-cpu")])
def test_requests_that_wait_for_each_other_are_held_up_by_what_holders_do_most(
    disk: float, cause: str
) -> None:
    found = judged(shared_by(disk)).verdict
    assert found is not None and found.cause == cause
    assert any(fact.metric.startswith("request_") for fact in found.evidence)
    assert "woken by flusher 60/61" in found.summary


def test_one_at_a_time_that_is_handed_over_waits_for_nobody_else() -> None:
    """Five requests in ten seconds, each of which a thread of its own works for."""
    found = judged(shared_by(0.45, requests=50)).verdict
    assert found is not None and found.cause == "healthy"


def test_a_lock_that_nobody_opens_but_its_time_limit_is_a_timer() -> None:
    verdict = judged(locked(wait(4711, TIMED))).verdict
    assert verdict is not None
    assert verdict.cause == "app-blocked"
    assert "sleeps on a timer (a futex with a time limit)" in verdict.summary


def test_who_replies_serves_however_little_it_does() -> None:
    """A thread of a pool sleeps in each request: its few calls are no part of its time."""
    loop = ill.thread(4711, blocked_poll=0.98, sys_socket=0.0002)
    slept = ill.thread(4712, "pool", blocked_poll=0.0, blocked_lock=0.99, sys_socket=0.0004)
    woken = ill.thread(4713, "helper", blocked_poll=0.0, blocked_lock=0.99, sys_socket=0.0004)
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=80_000, lock=98.0)
    service = whole_service(ill.service(requests, loop, slept, woken))
    assert {t.tid for t in serving_threads(service)} == {4711}
    service = replace(service, repliers=frozenset({4712}), handed_over=500)
    assert {t.tid for t in serving_threads(service)} == {4711, 4712}
    service = replace(service, handed_over=0)  # It hands over connections, and not requests.
    assert {t.tid for t in serving_threads(service)} == {4712}
