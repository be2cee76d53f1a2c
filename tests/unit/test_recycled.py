"""Processes that end after a few connections, again and again: `max requests` of a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit import ill
from tests.unit.reports import target
from udsprobe.model.report import Report, Starts, Verdict
from udsprobe.rules import judged

MASTER, GONE, CONNECTIONS = 4711, 20, 60


def recycling(*, app_us: float = 1_000.0, user: float = 0.2, **changes: Any) -> Report:
    """Twenty workers that have ended, after three connections each; two wait for more.

    They computed for 1.2 s and more, 0.06 s of it within requests.
    """
    accepted = {str(5000 + n): 3 for n in range(GONE)}
    late = replace(ill.quiet_listener(), pids=[MASTER, 6000, 6001], accepted=CONNECTIONS)
    late = replace(late, accepted_by=accepted, wait_us=ill.flat(CONNECTIONS, 180_000.0))
    late = replace(late, depth=replace(late.depth, max=6, histogram={"3": CONNECTIONS}))
    master = ill.thread(MASTER, "app", blocked_other=0.9)
    report = ill.service(ill.served(CONNECTIONS, app=app_us), master, listeners=[late])
    assert report.time is not None
    spent = {**dict.fromkeys(report.time.total, 0.0), "user": user, "blocked_accept": 1 - user}
    rows = [ill.served_by(5000 + n, 3, "app") for n in range(GONE)]
    rows = [replace(row, stages_mean_us=replace(row.stages_mean_us, app=app_us)) for row in rows]
    report = replace(
        report,
        targets=[target(MASTER, "app"), target(6000, "app"), target(6001, "app")],
        time=replace(report.time, total_s=3 * ill.SECONDS, total=spent),
        requests=replace(report.requests, served_by=rows),
        starts=[Starts("app", 22, 0, {}, [], None)],
    )
    return replace(report, **changes)


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def of_listener(report: Report, **changes: Any) -> Report:
    assert report.listeners
    return replace(report, listeners=[replace(report.listeners[0], **changes)])


def test_connections_wait_for_processes_that_are_started_again_and_again() -> None:
    found = verdict(recycling())
    assert found.cause == "accept-starved"
    assert found.summary.startswith(
        "connections wait 180 ms on average for accept(): processes of app end after 3 "
        "connections each, and others are started in their place"
    )
    assert "max requests" in found.actions[0].say
    assert "ended after 60 connections; 22 were started" in found.evidence[0].says


def test_the_server_says_what_its_setting_is_called() -> None:
    named = [target(MASTER, "php-fpm8.2")]
    starts = [Starts("php-fpm8.2", 22, 0, {}, [], None)]
    assert "pm.max_requests" in verdict(recycling(targets=named, starts=starts)).actions[0].say


def test_a_reload_ends_each_of_them_once() -> None:
    pids = [MASTER, *range(6000, 6000 + GONE)]
    assert "in their place" not in verdict(of_listener(recycling(), pids=pids)).summary


def test_what_requests_ask_for_is_most_of_it() -> None:
    assert "in their place" not in verdict(recycling(app_us=80_000.0)).summary


def test_who_serves_as_many_as_the_remedy_asks_for_stays_long_enough() -> None:
    """Their own calls outside of requests are more than what requests take."""
    accepted = {str(5000 + n): 3_000 for n in range(GONE)}
    many = of_listener(recycling(), accepted_by=accepted, accepted=3_000 * GONE)
    assert "in their place" not in verdict(many).summary


def test_who_suffers_not_is_well() -> None:
    quiet = of_listener(recycling(), wait_us=ill.flat(CONNECTIONS, 40.0))
    assert verdict(quiet).cause == "healthy"


def test_children_of_who_accepts_are_none() -> None:
    """A process for each connection does not accept."""
    mine = {str(MASTER): CONNECTIONS}
    assert "in their place" not in verdict(of_listener(recycling(), accepted_by=mine)).summary


def test_without_what_is_measured_nothing_is_said() -> None:
    assert "in their place" not in verdict(recycling(starts=None)).summary
    assert "in their place" not in verdict(recycling(time=None)).summary
