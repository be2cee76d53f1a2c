"""Clients of a proxy that wait for a connection upstream, which others keep."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional

import pytest

from tests.unit import ill
from tests.unit.reports import target
from tests.unit.test_stuck import wait
from udsprobe.model.report import (
    OwnRequests,
    Peer,
    Report,
    ServedBy,
    ThreadTime,
    Upstream,
    Verdict,
    Waiting,
    WaitNow,
)
from udsprobe.rules.judge import judged

NONE, FRESH = Waiting(0, None), Waiting(3, 8_000.0)
DATABASE = Peer(812, "postgres")


def asked(connections: Optional[int] = 4, busy_pct: float = 47.0) -> Upstream:
    row = ill.upstream(40_000, 180.0)
    return replace(row, peer=DATABASE, connections=connections, busy_pct=busy_pct)


def proxy(
    before: Waiting = NONE,
    owed: Waiting = FRESH,
    upstream: Optional[Upstream] = None,
    comm: str = "pgbouncer",
) -> Report:
    """It answers some clients in 0.2 ms."""
    row = upstream or asked()
    own = OwnRequests(row.transport, row.address, DATABASE, row.count, 180.0)
    served = replace(ill.served_by(4711, 40_000, comm), upstream=[own])
    served = replace(served, unanswered=owed, in_progress=owed, asked_before=before)
    report = ill.service(ill.served(40_000), ill.thread(user=0.2, sys_socket=0.1))
    requests = replace(report.requests, served_by=[served], upstream=[row])
    return replace(report, requests=requests, targets=[target(4711, comm)])


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def test_clients_that_wait_for_ever_are_told_though_others_are_well() -> None:
    found = verdict(proxy(before=Waiting(16, 12.2e6)))
    assert (found.cause, found.harm.kind, found.harm.count) == ("upstream-wait", "stuck", 16)
    assert found.summary.startswith(
        "16 clients wait for a connection, the longest for 12.2 s: pgbouncer 4711 has "
        "4 connections to postgres 812 at unix:/run/pg.sock, which others keep, 47 % busy"
    )
    assert "pool_mode = transaction" in found.actions[0].say


def test_those_who_asked_since_we_came_count_beyond_the_connections() -> None:
    """19 are without a reply, and four of them can have a connection."""
    assert verdict(proxy(owed=Waiting(19, 4e6))).harm.count == 15


def test_connections_that_all_wait_for_an_answer_are_kept_for_that() -> None:
    report = proxy(before=Waiting(16, 12.2e6))
    rows = report.requests.served_by or []
    asking = [replace(each, asking=Waiting(4, 3e6)) for each in rows]
    report = replace(report, requests=replace(report.requests, served_by=asking))
    assert "which others keep" not in verdict(report).summary


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(proxy(), id="nobody waits for long"),
        pytest.param(proxy(owed=Waiting(19, 8_000.0)), id="a queue that moves"),
        pytest.param(
            proxy(before=Waiting(1, 12.2e6), upstream=asked(connections=40)),
            id="it may have one of the connections",
        ),
        pytest.param(
            proxy(before=Waiting(16, 12.2e6), upstream=asked(connections=None)),
            id="it is not known how many there are",
        ),
        pytest.param(
            proxy(before=Waiting(16, 12.2e6), comm="node"), id="long polls of a program of its own"
        ),
    ],
)
def test_nobody_is_said_to_wait_for_a_connection(report: Report) -> None:
    assert verdict(report).cause == "healthy"


def resolver() -> WaitNow:
    """The thread that looks names up, beside the loop: it has no work."""
    return wait(4712, comm="pgbouncer", replies_owed=0, is_serving=False, clients=20)


def idle(comm: str, *threads: ThreadTime) -> Report:
    """All connections are kept by clients that say nothing."""
    row: List[ServedBy] = [
        replace(ill.served_by(4711, 0, comm), unanswered=NONE, asked_before=Waiting(16, 9e6))
    ]
    report = ill.service(ill.served(0), *threads)
    return replace(
        report,
        requests=replace(report.requests, served_by=row),
        targets=[replace(target(4711, comm), threads=2)],
        connections_total=24,
        waits_now=[resolver()],
    )


def test_connections_that_nobody_uses_are_what_is_left_of_all() -> None:
    loop = ill.thread(4711, "pgbouncer", blocked_poll=0.99)
    found = verdict(idle("pgbouncer", loop))
    assert found.summary.startswith(
        "16 clients wait for a connection, the longest for 9 s: pgbouncer 4711 has "
        "4 connections upstream, which others keep"
    )


def test_a_thread_beside_a_loop_that_polls_all_the_time_is_not_blamed() -> None:
    """Its sleeps are short, so it is in no list of those that go on."""
    loop = ill.thread(4711, "app", blocked_poll=0.99)
    assert verdict(idle("app", loop)).cause == "unknown"
