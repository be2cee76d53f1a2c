"""The verdict and the findings in words; the dashboard and `--plain` take them from here.

Knows no screen. Everything named by other processes comes out visible and unobeyed.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.model.action import CHANGES, LOOKS, RESTARTS, Action
from udsprobe.model.report import Evidence, Finding, Report, Verdict
from udsprobe.views.fields import numbers
from udsprobe.views.fields.escape import visible

NOT_ENOUGH_SEEN = "NOT ENOUGH DATA"
BANNERS = {
    "transport": "THE TRANSPORT",
    "not-transport": "NOT THE TRANSPORT",
    "set-up": "THE SOCKET'S SET-UP",
    "healthy": "NO BOTTLENECK",
    "unknown": NOT_ENOUGH_SEEN,
}
_QUIET = ("healthy", "unknown")
_EFFECTS = {LOOKS: "look", CHANGES: "change", RESTARTS: "restart"}
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
    quiet = verdict.class_ in _QUIET
    return Said(
        name=BANNERS.get(verdict.class_, NOT_ENOUGH_SEEN),
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


def commands(actions: Sequence[Action]) -> Tuple[str, ...]:
    """What `y` copies of each remedy: one line for a shell, or nothing where it has none."""
    return tuple(visible(action.run or "") for action in actions)


def remedy(action: Action) -> str:
    """What to do, with what kind of thing that is: `look: …`, `change: …`, `restart: …`."""
    return f"{_EFFECTS.get(action.effect, 'do')}: {visible(action.say)}"


def _headline(verdict: Verdict, own: Optional[Finding]) -> str:
    if own is not None:
        return visible(_with_harm(verdict.harm.says, own.summary))
    if verdict.cause == "unknown" and verdict.evidence:
        fact = verdict.evidence[0]
        if fact.metric == "requests" and fact.threshold is not None:
            needed = f"{fact.value:,.0f} of ~{fact.threshold:,.0f} requests needed"
            return f"warming up: {needed}"
    if verdict.cause == "healthy":
        # The banner begins it, and the rest of it is the line below.
        first = verdict.summary.removeprefix("No bottleneck: ").split(". ", 1)[0]
        return visible(first.rstrip("."))
    return visible(verdict.summary)


def _with_harm(says: str, summary: str) -> str:
    """What users suffer comes first, and once."""
    return summary if summary.startswith(says) else f"{says}: {summary}"


def _transport(verdict: Verdict) -> str:
    """One figure: the bound, which is never below the share that the page has beside it."""
    gain = verdict.max_gain_pct
    if gain is None:
        return "the part of the transport in a request was not measured"
    of = "the time of served requests" if verdict.class_ == "set-up" else "request time"
    bound = "less than 0.1" if 0 < gain < 0.1 else f"at most {numbers.spoken(gain)}"
    return f"a free transport would save {bound} % of {of}"
