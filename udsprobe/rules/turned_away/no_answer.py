"""Requests of the targets' own that end without an answer: the proxy's 502 and 504.

The upstream closes the connection, or the target does not wait any longer.
"""

from __future__ import annotations

from typing import FrozenSet, List, Optional, Sequence, Tuple

from udsprobe.model.harm import Harm
from udsprobe.model.report import Action, Evidence, Finding, Report, Unanswered, Upstream
from udsprobe.rules.harm import FAILED
from udsprobe.rules.remedy import choice
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.servers import GENERIC, recognise
from udsprobe.rules.suspects.suspect import CRITICAL, WARNING, Suspect
from udsprobe.rules.thresholds import (
    ACCOUNTED_FOR_MIN,
    GIVEN_UP_MIN,
    GIVEN_UP_SHARE_MIN,
    HUNG_US_MIN,
    KEPT_TOO_LONG_SHARE_MIN,
    KEPT_TOO_LONG_US_MAX,
)
from udsprobe.rules.turned_away.answering import listening_there, pid_of, pids_of, who
from udsprobe.rules.wording import (
    count,
    duration,
    evidence,
    is_name_server,
    named_place,
    part,
    place,
)

NONE = Unanswered(0, None)


def with_no_answer(report: Report, suspects: Sequence[Suspect]) -> List[Suspect]:
    """The suspects, where the wait for such an upstream is one with its failing."""
    rows = report.requests.upstream or []
    found = [each for each in (_suspect(report, row) for row in rows) if each is not None]
    failing = {each.name for each in found if each.is_pressure}
    return [*(each for each in suspects if each.name not in failing), *found]


def kept_too_long_findings(report: Report) -> List[Finding]:
    """Connections that an upstream had closed before requests came on them.

    Many programs ask again by themselves then, so nobody may suffer.
    """
    return [
        Finding(
            id="kept-too-long",
            severity=WARNING,
            subject=place(row),
            summary=f"{who(row)} had closed kept connections to {place(row)} before requests "
            f"came on them: {count(row.dropped.count, 'request')} without an answer",
            evidence=list(_facts(row, row.dropped, NONE)),
            actions=list(remedies("kept-too-long", who=who(row))),
        )
        for row in report.requests.upstream or []
        if row.dropped is not None
        and row.dropped.count >= GIVEN_UP_MIN
        and _is_kept_too_long(row, row.dropped)
    ]


def _suspect(report: Report, row: Upstream) -> Optional[Suspect]:
    """None where no more than a few have no answer."""
    askers = _askers(report, row)
    dropped, given_up = row.dropped or NONE, _given_up_late(report, row, askers)
    ended = dropped.count + given_up.count
    if ended < GIVEN_UP_MIN or ended / (ended + row.count) < GIVEN_UP_SHARE_MIN:
        return None
    if _is_kept_too_long(row, dropped) and not given_up.count:
        return None
    if _is_one_way(report, row, ended):
        return None
    share_pct = 100 * ended / (ended + row.count)
    says = f"{part(share_pct / 100)} of requests to {named_place(place(row))} end without an answer"
    return Suspect(
        cause="upstream-wait",
        name=f"upstream-wait:{place(row)}",
        severity=CRITICAL,
        is_pressure=True,
        share_pct=share_pct,
        subject=place(row),
        headline=_headline(row, dropped, given_up),
        evidence=_facts(row, dropped, given_up),
        actions=_actions(row, dropped),
        seen=ended,
        pids=askers,
        waits_for=pids_of(row) | listening_there(report, row),
        harm=Harm(FAILED, share_pct, ended, None, says),
    )


def _is_one_way(report: Report, row: Upstream, ended: int) -> bool:
    """Nobody ever has an answer from there, and most connections that the targets open to it end
    without a wait for one: Postfix wakes its queue manager so, which hangs up on those that come
    while it is awake."""
    there = row.transport, row.address
    rows = [each for each in report.connects or () if (each.transport, each.address) == there]
    opened = sum(each.calls - sum(each.errors.values()) for each in rows)
    return not row.count and ended < ACCOUNTED_FOR_MIN * opened


