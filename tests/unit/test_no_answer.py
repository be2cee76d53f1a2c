"""Requests of the targets' own without an answer: the upstream's illness, or a kept connection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest

from tests.unit import ill, samples
from tests.unit.reports import connect, target
from udsprobe.model.report import (
    GivenUp,
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
from udsprobe.model.sockets.connection_rows import upstream_rows
from udsprobe.rules import judged
from udsprobe.sample import UnansweredCounts

PID, PEER = 4711, Peer(812, "gunicorn")
NOTHING = Unanswered(0, None)


def asked(
    answered: int = 150,
    dropped: Unanswered = NOTHING,
    kept: int = 0,
    given_up: Unanswered = NOTHING,
    peer: Optional[Peer] = PEER,
) -> Upstream:
    latency = ill.flat(answered, 400.0)
    return Upstream(
        *("tcp", "127.0.0.1:8000", peer, answered, latency),
        dropped=dropped,
        dropped_kept=kept,
        given_up=given_up,
    )


def reported(*rows: Upstream, pid: int = PID, **app_us: float) -> Report:
    report = ill.service(ill.served(200, **(app_us or {"app": 150.0})), ill.thread())
    none = Waiting(0, None)
    own = [OwnRequests(row.transport, row.address, row.peer, row.count, 400.0) for row in rows]
    by = ServedBy(
        *(pid, "nginx", 200, 20.0, ill.flat(200, 400.0), StageMeans(), None, 0, 0, own),
        in_progress=none,
        unread=none,
        asking=none,
    )
    requests = replace(report.requests, upstream=list(rows), served_by=[by])
    return replace(report, requests=requests, targets=[target(pid, "nginx")])


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def test_an_upstream_that_closes_connections() -> None:
    found = verdict(reported(asked(dropped=Unanswered(50, 20_000.0))))
    assert found.cause == "upstream-wait"
    assert (found.harm.kind, found.harm.count, found.harm.share_pct) == ("failed", 50, 25.0)
    assert "25 % of requests to tcp:127.0.0.1:8000 end without an answer" in found.harm.says
    assert "gunicorn 812 closes their connections, after 20 ms on average" in found.summary
    assert found.actions[0].run == "sudo udsprobe attach --pid 812"
    assert any("WORKER TIMEOUT" in each.say for each in found.actions)


def test_one_that_is_not_known_is_named_by_its_place() -> None:
    found = verdict(reported(asked(dropped=Unanswered(50, 20_000.0), peer=None)))
    assert "end without an answer: it closes their connections" in found.summary
    assert all("attach" not in (each.run or "") for each in found.actions)


def test_one_that_never_answers() -> None:
    found = verdict(reported(asked(0, dropped=Unanswered(20, 100.0))))
    assert (found.cause, found.harm.share_pct) == ("upstream-wait", 100.0)
    found = verdict(reported(asked(0, given_up=Unanswered(20, 2e6))))
    assert (found.cause, found.harm.share_pct) == ("upstream-wait", 100.0)
    assert "has not answered when they are given up, after 2 s on average" in found.summary


@pytest.mark.parametrize(
    "row",
    [
        asked(),
        asked(dropped=Unanswered(2, 20_000.0)),
        asked(1_000, dropped=Unanswered(9, 20_000.0)),
        asked(given_up=Unanswered(50, 300.0)),
        asked(0, given_up=Unanswered(50, 300_000.0)),
    ],
    ids=["none", "two", "below 1 %", "as soon as others are answered", "speaks without answers"],
)
def test_no_illness(row: Upstream) -> None:
    found = verdict(reported(row))
    assert (found.cause, found.harm.kind) == ("healthy", "none")


@pytest.mark.parametrize(
    ("opened", "answered", "is_ill"), [(3200, 0, False), (30, 0, True), (3200, 150, True)]
)
def test_what_most_send_there_needs_no_answer(opened: int, answered: int, is_ill: bool) -> None:
    """Postfix wakes its queue manager, which hangs up on some while it is awake."""
    row = asked(answered, Unanswered(24, 540.0), peer=None)
    opens = connect(row.address, calls=opened, transport=row.transport)
    report = replace(reported(row), connects=[opens])
    assert (verdict(report).cause == "upstream-wait") is is_ill


def test_who_gives_up_with_its_clients_is_not_who_suffers() -> None:
    """A proxy closes its own connection when its client has left: the harm is that client's."""
    report = reported(asked(given_up=Unanswered(50, 400_000.0)))
    by = report.requests.served_by[0] if report.requests.served_by else None
    assert by is not None
    left = replace(by, given_up=GivenUp(50, 0, 400_000.0, 390_000.0))
    report = replace(report, requests=replace(report.requests, served_by=[left]))
    found = verdict(report)
    assert (found.cause, found.harm.kind) == ("upstream-wait", "failed")
    assert "their clients give up" in found.harm.says


def test_connections_that_were_kept_too_long() -> None:
    """Somebody may suffer; what tries again by itself does not."""
    report = judged(reported(asked(dropped=Unanswered(50, 40.0), kept=50)))
    assert report.verdict is not None and report.verdict.cause == "healthy"
    (found,) = (each for each in report.findings if "kept-too-long" in each.id)
    assert found.severity == "warning"
    assert (
        "gunicorn 812 had closed kept connections to tcp:127.0.0.1:8000 before requests"
        in found.summary
    )
    assert any("--keep-alive" in each.say for each in found.actions)


@pytest.mark.parametrize(
    ("kept", "waited_us"), [(50, 20_000.0), (10, 40.0)], ids=["after a while", "most are new"]
)
def test_on_kept_connections_the_upstream_can_fail_too(kept: int, waited_us: float) -> None:
    found = verdict(reported(asked(dropped=Unanswered(50, waited_us), kept=kept)))
    assert (found.cause, found.harm.kind) == ("upstream-wait", "failed")


def test_the_wait_for_it_is_the_same_illness() -> None:
    row = asked(dropped=Unanswered(50, 20_000.0))
    report = judged(reported(row, app=5_000.0, upstream=4_900.0))
    assert report.verdict is not None and report.verdict.harm.kind == "failed"
    assert [each.id for each in report.findings].count("upstream-wait:tcp:127.0.0.1:8000") <= 1


def test_counters_become_rows() -> None:
    """Two rows of the kernel half with one destination are one."""
    first, last = samples.busy_pair()
    before = samples.upstream([], dropped=UnansweredCounts(1, 1_000), dropped_kept=1)
    ended: Any = {
        "dropped": UnansweredCounts(4, 31_000),
        "dropped_kept": 3,
        "given_up": UnansweredCounts(0, 0),
    }
    first, last = (
        replace(first, upstream=(before,)),
        replace(last, upstream=(samples.upstream([], **ended), samples.upstream([], **ended))),
    )
    rows = upstream_rows(first, last)
    assert rows is not None and len(rows) == 1
    assert rows[0].dropped == Unanswered(7, 61 / 7)
    assert (rows[0].count, rows[0].dropped_kept, rows[0].given_up) == (0, 5, NOTHING)


def test_where_no_call_is_seen_it_is_not_measured() -> None:
    first, last = samples.busy_pair()
    rows = upstream_rows(first, replace(last, upstream=(samples.upstream([5_000]),)))
    assert rows is not None
    assert (rows[0].dropped, rows[0].dropped_kept, rows[0].given_up) == (None, None, None)
