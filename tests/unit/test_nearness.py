"""Figures near a limit: what was said holds, and nothing is sure."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional

import pytest

from tests.unit import ill, samples
from tests.unit.reports import crowded
from tests.unit.test_harm import hung
from tests.unit.test_rules import chain, churning
from udsprobe.model.report import OwnRequests, Report, ServedBy, StageMeans, Verdict, Waiting
from udsprobe.reporting import Reporter
from udsprobe.rules import judged


def busy(share: float) -> Report:
    """A loop that computes for this part of the time."""
    return ill.service(ill.served(4000, app=900.0), ill.thread(user=share))


def verdict(report: Report, before: Optional[Verdict] = None) -> Verdict:
    found = judged(report, before=before).verdict
    assert found is not None
    return found


def test_a_steady_load_at_a_limit_is_one_state() -> None:
    """80 % is where a thread is saturated; windows of one load are 79 and 81 %."""
    causes: List[str] = []
    before: Optional[Verdict] = None
    for share in (0.7, 0.79, 0.81, 0.79, 0.805, 0.78, 0.82, 0.75, 0.81, 0.71, 0.79):
        before = verdict(busy(share), before)
        causes.append(before.cause)
    assert causes == ["healthy"] * 2 + ["app-cpu"] * 7 + ["healthy"] * 2


def test_connections_that_come_at_their_limit_are_one_state() -> None:
    """200 a second is where they count; a steady load has 195 and 205."""
    causes: List[str] = []
    before: Optional[Verdict] = None
    for per_s in (195, 205, 195, 202, 185, 175):
        time = ill.time_of(ill.thread(user=0.5, sys_socket=0.1))
        before = verdict(replace(churning(10 * per_s, 1e6), time=time), before)
        causes.append(before.cause)
    assert causes == ["healthy"] + ["connection-churn"] * 4 + ["healthy"]


def test_what_held_says_by_what() -> None:
    held = verdict(busy(0.76), verdict(busy(0.85)))
    assert (held.cause, held.harm.kind) == ("app-cpu", "slow")
    assert verdict(busy(0.76)).cause == "healthy"


def test_nothing_holds_against_what_is_worse() -> None:
    was = verdict(busy(0.85))
    refusing = replace(crowded(), depth=replace(crowded().depth, histogram={"1": 900}))
    report = replace(busy(0.79), listeners=[refusing])
    assert verdict(report, was).cause == "accept-queue-full"


def test_nobody_is_sure_at_a_limit() -> None:
    at, beyond = verdict(busy(0.801)), verdict(busy(0.95))
    assert at.confidence < 0.6 < 0.95 < beyond.confidence
    below = verdict(busy(0.79))
    assert (below.cause, below.confidence < 0.6) == ("healthy", True)
    assert "Near a limit: app-cpu" in below.summary
    assert verdict(busy(0.4)).confidence > 0.95


def test_what_follows_from_the_root_supports_it() -> None:
    """nginx waits for node, which spins: the fault is seen at both, and is one."""
    alone = verdict(busy(0.95)).confidence
    assert verdict(chain(5000.0)).confidence >= alone - 0.01


@pytest.mark.parametrize("per_s", [13, 190])
def test_nothing_is_a_finding_below_the_limit_that_it_prints(per_s: int) -> None:
    report = judged(churning(10 * per_s, 100.0))
    assert "connection-churn" not in [each.id for each in report.findings or []]


def owing(replies: int) -> ServedBy:
    return ServedBy(
        pid=4711,
        comm="node",
        count=0,
        rate_per_s=0.0,
        latency_us=ill.flat(0, 0.0),
        stages_mean_us=StageMeans(),
        app_time_pct=None,
        handed_over=0,
        pipelined=0,
        upstream=[OwnRequests("unix", "/run/pg.sock", None, 1, 400.0)],
        in_progress=Waiting(0, None),
        unread=Waiting(0, None),
        asking=Waiting(0, None),
        unanswered=Waiting(replies, 19_000_000.0),
    )


def served_beside(replies: int, served: int) -> Verdict:
    report = ill.service(ill.served(served, app=150.0), ill.thread(user=0.01))
    return verdict(replace(report, requests=replace(report.requests, served_by=[owing(replies)])))


def test_long_polls_are_told_while_none_is_answered() -> None:
    found = served_beside(48, 0)
    assert found.cause == "unknown"
    assert found.summary.startswith("48 replies are outstanding, the oldest for 19 s: long polls")
    assert found.harm.says.startswith("48 replies are outstanding")


def test_replies_that_are_outstanding_make_health_less_sure() -> None:
    """Half of the requests hang: those that are served say nothing of them."""
    found, sure = served_beside(56, 56), served_beside(0, 56)
    assert found.cause == sure.cause == "healthy"
    assert "; 56 replies are outstanding, the oldest for 19 s: long polls, or" in found.summary
    assert found.evidence[0].metric == "replies_owed"
    assert found.confidence < 0.5 < sure.confidence


def test_most_of_a_request_waiting_for_a_cpu_is_not_healthy_without_a_word() -> None:
    short = ill.served(4000, app=150.0, runq=87.0, cpu=13.0)
    found = verdict(ill.service(short, ill.thread(user=0.02, runq=0.02)))
    assert found.cause == "healthy"
    assert "waiting for a CPU" in found.summary and "pressure begins at 300 µs" in found.summary


def test_how_long_a_harm_has_been_seen() -> None:
    refusals = samples.queue([1_000], refused={"EAGAIN": 900})
    first = samples.sample(0.0)
    reporter = Reporter(samples.observation(), first)
    ages = []
    for at_s in (1.0, 2.0, 3.0):
        queue = refusals if at_s > 1 else samples.queue([1_000])
        listed = (samples.listener(queue=queue),)
        report = reporter.interval(samples.sample(at_s, listeners=listed))
        assert report.verdict is not None
        ages.append((report.verdict.harm.kind, report.verdict.harm.since_s))
    assert ages[1:] == [("refused", 1.0), ("refused", 2.0)]
    assert reporter.recent is not None and reporter.recent.window.duration_s == 3.0


def test_stuck_replies_tell_their_own_age() -> None:
    assert verdict(hung(ill.service(ill.served(3), ill.thread(blocked_lock=0.97)))).harm.since_s
