"""Targets that another process traces: each system call of theirs stops until it has looked."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Sequence

from udsprobe.model.report import Report, Target
from udsprobe.rules.causes import PARTS
from udsprobe.rules.harm import STUCK
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import TRACED, WARNING, Suspect
from udsprobe.rules.thresholds import TRACED_SHARE_MIN
from udsprobe.rules.wording import evidence, percent, process

CAUSE = "app-blocked"
# ptrace_stop() of kernel/signal.c: a sleep in a call of any kind, that no other account has.
_STOPPED = "blocked_other"


def with_tracers(report: Report, suspects: Sequence[Suspect]) -> List[Suspect]:
    """The suspects, and one for each target that its tracer stops.

    What presses inside such a service is measured under the tracer: that one is the root. A
    target that its tracer does not let go on at all is told as stopped.
    """
    found = list(suspects)
    for target in report.targets:
        share = _stopped_share(report, target)
        if target.tracer_pid is None or share < TRACED_SHARE_MIN:
            continue
        pressing = _pressing(target, found)
        if pressing is not None and pressing.harm is not None and pressing.harm.kind == STUCK:
            continue
        if pressing is not None:
            found[found.index(pressing)] = replace(pressing, is_pressure=False)
        found.append(_suspect(target, share, pressing))
    return found


def is_tracer(suspect: Suspect) -> bool:
    """Whether it is one of these: where the target stops says nothing."""
    return suspect.kind == TRACED


def _stopped_share(report: Report, target: Target) -> float:
    """Of the time of its first thread, which is the one that is looked at."""
    threads = report.time.threads if report.time is not None else []
    return max((t.share.get(_STOPPED, 0.0) for t in threads if t.tid == target.pid), default=0.0)


def _pressing(target: Target, suspects: Sequence[Suspect]) -> Optional[Suspect]:
    own = [
        each
        for each in suspects
        if each.is_pressure and each.cause in PARTS and (not each.pids or target.pid in each.pids)
    ]
    return max(own, key=lambda each: each.share_pct, default=None)


def _suspect(target: Target, share: float, pressing: Optional[Suspect]) -> Suspect:
    tracer, who = (
        process(target.tracer_pid, target.tracer_comm),
        process(target.pid, target.comm),
    )
    says = f"{who} is stopped for {percent(share)} of the time, or blocked by something unknown"
    return Suspect(
        cause=CAUSE,
        name=f"{CAUSE}:{TRACED}:{target.pid}",
        kind=TRACED,
        severity=WARNING if pressing is None else pressing.severity,
        is_pressure=pressing is not None,
        share_pct=max(100 * share, 0.0 if pressing is None else pressing.share_pct),
        subject=tracer,
        headline=f"{tracer} traces {who}, which stops for it at each system call",
        evidence=(
            evidence("traced_share", share, "of 1", says, TRACED_SHARE_MIN),
            *(pressing.evidence if pressing is not None else ()),
        ),
        actions=choice.traced(target, tracer),
        seen=1 if pressing is None else pressing.seen,
        overloads=pressing is not None and pressing.overloads,
        pids=frozenset([target.pid]),
        harm=None if pressing is None else pressing.harm,
    )