def _askers(report: Report, row: Upstream) -> FrozenSet[int]:
    """Of the targets those that had an answer from there; empty, for all, where none had."""
    asked = row.transport, row.address
    return frozenset(
        each.pid
        for each in report.requests.served_by or []
        if any((own.transport, own.address) == asked for own in each.upstream)
    )


def _given_up_late(report: Report, row: Upstream, askers: FrozenSet[int]) -> Unanswered:
    """By the targets themselves: later than others are answered, and not because their own clients
    have left.
    """
    given_up = row.given_up or NONE
    left = sum(
        each.given_up.count
        for each in report.requests.served_by or []
        if each.given_up is not None and (each.pid in askers or not askers)
    )
    slow_us = (row.latency_us.p99 or row.latency_us.max or 0.0) if row.count else HUNG_US_MIN
    is_late = (given_up.waited_mean_us or 0.0) >= slow_us
    return given_up if is_late and given_up.count - left >= GIVEN_UP_MIN else NONE


def _is_kept_too_long(row: Upstream, dropped: Unanswered) -> bool:
    kept = row.dropped_kept or 0
    is_at_once = (dropped.waited_mean_us or 0.0) <= KEPT_TOO_LONG_US_MAX
    return bool(kept) and is_at_once and kept >= KEPT_TOO_LONG_SHARE_MIN * dropped.count


def _headline(row: Upstream, dropped: Unanswered, given_up: Unanswered) -> str:
    if dropped.count >= given_up.count:
        after = duration(dropped.waited_mean_us or 0.0)
        if is_name_server(place(row)):
            return "nobody listens there (ECONNREFUSED)"
        return f"{_subject(row)} closes their connections, after {after} on average"
    after = duration(given_up.waited_mean_us or 0.0)
    return f"{_subject(row)} has not answered when they are given up, after {after} on average"


def _facts(row: Upstream, dropped: Unanswered, given_up: Unanswered) -> Tuple[Evidence, ...]:
    found = []
    if dropped.count and is_name_server(place(row)):
        says = f"{count(dropped.count, 'question')} to {place(row)} got ECONNREFUSED"
        found.append(evidence("dropped", dropped.count, "requests", says, GIVEN_UP_MIN))
    elif dropped.count:
        says = f"{place(row)} closed the connection of {count(dropped.count, 'request')}"
        if row.dropped_kept:
            says += f", {row.dropped_kept:,} of them on a connection that it had answered on before"
        found.append(evidence("dropped", dropped.count, "requests", says, GIVEN_UP_MIN))
    if given_up.count:
        says = f"{count(given_up.count, 'request')} to {place(row)} had no answer when given up"
        found.append(evidence("given_up", given_up.count, "requests", says, GIVEN_UP_MIN))
    says = f"{count(row.count, 'request')} to {place(row)} had an answer"
    if row.latency_us.mean is not None:
        says += f", after {duration(row.latency_us.mean)} on average"
    return (*found, evidence("answered", row.count, "requests", says))


def _actions(row: Upstream, dropped: Unanswered) -> Tuple[Action, ...]:
    pid = pid_of(row)
    if is_name_server(place(row)):
        return remedies("lookups-lost", who=place(row))
    if not dropped.count:
        return choice.upstream(pid, who(row), place(row))
    server = recognise(row.peer.comm) if row.peer is not None and row.peer.comm else GENERIC
    looks = remedies("upstream-drops", peer_pid=pid, who=who(row))
    return (*looks, *remedies("dropped", server, who=who(row)))


def _subject(row: Upstream) -> str:
    """In a sentence that has named its place."""
    return "it" if who(row).endswith(place(row)) else who(row)
