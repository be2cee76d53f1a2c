"""The verdict in words: what is named, how values are told, what a clipboard may get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit import reports, verdicts
from udsprobe.model.action import by_hand, command
from udsprobe.model.report import Evidence
from udsprobe.views.fields.verdict import (
    commands,
    evidence,
    measure,
    measured,
    other_findings,
    own_finding,
    remedy,
    said,
)


def test_the_headline_is_that_of_the_verdicts_own_finding() -> None:
    report = verdicts.everything_at_once()
    own, told = own_finding(report), said(report)
    assert own is not None and told is not None and report.verdict is not None
    assert (own.id, own.subject) == (report.verdict.cause, report.verdict.subject)
    assert told.headline == own.summary and told.severity == own.severity
    assert len(other_findings(report)) == len(report.findings or []) - 1


def test_of_findings_with_one_cause_the_one_about_the_same_subject() -> None:
    report = verdicts.everything_at_once()
    own = own_finding(report)
    assert own is not None
    twin = replace(own, subject="another", summary="Another")
    told = said(replace(report, findings=[twin, *(report.findings or [])]))
    assert told is not None and told.headline == own.summary


def test_without_its_finding_the_verdicts_summary_is_told() -> None:
    report = replace(verdicts.spinning(), findings=[])
    told = said(report)
    assert told is not None and report.verdict is not None
    assert told.headline == report.verdict.summary and told.severity == ""


def test_what_is_said_while_nothing_suffers() -> None:
    told = said(verdicts.healthy())
    assert told is not None
    assert (told.name, told.cause, told.severity) == ("NO BOTTLENECK", "", "")
    assert told.headline == "a request takes 130 µs, 82 % of it its own CPU time"


def test_a_report_without_requests_says_that_no_part_is_known() -> None:
    report = verdicts.spinning()
    assert report.verdict is not None
    verdict = replace(report.verdict, transport_share_pct=None, max_gain_pct=None, confidence=0.0)
    told = said(replace(report, verdict=verdict))
    assert told is not None and "was not measured" in told.transport and told.sure == ""
    assert said(reports.busy()) is None


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.97, "of 1", "97 %"),
        (2310.0, "µs", "2.31 ms"),
        (129.0, "connections", "129 connections"),
        (0.25, "of 2 CPUs", "0.25 of 2 CPUs"),
        (42.0, "s", "42 s"),
    ],
)
def test_values_of_evidence(value: float, unit: str, text: str) -> None:
    assert measure(value, unit) == text


def test_a_threshold_is_told_once() -> None:
    fact = Evidence("requests", 3, "requests", 20, "3 requests served, 20 are needed")
    assert evidence(fact) == "3 requests served, 20 are needed"
    other = replace(fact, says="only 3 requests served")
    assert evidence(other) == "only 3 requests served (threshold 20)"
    assert measured(fact) == "requests 3 requests, threshold 20"


def test_what_is_copied_is_one_visible_line() -> None:
    actions = [command("ls\n\x1b[31m", "see", "why"), by_hand("raise it", "why")]
    assert commands(actions) == ("ls\\n\\e[31m", "")
    assert [remedy(action) for action in actions] == ["look: see", "restart: raise it"]
    assert commands([]) == ()
