"""An upstream that each request asks again and again, one answer after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

import pytest

from tests.unit import ill, reports
from udsprobe.model.report import Latency, OwnRequests, Peer, Upstream, Verdict
from udsprobe.rules.accounts.service import whole_service
from udsprobe.rules.judge import judged
from udsprobe.rules.upstreams import asks_per_request, most_asked

REQUESTS = 950


def asking(times: float, each_us: float, comm: str = "postgres", at_once: int = 1) -> Verdict:
    """Of a service whose requests ask so often, so many at the same time."""
    waits_us = times * each_us / at_once
    row = replace(ill.upstream(round(REQUESTS * times), each_us), peer=Peer(55, comm, None))
    requests = ill.served(REQUESTS, app=waits_us / 0.97, upstream=97, cpu=2)
    report = ill.service(requests, ill.thread(blocked_recv=0.9), upstream=[row])
    verdict = judged(report, slo_us=100.0).verdict
    assert verdict is not None and verdict.cause == "upstream-wait"
    return verdict


def test_a_loop_of_short_answers_is_told_with_asking_once_as_the_remedy() -> None:
    verdict = asking(60, 100)
    assert ", which it asks 60 times for each request, 100 µs each time." in verdict.summary
    once, look = verdict.actions
    assert "a join, or IN (...)" in once.say and "select_related" in once.say
    assert "see what postgres 55 spends its time on" in look.say


@pytest.mark.parametrize(
    ("times", "says"),
    [(14, "waiting for postgres 55, which it asks 14 times."), (1, "its upstreams.")],
)
def test_who_suffers_from_nothing_is_told_how_often_it_asks(times: int, says: str) -> None:
    """With more rows it may suffer; nothing is wrong yet."""
    row = replace(ill.upstream(REQUESTS * times, 50), peer=Peer(55, "postgres", None))
    requests = ill.served(REQUESTS, app=times * 50 / 0.9, upstream=90, cpu=10)
    report = ill.service(requests, ill.thread(blocked_recv=0.1), upstream=[row])
    found = judged(report)
    assert found.verdict is not None and found.verdict.cause == "healthy"
    assert f"% of it {says}" in found.verdict.summary
    assert not found.verdict.actions and not found.findings


@pytest.mark.parametrize(("times", "each_us", "is_first"), [(3, 300, True), (3, 9000, False)])
def test_of_a_few_long_answers_each_is_to_be_looked_at(
    times: int, each_us: float, is_first: bool
) -> None:
    verdict = asking(times, each_us)
    assert f"which it asks {times} times for each request" in verdict.summary
    assert ("once for all" in verdict.actions[0].say) == is_first
    assert "once for all" in verdict.actions[not is_first].say


@pytest.mark.parametrize(
    ("times", "at_once"), [(1, 1), (1.4, 1), (10, 10)], ids=["once", "tries-again", "together"]
)
def test_who_asks_once_or_all_at_the_same_time_is_told_as_before(
    times: float, at_once: int
) -> None:
    verdict = asking(times, 20_000, at_once=at_once)
    assert ", which takes 20 ms per request." in verdict.summary
    assert all("once for all" not in each.say for each in verdict.actions)


def test_who_waits_longer_than_all_answers_take_is_told_as_before() -> None:
    """For a free connection, say."""
    row = replace(ill.upstream(3 * REQUESTS, 2_000), connections=2, busy_pct=95.0)
    requests = ill.served(REQUESTS, app=60_000, upstream=98, cpu=1)
    report = ill.service(requests, ill.thread(blocked_recv=0.9), upstream=[row])
    verdict = judged(report, slo_us=100.0).verdict
    assert verdict is not None
    assert ", which takes 2 ms per request" in verdict.summary


@pytest.mark.parametrize(
    ("comm", "says"),
    [("redis-server", "MGET, or a pipeline"), ("mariadbd", "a join"), ("node", "Promise.all")],
)
def test_the_remedy_is_that_of_who_is_asked(comm: str, says: str) -> None:
    assert says in asking(60, 100, comm).actions[0].say


def test_what_several_processes_of_one_service_ask_is_added_up() -> None:
    """Four workers behind a proxy, a row each: one has a quarter of the 60 questions."""
    asks = [OwnRequests("unix", "/run/pg.sock", None, 15 * REQUESTS, us) for us in (90, 110) * 2]
    rows = tuple(Upstream(*row_of(each)) for each in asks)
    service = replace(whole_service(reports.busy()), upstream=rows, count=REQUESTS, is_first=False)
    asked = most_asked(service)
    assert asked is not None
    assert (asked.count, asked.mean_us, len(asked.facts)) == (60 * REQUESTS, 100.0, 1)
    assert asks_per_request(service, asked) == 60


def row_of(each: OwnRequests) -> Tuple[str, str, None, int, Latency]:
    """Of a process, as a service of a chain has it."""
    latency = Latency(each.count, each.latency_mean_us)
    return each.transport, each.address, None, each.count, latency
