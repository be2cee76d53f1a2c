"""Sends that Nagle's algorithm holds: when that is the root, a finding, or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional

import pytest

from tests.unit import ill
from udsprobe.model.report import Connection, Peer, Report, ThreadTime, Upstream, Verdict
from udsprobe.rules.judge import judged

COUNT = 5000
AT = "127.0.0.1:8080"
UPSTREAM_AT = "10.0.0.1:5432"


def row(
    held_us: Optional[float], sends: int = COUNT, requests: int = COUNT, role: str = "served"
) -> Connection:
    """`held_us`: of a request."""
    return replace(
        ill.connection(role=role, peer=Peer(99, "peer", UPSTREAM_AT)),
        transport="tcp",
        local=AT,
        requests=requests,
        sends_held=sends,
        held_us=None if held_us is None else held_us * requests,
    )


def report(
    *rows: Connection,
    app: float = 100.0,
    thread: Optional[ThreadTime] = None,
    **app_pct: float,
) -> Report:
    requests = ill.served(COUNT, recv_wait=0, recv=0, send=0, app=app, **app_pct)
    threads = [] if thread is None else [thread]
    return ill.service(requests, *threads, connections=list(rows))


def verdict(one: Report) -> Verdict:
    found = judged(one).verdict
    assert found is not None
    return found


def findings(one: Report) -> List[str]:
    return [each.id for each in judged(one).findings or []]


def test_replies_that_wait_longer_than_their_requests() -> None:
    found = verdict(report(row(40_000)))
    assert (found.cause, found.class_, found.subject) == ("transport", "transport", f"tcp:{AT}")
    assert found.harm is not None
    assert found.harm.says == "the last part of a reply waits 40 ms on average in TCP"
    assert "Nagle's algorithm" in found.summary
    assert [fact.metric for fact in found.evidence] == ["held_us", "sends_held"]
    assert found.actions and "NoDelay" in (found.actions[0].say or "")
    assert found.transport_share_pct == pytest.approx(100 * 40_000 / 40_100, abs=0.01)


def test_the_same_is_no_second_finding() -> None:
    assert findings(report(row(40_000))) == ["transport"]


@pytest.mark.parametrize(
    ("held_us", "app", "cause"),
    [
        (1000, 100, "transport"),
        (999, 100, "healthy"),
        (1000, 3000, "transport"),
        (1000, 3010, "healthy"),
    ],
)
def test_a_quarter_of_a_request_and_a_millisecond(held_us: float, app: float, cause: str) -> None:
    assert verdict(report(row(held_us), app=app)).cause == cause


@pytest.mark.parametrize(("sends", "cause"), [(500, "transport"), (499, "healthy")])
def test_now_and_then_is_no_pressure(sends: int, cause: str) -> None:
    assert verdict(report(row(4000, sends))).cause == cause


def test_connections_of_few_requests_count_together() -> None:
    rows = [row(40_000, sends=4, requests=4) for _ in range(5)]
    assert verdict(report(*rows)).cause == "transport"
    assert verdict(report(*rows[:4])).cause == "healthy"


def test_a_reader_that_acknowledges_at_once_loses_nothing() -> None:
    quick = report(row(20))
    assert (verdict(quick).cause, findings(quick)) == ("healthy", [])


def test_what_was_not_measured_is_no_pressure() -> None:
    unmeasured = report(row(None))
    assert (verdict(unmeasured).cause, findings(unmeasured)) == ("healthy", ["nagle"])


def test_connections_without_holds_count_too() -> None:
    """A hundredth of the requests has them: 0.4 ms on average."""
    rows = (row(40_000, sends=50, requests=50), row(0, sends=0, requests=4950))
    rare = report(*rows)
    assert (verdict(rare).cause, findings(rare)) == ("healthy", ["nagle"])


@pytest.mark.parametrize(("asleep_us", "cause"), [(39_000, "transport"), (41_000, "app-blocked")])
def test_the_longer_of_two_waits_is_the_root(asleep_us: float, cause: str) -> None:
    both = report(row(40_000), app=asleep_us, thread=ill.thread(sys_socket=0.1), other=100)
    found = verdict(both)
    assert found.cause == cause
    other = "app-blocked" if cause == "transport" else "transport"
    assert other in [each.cause for each in found.runners_up]
    assert ("nagle" in findings(both)) == (cause == "app-blocked")


def test_threads_without_time_are_the_root() -> None:
    """Clients that ask earlier would only wait in front of them."""
    busy = report(row(40_000), app=2000, thread=ill.thread(user=0.9, sys_socket=0.05))
    assert verdict(busy).cause == "app-cpu"
    assert "nagle" in findings(busy)


def asking(held_us: float, asked: List[Upstream]) -> Report:
    requests = ill.served(COUNT, recv_wait=0, recv=0, send=0, app=40_000, upstream=100)
    rows = [row(held_us, role="upstream")]
    thread = ill.thread(sys_socket=0.1)
    return ill.service(requests, thread, connections=rows, upstream=asked)


@pytest.mark.parametrize(("held_us", "cause"), [(21_000, "transport"), (19_000, "upstream-wait")])
def test_a_held_question_is_most_of_the_wait_for_its_answer(held_us: float, cause: str) -> None:
    asked = [ill.upstream(COUNT, 40_000, UPSTREAM_AT)]
    one = asking(held_us, asked)
    found = verdict(one)
    assert found.cause == cause
    if cause == "transport":
        assert found.subject == f"tcp:{UPSTREAM_AT}"
        assert "request to an upstream" in found.summary


def test_threads_that_are_kept_by_a_held_question() -> None:
    """All of the window they wait for the answer: that is the hold itself."""
    thread = ill.thread(blocked_recv=0.98, sys_socket=0.02)
    requests = ill.served(240, recv_wait=0, recv=0, send=0, app=41_000, upstream=100)
    rows = [row(40_000, 240, 240, role="upstream")]
    asked = [ill.upstream(240, 40_900, UPSTREAM_AT)]
    kept = ill.service(requests, thread, connections=rows, upstream=asked)
    assert verdict(kept).cause == "transport"
    assert verdict(replace(kept, connections=[])).cause == "upstream-wait"
