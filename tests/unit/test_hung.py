"""Workers of one program that are stuck in the same are one cause, with the requests of all."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

import pytest

from tests.unit import ill
from tests.unit.reports import target
from tests.unit.test_stuck import owing, verdict
from udsprobe.model.report import Report, Waiting
from udsprobe.rules import judged

FIRST, SECOND = 4711, 4712


def workers(*owed: Tuple[int, float], **share: float) -> Report:
    """Each owes so many replies, the oldest for so many seconds, and spends its time so."""
    pids = range(FIRST, FIRST + len(owed))
    rows = [
        replace(owing(1), pid=pid, in_progress=Waiting(count, 1e6 * age_s))
        for pid, (count, age_s) in zip(pids, owed)
    ]
    threads = [
        replace(ill.thread(pid, **{"blocked_poll": 0.0, "sys_socket": 0.01, **share}), pid=pid)
        for pid in pids
    ]
    report = ill.service(ill.served(1), *threads)
    return replace(
        report,
        requests=replace(report.requests, served_by=rows),
        targets=[replace(target(pid, "node"), threads=1) for pid in pids],
        waits_now=[],
    )


@pytest.mark.parametrize(
    ("does", "cause", "says"),
    [
        ("blocked_other", "app-blocked", "node 4712 is asleep elsewhere"),
        ("user", "app-cpu", "node thread 4712 is 98 % busy"),
    ],
)
def test_workers_that_do_the_same_are_one(does: str, cause: str, says: str) -> None:
    report = judged(workers((1, 3.0), (2, 7.0), **{does: 0.97}))
    found = verdict(report)
    assert (found.cause, found.harm.kind, found.harm.count) == (cause, "stuck", 3)
    assert found.summary.startswith(f"3 requests without a reply, the oldest for 7 s: {says}")
    assert ", and 1 more process like it" in found.summary
    told = [each for each in report.findings or [] if "without a reply" in each.summary]
    assert [each.id for each in told] == [cause]


@pytest.mark.parametrize(("looked", "is_told"), [(0.0, True), (0.01, False)])
def test_who_never_looks_at_a_socket_may_compute_for_ever(looked: float, is_told: bool) -> None:
    report = workers((2, 7.0), sys_socket=looked, user=0.99 - looked)
    rows = [replace(each, count=0) for each in report.requests.served_by or ()]
    report = replace(report, requests=replace(report.requests, served_by=rows))
    found = verdict(judged(report))
    said = [each.say for each in found.actions]
    assert found.cause == "app-cpu"
    assert any("it has looked at no socket for" in each for each in said) == is_told


def test_one_that_does_something_else_is_told_by_itself() -> None:
    report = workers((1, 3.0), (2, 7.0), blocked_other=0.97)
    assert report.time is not None
    first, second = report.time.threads
    computes = replace(second, share={**second.share, "blocked_other": 0.0, "user": 0.97})
    report = judged(replace(report, time=replace(report.time, threads=[first, computes])))
    assert {each.id for each in report.findings or []} >= {"app-blocked", "app-cpu"}
    assert "more process" not in verdict(report).summary


def test_a_single_one_is_not_counted_among_others() -> None:
    found = verdict(workers((1, 3.0), blocked_other=0.97))
    assert found.summary.startswith("1 request without a reply, the oldest for 3 s: node 4711 is")
    assert "more process" not in found.summary


def test_each_that_is_stopped_has_its_own_remedy() -> None:
    report = workers((1, 3.0), (2, 7.0), blocked_other=0.97)
    targets = [replace(each, stopped="signal") for each in report.targets]
    report = judged(replace(report, targets=targets))
    told = [each for each in report.findings or [] if "is stopped by a signal" in each.summary]
    runs = {each.actions[0].run for each in told}
    assert runs == {f"sudo kill -CONT {pid}" for pid in (FIRST, SECOND)}
