"""Replies that say that the server failed: HTTP statuses of 500 and above.

A server that answers quickly that it cannot is no healthy one. Who makes these replies is told from
what the server asks of others: it passes on what an upstream answers, or it has no answer from
one, or they come as late as all that waits with them; else they are its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Sequence, Tuple

from udsprobe.model.harm import Harm
from udsprobe.model.report import Action, Evidence, HttpReplies, Report, Upstream
from udsprobe.model.requests.http_replies import most_first
from udsprobe.rules.causes import WAITING
from udsprobe.rules.harm import FAILED
from udsprobe.rules.peers.failures import Program, programs
from udsprobe.rules.remedy import choice
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.suspects.suspect import CRITICAL, Suspect
from udsprobe.rules.thresholds import (
    ACCOUNTED_FOR_MIN,
    GIVEN_UP_MIN,
    GIVEN_UP_SHARE_MIN,
)
from udsprobe.rules.turned_away.answering import pid_of, pids_of, who, who_there
from udsprobe.rules.wording import count, duration, evidence, part, place

CAUSE = "app-failing"


def with_failing_replies(report: Report, suspects: Sequence[Suspect]) -> List[Suspect]:
    """The suspects; such replies are the harm of one of them, or one of their own."""
    found = list(suspects)
    for program in programs(report):
        if not _is_pattern(program.http.failed, program.count):
            continue
        reason = _reason(program, found)
        if reason is None:
            found.append(_suspect(report, program, suspects))
        else:
            found[found.index(reason)] = _suffered(reason, program)
    return [*found, *_asked_by_the_unseen(report)]


def _is_pattern(failed: int, answered: int) -> bool:
    return failed >= GIVEN_UP_MIN and failed >= GIVEN_UP_SHARE_MIN * answered


def _reason(program: Program, suspects: Sequence[Suspect]) -> Optional[Suspect]:
    """What they wait for, where failures come at the end of a wait."""
    if not program.fails_late or program.failing_upstream:
        return None
    pressing = [
        each
        for each in suspects
        if each.is_pressure
        and each.cause in WAITING
        and (each.pids & program.pids or not each.pids)
    ]
    return max(pressing, key=lambda each: each.share_pct, default=None)


def _suffered(reason: Suspect, program: Program) -> Suspect:
    if reason.harm is not None:
        return reason
    return replace(
        reason,
        severity=CRITICAL,
        harm=_harm(program),
        evidence=(*reason.evidence, _fact(program.who, program.http)),
    )


def _suspect(report: Report, program: Program, suspects: Sequence[Suspect]) -> Suspect:
    http, asked = program.http, program.failing_upstream
    upstream = asked[0] if asked else None
    elsewhere = _failed_asking(report, suspects) >= ACCOUNTED_FOR_MIN * http.failed
    facts = [_fact(program.who, http)]
    if upstream is not None and upstream.http is not None:
        facts.append(_fact(who_there(upstream), upstream.http))
    return Suspect(
        cause=CAUSE,
        name=f"{CAUSE}:{program.who}",
        severity=CRITICAL,
        is_pressure=not elsewhere,
        share_pct=_share_pct(program),
        subject=program.who if upstream is None else place(upstream),
        headline=_headline(program, asked, elsewhere),
        evidence=tuple(facts),
        actions=_actions(report, program, upstream),
        seen=http.failed,
        pids=program.pids,
        waits_for=frozenset[int]().union(*map(pids_of, asked)),
        harm=_harm(program),
    )


def _failed_asking(report: Report, suspects: Sequence[Suspect]) -> int:
    """Own requests that failed in another way, which has a suspect of its own."""
    asked = [*(report.connects or ()), *(report.requests.upstream or ())]
    places = {place(row) for row in asked} - {place(row) for row in report.listeners or ()}
    return sum(
        each.harm.count or 0
        for each in suspects
        if each.harm is not None and each.is_pressure and each.subject in places
    )


def _share_pct(program: Program) -> float:
    return 100 * min(1.0, program.http.failed / max(1, program.count))


def _harm(program: Program) -> Harm:
    share_pct = _share_pct(program)
    says = f"{part(share_pct / 100)} of replies are {_statuses(program.http)}"
    return Harm(FAILED, share_pct, program.http.failed, None, says)


def _statuses(http: HttpReplies) -> str:
    """`HTTP 503`; `HTTP 502 and 504`, most first; of many the first two."""
    by_count = most_first(http.statuses)
    named = [each for each in by_count if each != "other"][:2]
    if not named:
        return "HTTP 5xx"
    more = " and others" if len(by_count) > len(named) else ""
    return f"HTTP {' and '.join(named) if not more else ', '.join(named)}{more}"


def _headline(program: Program, asked: Sequence[Upstream], elsewhere: bool) -> str:
    if asked:
        more = f" and {count(len(asked) - 1, 'other')}" if len(asked) > 1 else ""
        verb = "answer" if more else "answers"
        return f"{who_there(asked[0])}{more} {verb} so, and {program.who} passes it on"
    after = f"after {duration(program.http.failed_mean_us or 0.0)} on average"
    if elsewhere:
        return f"{program.who} replies so where its own requests fail"
    unseen = program.unseen_upstream
    if unseen is not None:
        return (
            f"{program.who} replies so, {after}; whether {place(unseen)} answered so first is not "
            "seen"
        )
    return f"{program.who} answers so itself, {after}"


def _fact(who: str, http: HttpReplies) -> Evidence:
    statuses = ", ".join(
        f"{status if status != 'other' else 'another 5xx'}: {http.statuses[status]:,}"
        for status in most_first(http.statuses)
    )
    says = f"{http.failed:,} of {count(http.count, 'HTTP reply', 'HTTP replies')} of {who} failed"
    return evidence("http_failed", http.failed, "requests", f"{says} ({statuses})", GIVEN_UP_MIN)


def _actions(report: Report, program: Program, upstream: Optional[Upstream]) -> Tuple[Action, ...]:
    if upstream is None:
        status = next(iter(most_first(program.http.statuses)), "")
        return choice.failing(report, program.failing[0].pid, program.who, status)
    return _passes_on(upstream)


def _asked_by_the_unseen(report: Report) -> List[Suspect]:
    """What targets ask whose own replies are not seen: they are encrypted, or there are none."""
    rows = report.requests.served_by or ()
    if any(row.http is not None and row.http.count for row in rows):
        return []
    served = report.requests.served
    answered = served.count if served is not None else 0
    return [
        _of_upstream(row, row.http, answered or row.count)
        for row in report.requests.upstream or ()
        if row.http is not None and _is_pattern(row.http.failed, answered or row.count)
    ]


def _of_upstream(row: Upstream, http: HttpReplies, of: int) -> Suspect:
    share_pct = 100 * min(1.0, http.failed / max(1, of))
    of_answers = part(http.failed / max(1, http.count))
    says = f"{of_answers} of answers of {place(row)} are {_statuses(http)}"
    after = duration(http.failed_mean_us or 0.0)
    return Suspect(
        cause=CAUSE,
        name=f"{CAUSE}:{place(row)}",
        severity=CRITICAL,
        is_pressure=True,
        share_pct=share_pct,
        subject=place(row),
        headline=f"{who(row)} answers so, after {after} on average",
        evidence=(_fact(who(row), http),),
        actions=_passes_on(row),
        seen=http.failed,
        waits_for=pids_of(row),
        harm=Harm(FAILED, share_pct, http.failed, None, says),
    )


def _passes_on(row: Upstream) -> Tuple[Action, ...]:
    return remedies("passes-on", peer_pid=pid_of(row), who=who(row))
