"""One of several workers keeps its clients waiting, and answers too seldom to show in the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

import pytest

from tests.unit import ill
from tests.unit.reports import listener, target
from udsprobe.model.report import (
    ProcessTime,
    Report,
    ServedBy,
    StageMeans,
    ThreadTime,
    Verdict,
    Waiting,
)
from udsprobe.rules.judge import judged

SLOW, QUICK = 4711, 4712
NONE = Waiting(0, None)
QUICK_COUNT = 40_000


def row(pid: int, count: int, recv_wait: float, app: float, **pct: float) -> ServedBy:
    mean = StageMeans(None, recv_wait, 3.0, app, 7.0)
    latency = ill.flat(count, recv_wait + app + 10.0)
    own = (pid, "node", count, count / ill.SECONDS, latency, mean, pct, 0, 0, [])
    return ServedBy(*own, in_progress=NONE, unread=NONE, asking=NONE)


def worker(pid: int, **share: float) -> Tuple[ThreadTime, ProcessTime]:
    thread = replace(ill.thread(pid, sys_socket=0.02, **share), pid=pid)
    return thread, ProcessTime(pid, "node", 1, ill.SECONDS, thread.share)


def cluster(slow: ServedBy, quick_count: int = QUICK_COUNT, **share: float) -> Report:
    """One worker like that, and one that answers so many in 60 µs, 4,000 a second."""
    quick = row(QUICK, quick_count, 10.0, 40.0, cpu=100.0)
    threads, processes = zip(worker(SLOW, **share), worker(QUICK, user=0.4))
    count = slow.count + quick.count
    mean = sum((r.latency_us.mean or 0.0) * r.count for r in (slow, quick)) / count
    report = ill.service(ill.served(count, app=mean - 30.0), *threads)
    assert report.time is not None
    return replace(
        report,
        targets=[target(pid, "node") for pid in (SLOW, QUICK)],
        time=replace(report.time, processes=list(processes)),
        requests=replace(report.requests, served_by=[slow, quick]),
    )


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("does", "part", "cause"),
    [("user", "cpu", "app-cpu"), ("blocked_other", "other", "app-blocked")],
)
def test_the_clients_of_a_worker_that_is_full_suffer(does: str, part: str, cause: str) -> None:
    slow = row(SLOW, 240, 40_000.0, 40_000.0, **{part: 100.0})
    found = verdict(cluster(slow, **{does: 0.96}))
    assert found.cause == cause and found.harm is not None
    says = "requests of node 4711 take 80 ms on average, those of all 2 processes 537 µs"
    assert found.harm.says == says and found.summary.startswith(says)
    assert (found.harm.kind, found.harm.count) == ("slow", 240)
    assert "let its clients reach the other workers" in found.actions[-1].say


@pytest.mark.parametrize(
    ("count", "recv_wait", "app"),
    [(240, 100.0, 40_000.0), (4, 40_000.0, 40_000.0), (240, 1_000.0, 1_000.0)],
    ids=["one session that asks for more", "seen seldom", "not far from the others"],
)
def test_no_worker_is_accused(count: int, recv_wait: float, app: float) -> None:
    slow = row(SLOW, count, recv_wait, app, other=100.0)
    assert verdict(cluster(slow, blocked_other=0.6)).cause == "healthy"


ACCEPTED = 30


def with_listeners(report: Report, *owners: Tuple[int, ...]) -> Report:
    """Connections to the first wait a second for accept(), those to others do not."""
    rows = []
    for at, pids in enumerate(owners):
        waited = ill.flat(ACCEPTED, 1e6 if at == 0 else 50.0)
        one = listener(f"127.0.0.1:{5600 + at}", "tcp", now=2, pids=list(pids))
        rows.append(replace(one, accepted=ACCEPTED, wait_us=waited))
    return replace(report, listeners=rows)


def starved() -> Report:
    """It sleeps 200 ms in each of few requests, and is as often asked as the other."""
    slow = row(SLOW, ACCEPTED, 40.0, 200_000.0, other=100.0)
    mean = replace(slow.stages_mean_us, accept_wait=1e6)
    slow = replace(slow, stages_mean_us=mean, latency_us=ill.flat(ACCEPTED, 1_200_000.0))
    return cluster(slow, quick_count=ACCEPTED, blocked_other=0.97)


def test_a_worker_whose_own_queue_waits_is_told_by_what_it_does() -> None:
    found = verdict(with_listeners(starved(), (SLOW,), (QUICK,)))
    assert found.cause == "app-blocked" and found.harm is not None
    assert found.harm.says.startswith("requests of node 4711 take 1.2 s on average")


def test_a_queue_that_workers_share_is_not_one_worker_s() -> None:
    found = verdict(with_listeners(starved(), (SLOW, QUICK)))
    assert found.cause == "accept-starved"
