"""Virtual threads of Java: the threads that carry them sleep for a scheduler inside the program."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit import ill
from udsprobe.model.report import Author, Report, RootAuthor, Wait
from udsprobe.rules.accounts.request_time import RequestTime, request_time
from udsprobe.rules.accounts.service import Service, in_virtual_threads, whole_service
from udsprobe.rules.code_places import with_code
from udsprobe.rules.remedies import for_cause
from udsprobe.rules.suspects.suspect import Suspect

CARRIERS = (4712, 4713)


def carried(*, timer: str = "VirtualThread-u", handed_over: int = 0) -> Service:
    """500 requests of 160 ms, eight at once, behind a lock of theirs; two threads carry them and
    wake each other, of which one computed when it was seen to."""
    threads = [
        ill.thread(tid, "ForkJoinPool-1-", user=0.1, blocked_lock=0.9, sys_socket=0.001)
        for tid in CARRIERS
    ]
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=160_000, lock=90.0, cpu=10.0)
    report = ill.service(requests, *threads, ill.thread(4714, timer, blocked_lock=1.0))
    service = replace(whole_service(report), repliers=frozenset(CARRIERS), handed_over=handed_over)
    service = replace(service, handed_us=handed_over * 160_000.0)
    return replace(service, waits=tuple(map(woken, CARRIERS)))


def woken(tid: int) -> Wait:
    by = [Author("thread", 4711, 9425 - tid, "ForkJoinPool-1-", True, "cpu", None, 9e6)]
    return Wait(4711, tid, "x", "lock", 500, 9e6, 1.0, by, 0.0, [RootAuthor(**vars(by[0]))])


def divided(handed_over: int) -> RequestTime:
    return request_time(carried(handed_over=handed_over))


@pytest.mark.parametrize("handed_over", [0, 300])
def test_what_virtual_threads_wait_for_is_no_work_of_those_that_carry_them(
    handed_over: int,
) -> None:
    assert divided(handed_over).share("lock") > 0.7


def test_the_same_threads_without_virtual_ones_take_turns() -> None:
    """A pool of that name, whose threads wake each other at a lock and compute."""
    assert not in_virtual_threads(carried(timer="timer"))
    assert request_time(carried(timer="timer")).share("cpu") > 0.7


def test_that_they_wait_is_said_with_how_to_see_where() -> None:
    service = carried()
    report: Report = ill.service(ill.served(500, app=160_000, lock=90.0), ill.thread(4711))
    found = for_cause("app-blocked", report, service, request_time(service), None)
    says = "virtual threads of node wait for each other, a lock or a time while requests wait for"
    assert found.headline == f"{says} its reply"
    (action,) = found.actions
    assert action.run is not None and "Thread.dump_to_file" in action.run
    # Where the threads that carry them sleep is told of none of them.
    one = Suspect("app-blocked", "x", "warning", True, 90.0, None, found.headline, found.facts)
    assert with_code(one, report) == one


def of_erlang() -> Service:
    """The same in the virtual machine of Erlang, by its schedulers."""
    service = carried(timer="0_poller")
    named = {tid: f"{n}_scheduler" for n, tid in enumerate(CARRIERS, 1)}
    threads = [replace(each, comm=named.get(each.tid, each.comm)) for each in service.threads]
    return replace(service, threads=tuple(threads))


def test_processes_of_erlang_wait_inside_of_its_virtual_machine() -> None:
    service = of_erlang()
    time = request_time(service)
    assert time.share("lock") > 0.7
    report: Report = ill.service(ill.served(500, app=160_000, lock=90.0), ill.thread(4711))
    found = for_cause("app-blocked", report, service, time, None)
    says = "Erlang's processes in node wait for each other, a lock or a time while requests wait"
    assert found.headline == f"{says} for its reply"
    (action,) = found.actions
    assert "process_info(P, current_stacktrace)" in action.say
    one = Suspect("app-blocked", "x", "warning", True, 90.0, None, found.headline, found.facts)
    assert with_code(one, report) == one
