"""Targets that another process traces."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from tests.unit import ill
from tests.unit.reports import target
from udsprobe.model.report import Report, Verdict
from udsprobe.rules import judged

PID = 4711


def traced(tracer: Optional[int] = 80, **share: float) -> Report:
    """A loop with 1.4 ms a request, most of it queued behind the others."""
    requests = ill.served(40_000, recv_wait=1300, app=70, cpu=50.0, other=40.0, runq=10.0)
    report = ill.service(requests, ill.thread(PID, **share))
    one = replace(target(PID, "node"), tracer_pid=tracer, tracer_comm="strace" if tracer else None)
    return replace(report, targets=[one])


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


STOPS = {"user": 0.4, "sys_socket": 0.1, "runq": 0.1, "blocked_other": 0.4, "blocked_poll": 0.0}


def test_all_that_presses_is_measured_under_the_tracer() -> None:
    found = verdict(traced(**STOPS))
    assert (found.cause, found.subject) == ("app-blocked", "strace 80")
    assert "strace 80 traces node 4711, which stops for it at each system call" in found.summary
    assert found.actions[0].run == "sudo kill -INT 80"
    assert verdict(traced(None, **STOPS)).cause != "app-blocked"


def test_where_nothing_presses_it_is_worth_knowing() -> None:
    report = judged(traced(**{**STOPS, "user": 0.1, "blocked_other": 0.2, "blocked_poll": 0.6}))
    assert report.verdict is not None and report.verdict.cause == "healthy"
    assert any("strace 80 traces node 4711" in each.summary for each in report.findings or ())


def test_a_debugger_that_lets_it_run_slows_nobody() -> None:
    report = judged(traced(user=0.95, blocked_poll=0.05))
    assert report.verdict is not None and report.verdict.cause == "app-cpu"
    assert not any("traces" in each.summary for each in report.findings or ())
