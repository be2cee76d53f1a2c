"""Threads and processes that cannot be started: whose harm that is, and what raises the limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest

from tests.unit import ill, samples
from tests.unit.reports import target
from udsprobe.model.report import (
    Exits,
    HttpReplies,
    Report,
    ServedBy,
    StageMeans,
    StartLimit,
    Starts,
    Verdict,
    Waiting,
)
from udsprobe.model.threads.starts import start_rows
from udsprobe.rules import judged
from udsprobe.rules.remedy import choice
from udsprobe.sample import StartCounts

PID = 4711
LIMIT = StartLimit("pids.max", 4, 4, "/app", "/sys/fs/cgroup/app/pids.max")


def starts(refused: int = 900, started: int = 100, limit: Optional[StartLimit] = LIMIT) -> Starts:
    return Starts("app", started, refused, {"EAGAIN": refused}, [PID], limit)


def reported(*rows: Starts, closed: int = 0, **changes: Any) -> Report:
    report = ill.service(ill.served(960, app=300.0, other=99.0), ill.thread(PID, user=0.1))
    listener = replace(
        ill.quiet_listener(), pids=[PID], accepted=1000, accepted_by={str(PID): 1000}
    )
    listener = replace(
        listener, closed_unread=closed, closed_unread_sent=closed, read_from=1000 - closed
    )
    targets = [target(PID, "app")]
    return replace(report, starts=list(rows), targets=targets, listeners=[listener], **changes)


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def test_what_is_closed_unread_for_want_of_a_thread_has_the_limit_for_a_root() -> None:
    own = verdict(reported(closed=900))
    assert "own limit of connections" in own.summary
    found = verdict(reported(starts(), closed=900))
    assert (found.cause, found.class_, found.harm) == (own.cause, "set-up", own.harm)
    assert found.summary.startswith(
        "90 % of connects closed unread: app 4711 cannot start threads or processes: the call "
        "fails with EAGAIN, pids.max of /app is 4"
    )
    assert found.actions[0].run == "echo 4096 | sudo tee /sys/fs/cgroup/app/pids.max"
    assert found.actions[0].undo == "echo 4 | sudo tee /sys/fs/cgroup/app/pids.max"
    assert "pool of threads" in found.actions[1].say
    assert found.evidence[0].says.startswith("900 calls started no thread or process (EAGAIN: 900)")


def test_a_few_refusals_do_not_explain_many_closes() -> None:
    assert "own limit of connections" in verdict(reported(starts(400), closed=900)).summary
    assert "pids.max" in verdict(reported(starts(500), closed=900)).summary


def test_refusals_of_another_process_explain_nothing() -> None:
    other = replace(starts(), comm="cron", pids=[7])
    assert "own limit of connections" in verdict(reported(other, closed=900)).summary


def test_refusals_that_harm_nobody_are_a_finding_and_no_verdict() -> None:
    report = judged(reported(starts()))
    assert report.verdict is not None and report.verdict.cause == "healthy"
    (finding,) = [each for each in report.findings or () if "cannot start" in each.summary]
    assert (finding.id, finding.severity) == ("app-failing", "warning")
    nobody = judged(reported(starts(0, 5000, None)))
    assert not [each for each in nobody.findings or () if "cannot start" in each.summary]
    assert verdict(replace(reported(), starts=None)).cause == "healthy"


@pytest.mark.parametrize(
    ("row", "is_root"), [(starts(2, 0), True), (starts(2, 1), True), (starts(2, 50), False)]
)
def test_who_waits_waits_for_a_thread_where_most_starts_are_refused(
    row: Starts, is_root: bool
) -> None:
    """As Apache, which tries again every ten seconds."""
    report = reported(row)
    waiting = replace(ill.quiet_listener(), pids=[PID], accepted=0)
    waiting = replace(waiting, depth=replace(waiting.depth, now=7, max=7))
    found = verdict(replace(report, listeners=[waiting]))
    assert found.cause == "accept-starved"
    assert ("cannot start" in found.summary) == is_root


def test_workers_that_end_for_want_of_a_thread() -> None:
    ended = Exits("app", "status 1", 12, 0, 0)
    report = replace(reported(starts(12, 3)), exits=[ended])
    waiting = replace(ill.quiet_listener(), pids=[PID], accepted=0)
    waiting = replace(waiting, depth=replace(waiting.depth, now=7, max=7))
    found = verdict(replace(report, listeners=[waiting]))
    assert (found.cause, found.evidence[0].metric) == ("accept-starved", "starts_refused")
    assert "exits" in {fact.metric for fact in found.evidence}


def test_replies_that_fail_for_want_of_a_process() -> None:
    report = reported(starts(60))
    http = HttpReplies(960, 60, 300.0, {"500": 60})
    row = ServedBy(
        *(PID, "app", 960, 40.0, ill.flat(960, 400.0), StageMeans(), None, 0, 0, []),
        in_progress=Waiting(0, None),
        unread=Waiting(0, None),
        asking=Waiting(0, None),
        http=http,
    )
    found = verdict(replace(report, requests=replace(report.requests, served_by=[row])))
    assert (found.cause, found.harm.kind) == ("app-failing", "failed")
    assert "HTTP 500: app 4711 cannot start threads or processes" in found.summary


@pytest.mark.parametrize(
    ("limit", "changes", "run"),
    [
        (
            replace(LIMIT, cgroup="/system.slice/web.service"),
            {"unit": "web.service"},
            "sudo systemctl set-property web.service TasksMax=4096",
        ),
        (
            replace(LIMIT, cgroup="/user.slice", limit=2000),
            {"unit": "web.service"},
            "sudo systemctl set-property user.slice TasksMax=8000",
        ),
        (
            replace(LIMIT, cgroup=f"/system.slice/docker-{'a' * 64}.scope"),
            {"container": "a" * 64, "runtime": "docker"},
            f"sudo docker update --pids-limit 4096 {'a' * 64}",
        ),
        (
            replace(
                LIMIT,
                cgroup="/user.slice/user@1000.service/app.slice",
                file="/sys/fs/cgroup/app.slice/pids.max",
            ),
            {},
            "echo 4096 | sudo tee /sys/fs/cgroup/app.slice/pids.max",
        ),
        (
            StartLimit("RLIMIT_NPROC", 20, 20),
            {},
            "for p in 4711; do sudo prlimit --pid $p --nproc=4096; done",
        ),
        (
            StartLimit("kernel.threads-max", 3000, 2990),
            {},
            "sudo sysctl -w kernel.threads-max=12000",
        ),
        (
            None,
            {},
            "cat /proc/4711/limits /proc/4711/cgroup /proc/loadavg /proc/sys/kernel/threads-max",
        ),
    ],
)
def test_a_line_raises_the_limit(
    limit: Optional[StartLimit], changes: dict[str, str], run: str
) -> None:
    row = starts(limit=limit)
    report = replace(reported(row), targets=[replace(target(PID, "app"), **changes)])
    assert choice.starts(report, row, "app 4711")[0].run == run


def test_want_of_memory_is_no_limit() -> None:
    row = replace(starts(), refused_by_errno={"ENOMEM": 900}, limit=None)
    assert "for want of memory" in verdict(reported(row, closed=900)).summary
    assert (choice.starts(reported(row), row, "app 4711")[0].run or "").startswith("free -m")


def test_rows_are_of_the_window() -> None:
    before = (StartCounts("app", 10, {"EAGAIN": 5}, (PID,)), StartCounts("sh", 3, {}))
    after = (StartCounts("app", 14, {"EAGAIN": 8}, (PID,)), StartCounts("sh", 3, {}))
    first, last = samples.sample(0.0), samples.sample(1.0)
    rows = start_rows(replace(first, starts=before), replace(last, starts=after))
    assert rows == [Starts("app", 4, 3, {"EAGAIN": 3}, [PID], None)]
    assert start_rows(replace(first, starts=None), replace(last, starts=after)) is None
