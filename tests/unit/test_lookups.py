"""Names that a service looks up: requests to a name server, or sleeps where no answer is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit import ill
from udsprobe.model.report import Connect, Unanswered, Upstream, Verdict
from udsprobe.rules import judged

SERVER = "127.0.0.53:53"


def asked(calls: int, address: str = SERVER, transport: str = "udp") -> Connect:
    return Connect(transport, address, calls, {}, {}, ill.flat(calls, 4.0))


def verdict(*connects: Connect, **app_pct: float) -> Verdict:
    requests = ill.served(200, app=40_000.0, **(app_pct or {"cpu": 1.0, "poll": 99.0}))
    report = ill.service(requests, ill.thread(user=0.01, blocked_poll=0.99))
    found = judged(replace(report, connects=list(connects))).verdict
    assert found is not None
    return found


def test_the_name_server_is_named() -> None:
    found = verdict(asked(300), asked(20, "127.0.0.2:53"))
    assert (found.cause, found.subject) == ("app-blocked", f"udp:{SERVER}")
    assert f"asks the name server udp:{SERVER} 1.6 times for each of them" in found.summary
    assert "connections that stay open" in found.actions[0].say or "Agent" in found.actions[0].say
    assert any("320 connects" in each.says for each in found.evidence)


@pytest.mark.parametrize(
    "connects",
    [
        (),
        (asked(90),),
        (asked(300, "127.0.0.1:8125"),),
        (asked(300, "127.0.0.1:5353"),),
        (asked(300, transport="tcp"),),
    ],
    ids=["none", "now and then", "metrics", "another port", "TCP, which is followed"],
)
def test_otherwise_it_is_not(connects: tuple[Connect, ...]) -> None:
    found = verdict(*connects)
    assert found.cause == "app-blocked"
    assert "name server" not in found.summary


def test_who_sleeps_elsewhere_does_not_wait_for_it() -> None:
    found = verdict(asked(300), cpu=1.0, lock=99.0)
    assert "name server" not in found.summary


def of_server(**changes: Any) -> Verdict:
    """A Node service that asks it once for each of 200 requests of 40 ms."""
    row = Upstream("udp", SERVER, None, 200, ill.flat(200, 39_000.0), **changes)
    requests = ill.served(200, app=40_000.0, cpu=1.0, upstream=99.0)
    report = ill.service(requests, ill.thread(user=0.01, blocked_poll=0.99))
    report = replace(report, requests=replace(report.requests, upstream=[row]))
    found = judged(report).verdict
    assert found is not None
    return found


def test_a_name_server_that_answers_late() -> None:
    found = of_server()
    assert (found.cause, found.subject) == ("upstream-wait", f"udp:{SERVER}")
    assert f"waits for the name server udp:{SERVER}, which takes 39 ms" in found.summary
    assert "cacheable-lookup" in (found.actions[0].say or "")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("given_up", "it has not answered when they are given up, after 5 s on average"),
        ("dropped", "nobody listens there (ECONNREFUSED)"),
    ],
)
def test_questions_without_an_answer(how: str, says: str) -> None:
    found = of_server(**{how: Unanswered(50, 5e6)})
    assert (found.cause, found.harm.kind, found.harm.count) == ("upstream-wait", "failed", 50)
    assert (
        f"20 % of requests to the name server udp:{SERVER} end without an answer" in found.summary
    )
    assert says in found.summary
    assert "resolv.conf" in (found.actions[0].say or "")
