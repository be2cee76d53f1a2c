"""Names that a service looks up: requests to a name server, or sleeps where no answer is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Sequence

import pytest

from tests.unit import ill
from udsprobe.model.report import Connect, Peer, Unanswered, Upstream, Verdict
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


def test_one_that_answers_has_any_port() -> None:
    consul = "127.0.0.1:8600"
    row = Upstream("udp", consul, None, 300, ill.flat(300, 500.0))
    report = ill.service(ill.served(200, app=40_000.0, cpu=1.0, poll=99.0), ill.thread(user=0.01))
    requests = replace(report.requests, upstream=[row])
    found = judged(replace(report, requests=requests, connects=[asked(300, consul)])).verdict
    assert found is not None
    assert f"asks the name server udp:{consul} 1.5 times for each of them" in found.summary


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


def sharing(slow_us: float, answers: Sequence[Upstream], poll: float = 70.0) -> Verdict:
    """A service whose usual request takes 2 ms and a hundredth so long; the app answers in 1 ms."""
    app = Upstream("tcp", "127.0.0.1:3000", Peer(812, "node"), 1000, ill.flat(1000, 1_000.0))
    requests = ill.served(1000, app=8_000.0, p99=slow_us, cpu=5.0, upstream=95.0 - poll, poll=poll)
    latency = replace(requests.latency_us, p50=2_000.0)
    report = ill.service(replace(requests, latency_us=latency), ill.thread())
    report = replace(report, requests=replace(report.requests, upstream=[app, *answers]))
    found = judged(report).verdict
    assert found is not None
    return found


def names(mean_us: float) -> Upstream:
    return Upstream("udp", SERVER, None, 5, ill.flat(5, mean_us))


@pytest.mark.parametrize("poll", [70.0, 30.0], ids=["most of it", "a part of it"])
def test_one_question_is_for_all_that_want_the_name(poll: float) -> None:
    """Those wait in the poller, with nothing of their own outstanding."""
    found = sharing(130_000.0, [names(128_000.0)], poll)
    assert (found.cause, found.subject) == ("upstream-wait", f"udp:{SERVER}")
    says = f"1 % of requests take 130 ms or more: node waits for the name server udp:{SERVER}"
    assert found.summary.startswith(says)


@pytest.mark.parametrize("answer_us", [3_000.0, 900_000.0])
def test_requests_that_take_another_time_wait_for_no_name(answer_us: float) -> None:
    found = sharing(130_000.0, [names(answer_us)])
    assert (found.cause, "name server" in found.summary) == ("app-blocked", False)


@pytest.mark.parametrize(("count", "subject"), [(20, "127.0.0.1:4000"), (2, "127.0.0.1:3000")])
def test_some_that_are_slow_wait_for_who_answers_late(count: int, subject: str) -> None:
    """One of two upstreams, which all together wait less for; two answers are not theirs."""
    late = Upstream("tcp", "127.0.0.1:4000", None, count, ill.flat(count, 45_000.0))
    found = sharing(50_000.0, [late], poll=0.0)
    assert (found.cause, found.subject) == ("upstream-wait", f"tcp:{subject}")
