"""Processes that end while they serve: whose fault it is, and when it is the story."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit import ill
from tests.unit.reports import target
from udsprobe.model.report import Exits, Report, ThreadTime, Unanswered, Verdict
from udsprobe.rules import judged

PID = 4711


def ended(how: str, processes: int = 20, unanswered: int = 40, **changes: Any) -> Exits:
    return replace(Exits("app", how, processes, processes, unanswered), **changes)


def reported(*exits: Exits, requests: int = 960, app: float = 300.0, **share: float) -> Report:
    report = ill.service(ill.served(requests, app=app, other=99.0), *threads(**share))
    targets = [target(PID, "app"), target(PID + 1, "master")]
    return replace(report, exits=list(exits), targets=targets)


def threads(**share: float) -> list[ThreadTime]:
    return [ill.thread(PID, **(share or {"user": 0.1, "blocked_poll": 0.9}))]


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def test_a_program_that_crashes_loses_what_it_had_received() -> None:
    found = verdict(reported(ended("SIGSEGV")))
    assert (found.cause, found.subject, found.class_) == ("app-failing", "app", "not-transport")
    assert (found.harm.kind, found.harm.count, found.harm.share_pct) == ("failed", 40, 4.0)
    assert found.summary.startswith(
        "4.0 % of requests end without a reply: 20 processes of app ended by SIGSEGV in "
    )
    assert "dmesg" in (found.actions[0].run or "")


def test_the_kernel_kills_for_memory() -> None:
    found = verdict(reported(ended("out of memory")))
    assert "20 processes of app were killed, out of memory" in found.summary
    assert any("memory limit" in each.say for each in found.actions)


def test_one_crash_among_many_requests_is_worth_knowing_and_no_more() -> None:
    report = judged(reported(ended("SIGSEGV", processes=1, unanswered=1)))
    assert report.verdict is not None and report.verdict.cause == "healthy"
    (finding,) = [each for each in report.findings or () if "SIGSEGV" in each.summary]
    assert finding.severity == "warning" and "1 process of app ended by SIGSEGV" in finding.summary


def test_who_is_asked_to_end_has_no_illness() -> None:
    for how in ("SIGTERM", "SIGINT", "SIGQUIT"):
        assert verdict(reported(ended(how, unanswered=2))).cause == "healthy"
        report = reported(ended(how))
        gone = [replace(each, state="exited") for each in report.targets]
        assert verdict(replace(report, targets=gone)).cause == "healthy"


def test_who_is_asked_to_end_with_requests_in_hand_while_others_go_on() -> None:
    """As PHP-FPM ends its workers after request_terminate_timeout."""
    found = verdict(reported(ended("SIGTERM")))
    assert (found.cause, found.harm.kind, found.harm.count) == ("app-failing", "failed", 40)
    assert "20 processes of app ended by SIGTERM" in found.summary
    assert any("time limit" in each.say for each in found.actions)
    slow = reported(ended("SIGTERM"), app=80_000.0, user=0.01, blocked_other=0.99)
    assert (verdict(slow).cause, verdict(slow).harm.kind) == ("app-blocked", "failed")


def test_a_proxy_that_waits_for_those_that_end_is_not_the_reason() -> None:
    """Who had ended without an answer is known by the address."""
    late = replace(ill.quiet_listener(), accepted=12, wait_us=ill.flat(12, 1_200_000.0))
    late = replace(late, pids=[PID], depth=replace(late.depth, max=8, histogram={"4": 12}))
    report = replace(reported(ended("SIGTERM"), requests=4), listeners=[late])
    asked = replace(ill.upstream(0, 0.0, late.address), peer=None)
    asked = replace(asked, transport=late.transport, dropped=Unanswered(8, 1_300_000.0))
    found = judged(replace(report, requests=replace(report.requests, upstream=[asked])))
    assert found.verdict is not None and found.findings
    assert found.verdict.cause == "app-failing"
    assert "ended by SIGTERM" in found.verdict.summary
    assert found.findings[0].summary.count("without") == 1


def test_children_that_never_served_fail_by_themselves() -> None:
    child = ended("status 1", processes=50, unanswered=0, served=0)
    assert verdict(reported(child)).cause == "healthy"


def test_workers_that_end_before_they_serve_while_connections_wait() -> None:
    worker = ended("status 3", processes=12, unanswered=0, served=0)
    waiting = replace(ill.quiet_listener(), accepted=0)
    waiting = replace(waiting, depth=replace(waiting.depth, now=7, max=7))
    report = reported(worker, requests=0)
    assert verdict(replace(report, listeners=[waiting], exits=[])).cause == "accept-starved"
    found = verdict(replace(report, listeners=[waiting]))
    assert found.cause == "app-failing"
    assert "12 processes of app ended with status 3" in found.summary


def test_a_time_limit_is_the_harm_of_what_takes_the_time() -> None:
    slow = reported(ended("SIGKILL"), app=80_000.0, user=0.01, blocked_other=0.99)
    found = verdict(slow)
    assert (found.cause, found.harm.kind, found.harm.count) == ("app-blocked", "failed", 40)
    assert any("SIGKILL" in each.says for each in found.evidence)
    quick = reported(ended("SIGKILL"), app=300.0)
    assert verdict(quick).cause == "app-failing"


def test_at_detail_light_a_crash_loop_is_told_without_requests() -> None:
    found = verdict(reported(replace(ended("SIGABRT"), unanswered=None)))
    assert (found.cause, found.harm.kind) == ("app-failing", "slow")
    assert "received" not in found.evidence[0].says


def test_what_is_not_measured_is_no_illness() -> None:
    assert verdict(replace(reported(), exits=None)).cause == "healthy"


def test_a_few_crashes_in_an_hour_are_no_crash_loop() -> None:
    report = reported(ended("SIGSEGV", processes=3, unanswered=3), requests=100_000)
    hour = replace(report, window=replace(report.window, duration_s=3600.0))
    assert verdict(hour).cause == "healthy"
    assert verdict(report).cause == "app-failing"


def test_the_end_of_the_last_one_leaves_nobody() -> None:
    report = reported(ended("SIGSEGV", processes=1, unanswered=2), requests=10_000)
    gone = [replace(each, state="exited") for each in report.targets]
    found = verdict(replace(report, targets=gone))
    assert (found.cause, found.harm.kind, found.harm.count) == ("app-failing", "failed", 2)
    assert found.summary.startswith("nobody serves any more: 1 process of app ended by SIGSEGV")
    late = replace(ill.quiet_listener(), accepted=9, wait_us=ill.flat(9, 900_000.0))
    late = replace(late, depth=replace(late.depth, max=8, histogram={"1": 9}))
    waiting = replace(report, targets=gone, listeners=[late])
    assert verdict(replace(waiting, exits=[])).cause == "accept-starved"
    assert verdict(waiting).cause == "app-failing"
    killed = reported(ended("SIGKILL", processes=1, unanswered=2), requests=10_000)
    assert verdict(replace(killed, targets=gone)).cause == "healthy"


def test_one_for_each_connection_may_end_with_a_status_that_it_has_told() -> None:
    """As PostgreSQL's do after a wrong password."""
    report = judged(reported(ended("status 1", processes=50, unanswered=0)))
    assert report.verdict is not None and report.verdict.cause == "healthy"
    assert any("ended with status 1" in each.summary for each in report.findings or ())
    assert verdict(reported(ended("status 1", processes=50, unanswered=50))).cause == "app-failing"


@pytest.mark.parametrize("comm", ["sshd", "sshd-session", "dropbear"])
def test_how_a_session_ends_is_its_users(comm: str) -> None:
    """255 where the client left, else as its command ended."""
    found = judged(reported(ended("status 255", processes=50, unanswered=0, comm=comm)))
    assert not [each for each in found.findings or () if each.id == "app-failing"]
    assert verdict(reported(ended("status 255", comm=comm))).cause == "app-failing"


def test_the_kernel_logs_faults_and_no_abort() -> None:
    runs = [each.run or "" for each in verdict(reported(ended("SIGABRT"))).actions]
    assert not any("dmesg" in run for run in runs)
    says = [each.say for each in verdict(reported(ended("SIGABRT"))).actions]
    assert any("read the log of app" in say for say in says)
