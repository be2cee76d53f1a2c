"""Workers that kept connections hold: nobody else gets in, however fast they are."""

from __future__ import annotations

from dataclasses import replace
from typing import List

import pytest

from tests.unit import ill
from udsprobe.model.report import Connection, Listener, Report, Verdict
from udsprobe.rules import judged
from udsprobe.rules.peers.kept import served_at

SLEEPING = ill.thread(blocked_other=0.95, user=0.01)
SLOW = ill.served(200, app=50_000.0, other=100.0)


def waiting(now: int, came: int) -> Listener:
    """`came` of those that wait now came in the window, and none was accepted."""
    row = ill.quiet_listener()
    depth = replace(row.depth, now=now, max=now, limit=1025, histogram={str(now): came})
    none = {"accepted": 0, "accepted_by_thread": {}, "wait_us": ill.flat(0, 0.0)}
    return replace(row, depth=depth, established=came, **none)  # type: ignore[arg-type]


def kept(*requests: int) -> List[Connection]:
    """Served at the quiet listener; so many requests on each."""
    address = ill.quiet_listener().address
    return [replace(ill.connection(), local=address, requests=each) for each in requests]


def verdict(listener: Listener, connections: List[Connection]) -> Verdict:
    found = judged(report(listener, connections)).verdict
    assert found is not None
    return found


def report(listener: Listener, connections: List[Connection]) -> Report:
    return ill.service(SLOW, SLEEPING, listeners=[listener], connections=connections)


def test_who_waits_behind_kept_connections_has_no_seat() -> None:
    found = verdict(waiting(9, came=0), kept(70, 70, 60))
    assert (found.cause, found.harm.kind, found.harm.count) == ("accept-starved", "stuck", 9)
    assert "the limit of connections or workers is reached" in found.summary
    assert "200 requests on 3 connections that it keeps" in found.evidence[0].says
    assert "server.maxConnections" in found.actions[0].say
    # That requests are slow hurts less, and is no rival.
    assert found.confidence > 0.75


def test_who_came_just_now_may_be_let_in_next() -> None:
    assert verdict(waiting(1, came=1), kept(70, 70, 60)).cause == "app-blocked"


def test_a_request_that_goes_on_may_be_what_they_wait_for() -> None:
    assert verdict(waiting(9, came=0), kept(1, 1, 1)).cause == "app-blocked"


def test_connections_are_those_of_the_listener() -> None:
    any_host = replace(waiting(9, came=0), transport="tcp", address="0.0.0.0:80")
    tcp = [replace(each, transport="tcp") for each in kept(5, 5)]
    here = [replace(each, local="10.0.0.1:80") for each in tcp]
    there = [replace(each, local="10.0.0.1:8080") for each in tcp]
    assert served_at(report(any_host, [*here, *there]), any_host) == here
    one_host = replace(any_host, address="10.0.0.2:80")
    assert served_at(report(one_host, here), one_host) == []


def test_who_should_accept_may_be_in_a_deadlock() -> None:
    """A thread that waits for a lock all the time, beside those that serve."""
    locked = ill.thread(tid=4712, blocked_lock=1.0)
    rows, still = kept(70, 70), [waiting(9, 0)]
    beside = ill.service(SLOW, SLEEPING, locked, listeners=still, connections=rows)
    found = judged(beside).verdict
    assert found is not None and found.cause == "accept-starved"
    assert "not accepted in time" in found.summary
    assert [each.effect for each in found.actions] == ["restarts", "looks"]
    alone = ill.service(ill.served(0), locked, listeners=[waiting(9, 9)])
    found = judged(alone).verdict
    assert found is not None and found.cause == "accept-starved"
    assert "wchan" in (found.actions[0].run or "")


@pytest.mark.parametrize(("acceptor", "is_starved"), [(4712, True), (4711, False)])
def test_requests_keep_a_loop_from_the_next_connection_and_no_thread_that_only_accepts(
    acceptor: int, is_starved: bool
) -> None:
    """Tomcat's maxConnections: each client has one for 100 requests, and its acceptor has time."""
    row = replace(waiting(9, came=9), accepted_by_thread={str(acceptor): 8})
    row = replace(row, accepted=8, established=17, wait_us=ill.flat(8, 1_500_000.0))
    requests = ill.served(800, app=20_000.0, other=100.0)
    resting = [ill.thread(tid=4712 + n, user=0.01, blocked_lock=0.99) for n in range(4)]
    one = ill.service(requests, ill.thread(user=0.5, blocked_other=0.1), *resting, listeners=[row])
    rows = [ill.served_by(4711, 800)]
    found = judged(replace(one, requests=replace(one.requests, served_by=rows))).verdict
    assert found is not None and (found.cause == "accept-starved") == is_starved
