"""A service that logs in at its database for each request."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from tests.unit import ill
from tests.unit.reports import connect
from udsprobe.model.report import Report, Verdict
from udsprobe.rules.judge import judged, root_cause
from udsprobe.rules.suspects.suspect import LOGINS, Suspect
from udsprobe.views.fields import cells
from udsprobe.views.text.report_text import render

SERVED, STEPS = 400, 2


def logging_in(opened: int, login_us: float, each_us: float = 7_000.0) -> Report:
    """Each request asks once, on a connection that was opened for it or not."""
    turns = SERVED + STEPS * opened
    row = replace(ill.upstream(turns, each_us), logins=STEPS * opened, login_mean_us=login_us)
    requests = ill.served(SERVED, app=20_000, upstream=90.0, cpu=10.0)
    report = ill.service(requests, upstream=[row])
    return replace(report, connects=[connect(row.address, calls=opened)])


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def test_what_is_waited_for_is_the_login() -> None:
    found = verdict(logging_in(SERVED, 9_000.0))
    assert (found.cause, found.subject) == ("connection-churn", "unix:/run/pg.sock")
    assert "opens a connection for each request to unix:/run/pg.sock, and logs in" in found.summary
    assert found.evidence[0].value == pytest.approx(2 * 9 / (3 * 7), abs=1e-4)
    assert "pg.Pool" in found.actions[0].say
    # The wait is no rival: it is the same.
    assert found.confidence >= 0.95
    assert "upstream-wait" not in [each.cause for each in found.runners_up]


@pytest.mark.parametrize(
    ("opened", "login_us"), [(SERVED, 3_000.0), (10, 9_000.0)], ids=["slow query", "a pool"]
)
def test_a_wait_for_answers_stays_one(opened: int, login_us: float) -> None:
    assert verdict(logging_in(opened, login_us)).cause == "upstream-wait"


@pytest.mark.parametrize(
    ("opened", "told"), [(SERVED, "800 to logins"), (10, ""), (None, "")], ids=str
)
def test_how_many_answers_are_to_logins_is_told_where_they_are_many(
    opened: Optional[int], told: str
) -> None:
    (row,) = logging_in(opened or 0, 9_000.0).requests.upstream or []
    row = row if opened is not None else replace(row, logins=None)
    assert cells.login_answers(row) == told


def test_the_line_of_a_destination_has_them() -> None:
    lines = render(logging_in(SERVED, 9_000.0), width=120)
    (line,) = [each for each in lines.splitlines() if "upstream unix:/run/pg.sock" in each]
    assert line.endswith(", 800 to logins")


def test_what_is_not_measured_is_no_login() -> None:
    report = logging_in(SERVED, 9_000.0)
    rows = [replace(r, logins=None, login_mean_us=None) for r in report.requests.upstream or []]
    report = replace(report, requests=replace(report.requests, upstream=rows))
    assert verdict(report).cause == "upstream-wait"


def test_who_waits_for_who_logs_in_waits_for_the_login() -> None:
    """nginx before PHP-FPM, which logs in at its database for each request."""
    logins = Suspect(
        *("connection-churn", "churn", "warning", True, 72.0, "tcp:127.0.0.1:5432", "PHP opens"),
        pids=frozenset({30}),
        kind=LOGINS,
    )
    front = Suspect(
        *("upstream-wait", "wait", "warning", True, 44.0, "tcp:127.0.0.1:9000", "nginx waits"),
        pids=frozenset({20}),
        waits_for=frozenset({30}),
    )
    report = logging_in(SERVED, 9_000.0)
    assert root_cause([front, logins], report) is logins
    assert root_cause([front, replace(logins, kind="")], report) is front
    assert root_cause([front, replace(logins, pids=frozenset({40}))], report) is front
    # nginx opens more connections, to PHP-FPM.
    opens = replace(logins, share_pct=100.0, seen=900, pids=frozenset(), kind="")
    assert root_cause([front, logins, opens], report) is logins
