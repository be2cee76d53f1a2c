"""A verdict over a window is as sure as the parts of the window agree with it."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Sequence

import pytest

from udsprobe.model.report import Report
from udsprobe.reporting import Reporter
from udsprobe.rules import judged, over_parts
from udsprobe.window_parts import PARTS_MAX, PartingSamples, part_places

from . import ill, samples


def of(report: Report, seconds: float) -> Report:
    return judged(replace(report, window=replace(report.window, duration_s=seconds)))


def busy(seconds: float) -> Report:
    return of(ill.service(ill.served(1000), ill.thread(user=0.95)), seconds)


def idle(seconds: float) -> Report:
    return of(ill.service(ill.served(1000), ill.thread(user=0.01)), seconds)


def confidence(whole: Report, parts: Sequence[Report]) -> float:
    verdict = over_parts(whole, parts).verdict
    assert verdict is not None
    return verdict.confidence


def test_parts_that_agree_change_nothing() -> None:
    whole = busy(10.0)
    found = over_parts(whole, [busy(5.0), busy(5.0)]).verdict
    assert found is not None and whole.verdict is not None
    assert (found.confidence, found.evidence) == (whole.verdict.confidence, whole.verdict.evidence)


def test_parts_that_differ_halve_at_most_and_are_told() -> None:
    whole = busy(10.0)
    assert whole.verdict is not None
    sure = whole.verdict.confidence
    assert confidence(whole, [busy(5.0), idle(5.0)]) == pytest.approx(0.75 * sure, abs=0.01)
    assert confidence(whole, [idle(5.0), idle(5.0)]) == pytest.approx(0.5 * sure, abs=0.01)
    found = over_parts(whole, [busy(8.0), idle(2.0)]).verdict
    assert found is not None
    assert found.evidence[-1].says == "not the same throughout: app-cpu for 8 s, healthy for 2 s"
    assert found.evidence[-1].value == 80.0


def test_a_healthy_window_tells_its_ill_part() -> None:
    found = over_parts(idle(10.0), [idle(7.0), busy(3.0)]).verdict
    assert found is not None and found.cause == "healthy"
    assert "app-cpu for 3 s" in found.evidence[-1].says


def test_parts_that_are_shorter_than_a_request_tell_nothing() -> None:
    """Requests of 1.5 s that end in bursts: a second in which none does is like no other."""
    slow = of(ill.service(ill.served(30, app=1.5e6, other=99), ill.thread(blocked_other=0.9)), 10.0)
    assert slow.verdict is not None and slow.verdict.cause == "app-blocked"
    parts = [*[idle(1.0)] * 4, *[busy(1.0)] * 2]
    assert confidence(slow, parts) == slow.verdict.confidence
    assert confidence(slow, [*parts, idle(2.0), idle(2.0)]) < slow.verdict.confidence


def refused(at_s: Sequence[float]) -> Reporter:
    """Connects refused in the seconds that end then, of ten."""
    reporter = Reporter(samples.observation(), samples.sample(0.0))
    count = 0
    for second in range(1, 11):
        count += 900 * (second in at_s)
        queue = samples.queue([1_000], refused={"EAGAIN": count})
        reporter.add(samples.sample(float(second), listeners=(samples.listener(queue=queue),)))
    return reporter


@pytest.mark.parametrize(("at_s", "since_s"), [(range(7, 11), 4.0), (range(3, 5), None)])
def test_a_harm_is_as_old_as_the_last_parts_that_have_it(
    at_s: Sequence[float], since_s: float
) -> None:
    verdict = refused(at_s).whole().verdict
    assert verdict is not None and verdict.harm.kind == "refused"
    assert verdict.harm.since_s == since_s


@pytest.mark.parametrize("count", [2, 3, 9, 10, 17, 18, 100, 1025])
def test_the_parts_follow_from_the_number_of_samples(count: int) -> None:
    taken = [samples.sample(float(second)) for second in range(count)]
    parting = PartingSamples(taken[0])
    for each in taken[1:]:
        parting.add(each)
    kept: List[float] = [each.monotonic_ns / 1e9 for each in parting.all()]
    assert kept == [taken[place].monotonic_ns / 1e9 for place in part_places(count)]
    assert 2 <= len(kept) <= PARTS_MAX + 2 and kept[-1] - kept[0] == count - 1


def test_who_shows_no_interval_judges_alike() -> None:
    """Attached without a screen, for the stacks: one report each second instead of two."""
    shown, judged_only = (Reporter(samples.observation(), samples.sample(0.0)) for _ in range(2))
    for second in range(1, 5):
        queue = samples.queue([1_000], refused={"EAGAIN": 900 * second})
        sample = samples.sample(float(second), listeners=(samples.listener(queue=queue),))
        interval, recent = shown.interval(sample), judged_only.judge(sample)
        assert (interval.verdict, interval.findings) == (recent.verdict, recent.findings)
        assert recent == judged_only.recent == shown.recent
