"""What is said of processes that serve nobody: whom they ask, and what that takes."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional

import pytest

from tests.unit import ill
from udsprobe.model.report import Peer, Report, Verdict, Wait
from udsprobe.rules.accounts.service import whole_service
from udsprobe.rules.judge import judged
from udsprobe.rules.upstreams import MostAsked, asks_only, most_asked
from udsprobe.views.fields import cells


def worker(requests: int, served: int = 0) -> Report:
    """It asks one for 40 ms and another one for 1 ms each."""
    upstream = [
        ill.upstream(requests, 1_000.0, "/run/redis.sock"),
        ill.upstream(requests, 40_000.0),
    ]
    return ill.service(ill.served(served), upstream=upstream)


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def test_a_worker_that_sleeps_between_its_requests_is_told_so() -> None:
    """One that takes jobs from a queue: what it asks is quick, and what it does takes its time."""
    report = worker(100)
    slept = Wait(4711, 4711, "node", "sleep", 100, 0.8e6 * ill.SECONDS, 8e4, [], 0.0, [])
    found = verdict(replace(report, waits=[slept]))
    assert found.cause == "healthy"
    says = "node 4711 was asleep by a timer for 80 % of the time, and nothing is saturated"
    assert says in found.summary
    assert not any("postgres" in each.say for each in found.actions)
    # At a pipe it may wait for work.
    for other in (replace(slept, kind="pipe"), replace(slept, total_us=1e6)):
        found = verdict(replace(report, waits=[other]))
        assert "asleep" not in found.summary
        assert "postgres" in found.actions[0].say


def test_a_worker_is_told_whom_most_of_its_time_goes_to() -> None:
    found = verdict(worker(100))
    assert (found.cause, found.confidence) == ("healthy", 0.5)
    says = "served no request; its own 100 requests to postgres 55 at unix:/run/pg.sock took 40 ms"
    assert says in found.summary
    assert found.evidence[0].says.startswith("unix:/run/pg.sock answers in 40")


def test_few_requests_of_its_own_are_no_ground_to_tell() -> None:
    assert verdict(worker(5)).cause == "unknown"


@pytest.mark.parametrize("served", [1, 400])
def test_who_serves_does_not_only_ask(served: int) -> None:
    service = whole_service(worker(100, served))
    assert asks_only(service) is None
    asked = most_asked(service)
    assert asked is not None and asked.pid == 55


def test_a_thread_that_is_full_is_the_cause_of_a_worker_too() -> None:
    busy = ill.thread(4711, "worker", user=0.95, blocked_poll=0.05)
    upstream = [ill.upstream(100, 40_000.0)]
    found = verdict(ill.service(ill.served(0), busy, upstream=upstream))
    assert found.cause == "app-cpu"


def asked_at(address: str, **changed: object) -> MostAsked:
    row = replace(ill.upstream(100, 40_000.0), transport="tcp", address=address, **changed)  # type: ignore[arg-type]
    asked = most_asked(whole_service(ill.service(ill.served(0), upstream=[row])))
    assert asked is not None
    return asked


def looks_at(asked: MostAsked) -> List[Optional[str]]:
    return [each.run for each in asked.actions()]


def test_without_a_name_the_address_is_told() -> None:
    asked = asked_at("127.0.0.1:5432", peer=None)
    assert asked.where == "tcp:127.0.0.1:5432"
    assert looks_at(asked) == ["sudo udsprobe attach --listener 127.0.0.1:5432"]


@pytest.mark.parametrize(
    ("connections", "comm", "target"),
    [
        (4, "postgres", "--pid 55"),
        # A process for each connection has ended when the line is pasted.
        (None, "postgres", "--listener 127.0.0.1:5432"),
        (4, None, "--listener 127.0.0.1:5432"),
    ],
)
def test_the_line_attaches_to_what_is_still_there(
    connections: Optional[int], comm: Optional[str], target: str
) -> None:
    asked = asked_at("127.0.0.1:5432", connections=connections, peer=Peer(55, comm, None))
    assert looks_at(asked) == [f"sudo udsprobe attach {target}"]


def test_a_listener_is_looked_for_by_the_address_that_it_has() -> None:
    asked = asked_at("[::ffff:127.0.0.1]:5432")
    assert looks_at(asked) == ["sudo udsprobe attach --listener 127.0.0.1:5432"]
    # Of another host nobody here listens.
    elsewhere = asked_at("10.0.0.7:5432", peer=None)
    assert looks_at(elsewhere) == []


def test_an_answer_that_lies_unread_is_none_of_the_upstream_s_time() -> None:
    """60 ms until it is received, of which it lay there for 58 ms: the other takes 40 ms."""
    slow, late = ill.upstream(100, 40_000.0), ill.upstream(100, 60_000.0, "/run/redis.sock")
    late = replace(late, recv_wait_mean_us=58_000.0)
    asked = most_asked(whole_service(ill.service(ill.served(100), upstream=[late, slow])))
    assert asked is not None and (asked.address, asked.mean_us) == ("unix:/run/pg.sock", 40_000.0)
    assert asked.facts[1].says == (
        "unix:/run/redis.sock answers in 2 ms on average, 100 requests; "
        "its answers are then queued for the app for 58 ms"
    )
    assert cells.queued_answers(late) == "58.0 ms queued for the app"
    assert cells.queued_answers(replace(late, recv_wait_mean_us=30_000.0)) == ""
    assert cells.queued_answers(slow) == ""
