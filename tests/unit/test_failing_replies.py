"""Replies that say that the server failed, and databases that have no free connection."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional, Sequence

import pytest

from tests.unit import ill, samples
from tests.unit.reports import target
from udsprobe.model.report import (
    Connect,
    HttpReplies,
    OwnRequests,
    Peer,
    Report,
    ServedBy,
    StageMeans,
    Unanswered,
    Upstream,
    Verdict,
    Waiting,
)
from udsprobe.model.requests.http_replies import http_replies
from udsprobe.model.sockets.connection_rows import upstream_rows
from udsprobe.rules import judged
from udsprobe.sample import HttpReplyCounts
from udsprobe.views.fields import cells

NODE, NGINX, COUNT = 812, 4711, 400
NONE = Waiting(0, None)


def http(failed: int, status: str = "503", mean_us: float = 90.0) -> HttpReplies:
    statuses = {status: failed} if failed else {}
    return HttpReplies(COUNT, failed, mean_us if failed else None, statuses)


def asked(failed: int, **changed: object) -> Upstream:
    row = Upstream(
        *("tcp", "127.0.0.1:3000", Peer(NODE, "node"), COUNT, ill.flat(COUNT, 300.0)),
        http=http(failed),
    )
    return replace(row, **changed)  # type: ignore[arg-type]


def serving(
    pid: int, comm: str, replies: Optional[HttpReplies], upstream: Sequence[Upstream] = ()
) -> ServedBy:
    own = [OwnRequests(row.transport, row.address, row.peer, row.count, 300.0) for row in upstream]
    return ServedBy(
        *(pid, comm, COUNT, 40.0, ill.flat(COUNT, 400.0), StageMeans(), None, 0, 0, own),
        in_progress=NONE,
        unread=NONE,
        asking=NONE,
        http=replies,
    )


def reported(*rows: ServedBy, upstream: Sequence[Upstream] = (), **app: float) -> Report:
    report = ill.service(ill.served(COUNT, **(app or {"app": 150.0})), ill.thread())
    requests = replace(report.requests, served_by=list(rows), upstream=list(upstream))
    targets = [target(row.pid, row.comm or "") for row in rows]
    return replace(report, requests=requests, targets=targets)


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def test_a_server_that_answers_with_errors() -> None:
    found = verdict(reported(serving(NODE, "node", http(100))))
    assert (found.cause, found.class_) == ("app-failing", "not-transport")
    assert (found.harm.kind, found.harm.share_pct, found.harm.count) == ("failed", 25.0, 100)
    assert found.summary.startswith(
        "25 % of replies are HTTP 503: node 812 answers so itself, after 90 µs on average"
    )


@pytest.mark.parametrize("failed", [0, 2, 3])
def test_a_few_are_no_pattern(failed: int) -> None:
    assert verdict(reported(serving(NODE, "node", http(failed)))).cause == "healthy"


def test_what_is_not_measured_is_no_failure() -> None:
    assert verdict(reported(serving(NODE, "node", None))).cause == "healthy"


def test_workers_are_one_program() -> None:
    rows = [serving(NGINX + at, "nginx", http(1, "502")) for at in range(12)]
    found = verdict(reported(*rows))
    assert found.cause == "healthy"
    rows = [serving(NGINX + at, "nginx", http(5, "502")) for at in range(12)]
    assert verdict(reported(*rows)).summary.startswith(
        "1.2 % of replies are HTTP 502: nginx answers so itself"
    )


def test_who_passes_it_on_is_not_who_fails() -> None:
    failing = asked(100)
    found = verdict(reported(serving(NGINX, "nginx", http(100), [failing]), upstream=[failing]))
    assert (found.cause, found.subject) == ("app-failing", "tcp:127.0.0.1:3000")
    assert "node 812 at tcp:127.0.0.1:3000 answers so, and nginx 4711 passes it on" in found.summary
    assert found.actions[0].run == "sudo udsprobe attach --pid 812"


def test_with_both_attached_it_is_who_fails() -> None:
    failing = asked(100)
    rows = serving(NGINX, "nginx", http(100), [failing]), serving(NODE, "node", http(100))
    found = verdict(reported(*rows, upstream=[failing]))
    assert found.subject == "node 812"
    assert found.harm.share_pct == 25.0
    assert "app-failing" not in [each.cause for each in found.runners_up]


def test_several_upstreams_fail_together() -> None:
    some = [asked(30, address=f"127.0.0.1:{port}") for port in (3000, 3001, 3002)]
    found = verdict(reported(serving(NGINX, "nginx", http(90), some), upstream=some))
    assert "at tcp:127.0.0.1:3000 and 2 others answer so, and nginx 4711" in found.summary


@pytest.mark.parametrize(
    ("peer", "says"),
    [
        (Peer(NODE, "node"), "whether tcp:127.0.0.1:3000 answered so first is not seen"),
        (None, "whether tcp:127.0.0.1:3000 answered so first is not seen"),
        (Peer(NODE, "postgres"), "nginx 4711 answers so itself"),
    ],
)
def test_answers_without_a_status(peer: Optional[Peer], says: str) -> None:
    unseen = asked(0, http=HttpReplies(0, 0, None, {}), peer=peer)
    found = verdict(reported(serving(NGINX, "nginx", http(90), [unseen]), upstream=[unseen]))
    assert says in found.summary


def test_of_several_processes_the_one_that_fails_is_named() -> None:
    rows = serving(NODE, "node", http(0)), serving(NODE + 1, "node", http(100))
    found = verdict(reported(*rows))
    assert found.summary.startswith("12 % of replies are HTTP 503: node 813 answers so itself")


def test_an_upstream_that_fails_now_and_then_is_not_whose_most_failures_are() -> None:
    failing = asked(40)
    found = verdict(reported(serving(NGINX, "nginx", http(100), [failing]), upstream=[failing]))
    assert found.subject == "nginx 4711"


def test_failures_for_want_of_an_answer_have_a_verdict_already() -> None:
    dropping = asked(0, dropped=Unanswered(100, 20_000.0), dropped_kept=0)
    row = serving(NGINX, "nginx", http(100, "502"), [dropping])
    report = judged(reported(row, upstream=[dropping]))
    assert report.verdict is not None
    assert report.verdict.cause == "upstream-wait"
    assert "end without an answer" in report.verdict.summary


def test_so_have_those_for_refused_connects() -> None:
    report = reported(serving(NGINX, "nginx", http(400, "502")))
    refused = Connect(
        *("unix", "/run/app.sock", 400), {"ECONNREFUSED": 400}, {}, ill.flat(400, 20.0)
    )
    found = verdict(replace(report, connects=[refused]))
    assert found.cause == "connect-failing"


@pytest.mark.parametrize(
    ("failed", "mean_us", "cause"),
    [
        (100, 150_000.0, "app-blocked"),  # the others take 20 ms
        (100, 60_000.0, "app-failing"),  # as long as the others
        (100, 100.0, "app-failing"),
        (400, 60_000.0, "app-blocked"),  # there are no others
    ],
)
def test_failures_at_the_end_of_a_wait_are_its_harm(
    failed: int, mean_us: float, cause: str
) -> None:
    row = replace(
        serving(NODE, "node", http(failed, "504", mean_us)), latency_us=ill.flat(COUNT, 60_000.0)
    )
    found = verdict(reported(row, app=60_000.0, poll=100.0))
    assert found.cause == cause
    assert (found.harm.kind, found.harm.count) == ("failed", failed)


def test_failures_of_which_most_are_quick_are_at_the_end_of_no_wait() -> None:
    """A proxy without a server to ask, on a busy host: a few of its replies are late."""
    latency = replace(ill.flat(COUNT, 60_000.0), p50=90.0)
    row = replace(serving(NODE, "haproxy", http(COUNT, "503", 60_000.0)), latency_us=latency)
    found = verdict(reported(row, app=60_000.0, poll=100.0))
    assert (found.cause, found.harm.share_pct) == ("app-failing", 100.0)
    assert "which of its servers are down" in found.actions[0].say


def test_who_asks_without_serving_is_told_of_the_answers() -> None:
    report = reported(upstream=[asked(100)])
    requests = replace(report.requests, served=None)
    found = verdict(replace(report, requests=requests, targets=[target(99, "python")]))
    assert found.summary.startswith(
        "25 % of answers of tcp:127.0.0.1:3000 are HTTP 503: node 812 answers so"
    )


@pytest.mark.parametrize(
    ("statuses", "says"),
    [
        ({"503": 100}, "HTTP 503"),
        ({"502": 40, "504": 60}, "HTTP 504 and 502"),
        ({"500": 10, "502": 40, "504": 50}, "HTTP 504, 502 and others"),
        ({"other": 100}, "HTTP 5xx"),
        ({"other": 40, "503": 60}, "HTTP 503 and others"),
    ],
)
def test_statuses_in_words(statuses: Dict[str, int], says: str) -> None:
    replies = HttpReplies(COUNT, 100, 90.0, statuses)
    found = verdict(reported(serving(NODE, "node", replies)))
    assert found.harm.says == f"25 % of replies are {says}"


@pytest.mark.parametrize("peer", [Peer(NODE, "postgres"), Peer(NODE, None), None])
def test_a_database_without_a_free_connection(peer: Optional[Peer]) -> None:
    row = asked(0, address="127.0.0.1:5432", peer=peer, no_seat=30, no_seat_by="postgresql")
    connects = Connect("tcp", "127.0.0.1:5432", 40, {}, {}, ill.flat(40, 20.0))
    report = replace(reported(serving(NGINX, "app", http(0)), upstream=[row]), connects=[connects])
    found = verdict(report)
    assert (found.cause, found.class_, found.harm.kind) == ("accept-starved", "set-up", "refused")
    assert found.harm.share_pct == 75.0
    who = "postgres 812" if peer is not None and peer.comm else "the server"
    assert f"{who} answers that all connections that it allows are taken" in found.summary
    assert "max_connections" in found.actions[0].say


def test_counts_are_those_of_the_window() -> None:
    first = HttpReplyCounts(100, 10, 10_000, {"503": 10})
    last = HttpReplyCounts(300, 30, 70_000, {"503": 25, "500": 5})
    expected = HttpReplies(200, 20, 3.0, {"503": 15, "500": 5})
    assert http_replies("it", last, first) == expected
    assert http_replies("it", first, first) == HttpReplies(0, 0, None, {})
    assert http_replies("it", None, None) is None


def test_destinations_of_one_name_are_one_row() -> None:
    counted = HttpReplyCounts(10, 3, 6_000, {"500": 3})
    parts = samples.upstream(http=counted, no_seat=2, no_seat_by="redis"), samples.upstream()
    first, last = samples.sample(0, upstream=()), samples.sample(1, upstream=parts)
    rows: Optional[List[Upstream]] = upstream_rows(first, last)
    assert rows is not None
    assert rows[0].http == HttpReplies(10, 3, 2.0, {"500": 3})
    assert (rows[0].no_seat, rows[0].no_seat_by) == (2, "redis")


@pytest.mark.parametrize(
    ("statuses", "told"),
    [
        ({}, []),
        ({"503": 17}, ["17 HTTP 503"]),
        ({"500": 2, "503": 1700, "502": 3}, ["1,700 HTTP 503", "3 HTTP 502", "2 other HTTP 5xx"]),
        ({"other": 4}, ["4 other HTTP 5xx"]),
    ],
)
def test_what_a_screen_says_of_them(statuses: Dict[str, int], told: List[str]) -> None:
    replies = HttpReplies(COUNT, sum(statuses.values()), 90.0, statuses)
    assert cells.http_failed(replies) == told
    assert cells.http_failed(None) == []
    row = asked(0, http=replies, dropped=Unanswered(2, 1.0), no_seat=3)
    assert cells.failed_asking(row).split(", ")[:2] == ["2 without an answer", "3 turned away"]


def with_a_dead_upstream(report: Report) -> Report:
    dead = Connect("tcp", "127.0.0.1:9999", 11, {"ECONNREFUSED": 11}, {}, ill.flat(11, 20.0))
    return replace(report, connects=[dead])


BUSY = {"app": 5_000.0}


def test_connects_that_fail_and_harm_no_reply_are_not_why_requests_are_slow() -> None:
    """A proxy asks again and again whether an upstream is there; no request needs it."""
    report = with_a_dead_upstream(slow(http(0)))
    assert verdict(slow(http(0))).cause == verdict(report).cause == "app-cpu"
    beside = [each for each in judged(report).findings if "127.0.0.1:9999" in (each.subject or "")]
    assert [each.severity for each in beside] == ["warning"]


@pytest.mark.parametrize("replies", [None, http(100)], ids=["not known", "some failed"])
def test_connects_that_fail_come_first_where_replies_may_fail_by_them(
    replies: Optional[HttpReplies],
) -> None:
    assert verdict(with_a_dead_upstream(slow(replies))).cause in ("connect-failing", "app-failing")


def test_connects_that_fail_are_told_where_nothing_else_presses() -> None:
    report = with_a_dead_upstream(reported(serving(NODE, "node", http(0))))
    assert verdict(report).cause == "connect-failing"


def slow(replies: Optional[HttpReplies]) -> Report:
    """Of a thread that computes all the time."""
    report = reported(serving(NODE, "node", replies), **BUSY)
    busy = ill.service(ill.served(COUNT, **BUSY), ill.thread(user=0.99))
    return replace(
        report, time=busy.time, requests=replace(report.requests, served=busy.requests.served)
    )
