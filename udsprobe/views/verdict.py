"""The verdict and the findings in words; the dashboard and `--plain` take them from here.

Knows no screen. Everything named by other processes comes out visible and unobeyed.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional

from udsprobe.model.report import Action, Evidence, Finding, Report, Verdict
from udsprobe.views import numbers
from udsprobe.views.escape import visible

_WITHOUT_CULPRIT = {"healthy": "HEALTHY", "unknown": "NOT KNOWN YET"}
_NUMBERS = re.compile(r"\d[\d.,]*")


class Said(NamedTuple):
    """What two or three lines have room for.

    `cause` and `severity` are empty where nothing suffers, `sure` where nothing is known.
    """

    name: str
    cause: str
    headline: str
    severity: str
    sure: str
    transport: str


def said(report: Report) -> Optional[Said]:
    """The verdict's words; None when the report has none."""
    verdict = report.verdict
    if verdict is None:
        return None
    own = own_finding(report)
    quiet = _WITHOUT_CULPRIT.get(verdict.cause)
    culprit = "THE TRANSPORT" if verdict.transport_bound else "NOT THE TRANSPORT"
    return Said(
        name=quiet or culprit,
        cause="" if quiet else visible(verdict.cause),
        headline=_headline(verdict, own),
        severity="" if quiet or own is None else visible(own.severity),
        sure=f"sure {numbers.spoken(verdict.confidence * 100)} %" if verdict.confidence else "",
        transport=_transport(verdict),
    )


def own_finding(report: Report) -> Optional[Finding]:
    """The finding that the verdict is about."""
    verdict = report.verdict
    if verdict is None:
        return None
    named = [each for each in report.findings or [] if each.id == verdict.cause]
    return next((each for each in named if each.subject == verdict.subject), None)


def other_findings(report: Report) -> List[Finding]:
    """All findings but the verdict's own, in the report's order."""
    own = own_finding(report)
    return [each for each in report.findings or [] if each is not own]


def evidence(fact: Evidence) -> str:
    """What was seen, and the threshold it was compared with unless that says it already."""
    says = visible(fact.says)
    if fact.threshold is None or _amount(fact.threshold, fact.unit) in _NUMBERS.findall(says):
        return says
    return f"{says} (threshold {_threshold(fact.threshold, fact.unit)})"


def measured(fact: Evidence) -> str:
    """`busy_share 97 %, threshold 80 %`."""
    told = f"{visible(fact.metric)} {measure(fact.value, fact.unit)}"
    if fact.threshold is None:
        return told
    return f"{told}, threshold {_threshold(fact.threshold, fact.unit)}"


def measure(value: float, unit: str) -> str:
    """A value of the evidence with its unit: `97 %`, `2.31 ms`, `129 connections`."""
    if unit == "of 1":
        return f"{numbers.spoken(value * 100)} %"
    if unit == "µs":
        return numbers.spaced(numbers.duration(value))
    if unit == "s":
        return numbers.span(value)
    amount = f"{value:,.0f}" if value == int(value) else numbers.rate(value)
    return f"{amount} {visible(unit)}".rstrip()


def _threshold(value: float, unit: str) -> str:
    """What is counted is not named again."""
    return measure(value, unit) if unit in ("of 1", "µs", "s", "%") else _amount(value, unit)


def _amount(value: float, unit: str) -> str:
    return measure(value, unit).split(" ")[0]


def first_remedy(actions: List[Action]) -> str:
    """What `y` copies: one line that no terminal and no shell takes for more; or nothing."""
    return visible(actions[0].do) if actions else ""


def _headline(verdict: Verdict, own: Optional[Finding]) -> str:
    if own is not None:
        return visible(own.summary)
    if verdict.cause == "unknown" and verdict.evidence:
        fact = verdict.evidence[0]
        if fact.metric == "requests" and fact.threshold is not None:
            needed = f"{fact.value:,.0f} of ~{fact.threshold:,.0f} requests needed"
            return f"warming up: {needed}"
    if verdict.cause == "healthy":
        # The rest of it is the line below.
        return visible(verdict.summary.split(". ", 1)[0].rstrip("."))
    return visible(verdict.summary)


def _transport(verdict: Verdict) -> str:
    share, gain = verdict.transport_share_pct, verdict.max_gain_pct
    if share is None or gain is None:
        return "the part of the transport in a request was not measured"
    return (
        f"transport is {numbers.spoken(share)} % of request time; "
        f"a free one would save {numbers.spoken(gain)} %"
    )
