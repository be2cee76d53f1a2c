"""Servers that answer nobody: nothing completes, so no request tells of it."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from udsprobe.model.harm import Harm
from udsprobe.model.report import Evidence, Report, ServedBy, Waiting
from udsprobe.rules.harm import STUCK
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.suspects.suspect import CRITICAL, Suspect
from udsprobe.rules.thresholds import HUNG_US_MIN, REQUESTS_MIN, THREAD_BUSY_MIN
from udsprobe.rules.wording import ACTIVITY_WORDS, count, duration, evidence, percent

_ASLEEP = ("blocked_lock", "blocked_disk", "blocked_other", "blocked_recv", "blocked_connect")


def hung_suspects(report: Report) -> List[Suspect]:
    """Processes with requests that nobody begins with, or that never end."""
    rows = [row for row in report.requests.served_by or [] if row.count < REQUESTS_MIN]
    found = [_asking(row) or _unread(report, row) or _unanswered(report, row) for row in rows]
    return [each for each in found if each is not None]


def _asking(row: ServedBy) -> Optional[Suspect]:
    """Its own requests get no answer, and it owes replies."""
    oldest_us = row.asking.oldest_us or 0.0
    if oldest_us < HUNG_US_MIN or not row.in_progress.count:
        return None
    says = f"{count(row.asking.count, 'own request')} without a reply, the oldest for "
    fact = evidence("asking_oldest_us", oldest_us, "µs", says + duration(oldest_us), HUNG_US_MIN)
    return _suspect(
        row,
        "upstream-wait",
        f"{_name(row)} has waited {duration(oldest_us)} for an upstream",
        fact,
        _stuck("reply", "replies", row.in_progress, "outstanding"),
    )


def _unread(report: Report, row: ServedBy) -> Optional[Suspect]:
    oldest_us = row.unread.oldest_us or 0.0
    doing, share = _does(report, row.pid)
    is_free = doing == "blocked_poll" and row.count > 0
    if oldest_us < HUNG_US_MIN or is_free or doing in ("user", "runq"):
        return None
    says = f"{count(row.unread.count, 'request')} unread, the oldest for {duration(oldest_us)}"
    fact = evidence("unread_oldest_us", oldest_us, "µs", says, HUNG_US_MIN)
    return _suspect(
        row,
        "app-blocked",
        f"{_name(row)} does not read its requests; its threads spend {percent(share)} "
        f"of the time {ACTIVITY_WORDS.get(doing, doing)}",
        fact,
        _stuck("request", "requests", row.unread, "unread"),
        # Who reads nothing accepts nothing either; that both is so is no chain.
        overloads=False,
    )


def _unanswered(report: Report, row: ServedBy) -> Optional[Suspect]:
    oldest_us = row.in_progress.oldest_us or 0.0
    doing, share = _does(report, row.pid)
    if oldest_us < HUNG_US_MIN or doing not in _ASLEEP or share < THREAD_BUSY_MIN:
        return None
    says = (
        f"{count(row.in_progress.count, 'request')} without a reply, the oldest for "
        f"{duration(oldest_us)}"
    )
    fact = evidence("in_progress_oldest_us", oldest_us, "µs", says, HUNG_US_MIN)
    return _suspect(
        row,
        "app-blocked",
        f"{_name(row)} is {ACTIVITY_WORDS.get(doing, doing)}",
        fact,
        _stuck("request", "requests", row.in_progress, "without a reply"),
    )


def _stuck(one: str, many: str, waiting: Waiting, how: str) -> Harm:
    since_s = (waiting.oldest_us or 0.0) / 1e6
    says = f"{count(waiting.count, one, many)} {how}, the oldest for {duration(since_s * 1e6)}"
    return Harm(STUCK, None, waiting.count, since_s, says)


def _suspect(
    row: ServedBy, cause: str, headline: str, fact: Evidence, harm: Harm, overloads: bool = True
) -> Suspect:
    return Suspect(
        cause=cause,
        name=f"{cause}:{_name(row)}",
        severity=CRITICAL,
        is_pressure=True,
        share_pct=100.0,
        subject=_name(row),
        headline=headline,
        evidence=(fact,),
        actions=remedies("hung", pid=row.pid),
        seen=row.in_progress.count + row.unread.count + row.asking.count,
        overloads=overloads,
        pids=frozenset([row.pid]),
        harm=harm,
    )


def _does(report: Report, pid: int) -> Tuple[str, float]:
    """What its threads did most, and the part of their time."""
    processes = report.time.processes if report.time is not None else []
    shares: Dict[str, float] = next((p.share for p in processes if p.pid == pid), {})
    if not shares:
        return "", 0.0
    name = max(shares, key=lambda each: shares[each])
    return name, shares[name]


def _name(row: ServedBy) -> str:
    return f"{row.comm} {row.pid}" if row.comm else f"pid {row.pid}"
