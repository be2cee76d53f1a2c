"""Whether the parts of a window tell what the whole of it tells.

A verdict over ten seconds of which two were ill is less sure than one over ten alike, and a
harm that has ended is not told as one that goes on.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Dict, List, Optional, Sequence

from udsprobe.model.report import Evidence, Report, Verdict
from udsprobe.rules.wording import duration, evidence

_UNHARMED = ("none", "unknown")


def over_parts(whole: Report, parts: Sequence[Report]) -> Report:
    """The judged report of a window, as sure as its judged parts agree with it.

    Args:
        parts: reports of the window's parts, oldest first; one whose verdict is `unknown` counts
            for nothing, nor does one that is shorter than a request takes.
    """
    verdict = whole.verdict
    told = [each for each in parts if each.verdict is not None and each.verdict.cause != "unknown"]
    if verdict is None or verdict.cause == "unknown" or len(told) < 2:
        return whole
    request_s = _request_s(whole)
    told = [each for each in told if each.window.duration_s >= request_s]
    return replace(whole, verdict=_with_age(_weighed(verdict, told), parts))


def _request_s(report: Report) -> float:
    """How long one takes on average; 0 of none."""
    served = report.requests.served
    return ((served.latency_us.mean if served is not None else None) or 0.0) / 1e6


def _weighed(verdict: Verdict, told: Sequence[Report]) -> Verdict:
    seconds = _seconds_by_cause(told)
    whole_s = sum(seconds.values())
    alike = seconds.get(verdict.cause, 0.0) / whole_s if whole_s else 1.0
    if alike == 1.0:
        return verdict
    return replace(
        verdict,
        confidence=round(verdict.confidence * (0.5 + 0.5 * alike), 2),
        evidence=[*verdict.evidence, _differing(seconds, alike)],
    )


def _seconds_by_cause(told: Sequence[Report]) -> Dict[str, float]:
    seconds: Dict[str, float] = defaultdict(float)
    for each in told:
        if each.verdict is not None:
            seconds[each.verdict.cause] += each.window.duration_s
    return seconds


def _differing(seconds: Dict[str, float], alike: float) -> Evidence:
    longest = sorted(seconds, key=lambda cause: -seconds[cause])
    each = [f"{cause} for {duration(seconds[cause] * 1e6)}" for cause in longest]
    says = f"not the same throughout: {', '.join(each)}"
    return evidence("verdict.alike_pct", 100.0 * alike, "%", says)


def _with_age(verdict: Verdict, parts: Sequence[Report]) -> Verdict:
    harm = verdict.harm
    if harm.since_s is not None or harm.kind in _UNHARMED:
        return verdict
    return replace(verdict, harm=replace(harm, since_s=_since_s(harm.kind, parts)))


def _since_s(kind: str, parts: Sequence[Report]) -> Optional[float]:
    """For how long the last parts have had this harm; None: the last has not."""
    lasting: List[float] = []
    for each in reversed(parts):
        if each.verdict is None or each.verdict.harm.kind != kind:
            break
        lasting.append(each.window.duration_s)
    return round(sum(lasting), 3) if lasting else None
