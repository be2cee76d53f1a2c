"""A target that opens a connection for each of its own requests, and what that costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit import ill
from tests.unit.reports import connect, syscall, target
from udsprobe.model.report import Hop, OwnRequests, Peer, Report, Verdict
from udsprobe.rules.judge import judged
from udsprobe.rules.suspects.churn import most_opened, opened_churn
from udsprobe.rules.suspects.suspect import Suspect

OPENED, ANSWER_US = 2_000, 5_900.0


def opening(connect_us: float, cpu_us: float, ran: float = 0.5) -> Verdict:
    """It runs for that part of the time; each connect() takes so long, and so much CPU time."""
    upstream = ill.upstream(OPENED, ANSWER_US)
    row = replace(connect(upstream.address, calls=OPENED), latency_us=ill.flat(OPENED, connect_us))
    calls = replace(syscall("connect", calls=OPENED), cpu_us=cpu_us * OPENED)
    report = ill.service(
        ill.served(OPENED, app=300.0, cpu=100.0),
        ill.thread(user=ran, blocked_poll=1 - ran),
        upstream=[upstream],
        syscalls=[calls],
    )
    found = judged(replace(report, connects=[row])).verdict
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("connect_us", "cpu_us", "is_dear"),
    [(4.0, 4.0, False), (600.0, 4.0, True), (4.0, 200.0, True)],
    ids=["neither", "the wait for it", "the calls for it"],
)
def test_they_are_the_cause_where_opening_them_takes_something(
    connect_us: float, cpu_us: float, is_dear: bool
) -> None:
    found = opening(connect_us, cpu_us)
    assert (found.cause == "connection-churn") == is_dear
    if is_dear:
        assert "opens a connection for each request to unix:" in found.summary


def test_where_no_thread_is_accounted_for_they_are() -> None:
    assert opening(4.0, 4.0, ran=0.0).cause == "connection-churn"


def test_who_asks_there_opens_them_and_not_whom_is_asked_most() -> None:
    """Of a chain each process is told what it asks: the remedy is of that program."""
    report = churned_upstream()
    (row,) = report.connects or []
    asks = OwnRequests(row.transport, row.address, None, OPENED, 800.0)
    asker = replace(ill.served_by(4712, OPENED, "php-fpm8.2"), upstream=[asks])
    front = ill.served_by(4713, 2 * OPENED, "nginx")
    by = replace(report.requests, served_by=[front, asker])
    targets = [
        replace(target(pid, comm), cmdline=comm)
        for pid, comm in ((4713, "nginx"), (4712, "php-fpm8.2"))
    ]
    (found,) = opened_churn(replace(report, requests=by, targets=targets))
    assert "php-fpm8.2 opens a connection" in found.headline
    assert "PDO::ATTR_PERSISTENT" in found.actions[0].say


def test_who_serves_opens_them_and_not_the_shell_that_started_it() -> None:
    report = churned_upstream()
    assert "sh opens a connection" in opened_churn(report)[0].headline
    by = replace(report.requests, served_by=[ill.served_by(4712, OPENED, "php")])
    served = replace(report, requests=by)
    assert "php opens a connection" in opened_churn(served)[0].headline
    hop = Hop(4713, [4713], "lighttpd", None, OPENED, None, None, None, [4712])
    chain = replace(served, requests=replace(by, hops=[hop]))
    assert "lighttpd opens a connection" in opened_churn(chain)[0].headline


def churned_upstream() -> Report:
    upstream = ill.upstream(OPENED, ANSWER_US)
    report = ill.service(ill.served(OPENED), ill.thread(), upstream=[upstream])
    targets = [target(4711, "sh"), target(4712, "php")]
    return replace(report, targets=targets, connects=[connect(upstream.address, calls=OPENED)])


def churn(where: str, opened: int) -> Suspect:
    words = ("connection-churn", f"churn:{where}", "warning", True, 100.0, where, "opens")
    return Suspect(*words, seen=opened)


def test_of_two_that_open_as_many_the_innermost_is_first() -> None:
    """nginx asks PHP-FPM, which asks Redis: each opens one for a request of a client."""
    hop = Hop(4713, [4713], "nginx", "127.0.0.1:80", OPENED, None, None, None, [4712])
    inner = Hop(4712, [4712], "php-fpm8.2", "127.0.0.1:9000", OPENED, None, None, None, [])
    report = churned_upstream()
    report = replace(report, requests=replace(report.requests, hops=[hop, inner]))
    outer, own = churn("tcp:127.0.0.1:9000", OPENED), churn("tcp:127.0.0.1:6379", OPENED - 9)
    assert most_opened(report, [outer, own]) is own
    assert most_opened(report, [own, churn("tcp:127.0.0.1:80", OPENED)]) is own
    assert most_opened(report, [outer, replace(own, seen=OPENED // 2)]) is outer
    assert most_opened(report, []) is None


def test_who_keeps_connections_to_php_fpm_is_told_how_many() -> None:
    """Each takes one of its workers, idle or not."""
    report = replace(churned_upstream(), targets=[replace(target(4711, "nginx"), cmdline="nginx")])
    (row,) = report.requests.upstream or []
    (found,) = opened_churn(report)
    assert "keepalive 64" in found.actions[0].say
    asked = replace(row, peer=Peer(4712, "php-fpm8.2", None))
    report = replace(report, requests=replace(report.requests, upstream=[asked]))
    (found,) = opened_churn(report)
    assert "has to stay below pm.max_children" in found.actions[0].say
