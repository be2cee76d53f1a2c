"""Programs that end the connection of a request without a reply: an error, or a limit of their own.

Where a program never replies, its protocol may have no replies.
"""

from __future__ import annotations

from typing import List, Optional

from udsprobe.model.harm import Harm
from udsprobe.model.report import Report, ServedBy, Unanswered
from udsprobe.rules.harm import FAILED
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.hung import name_of
from udsprobe.rules.suspects.suspect import CRITICAL, DROPPED, Suspect
from udsprobe.rules.thresholds import GIVEN_UP_MIN, GIVEN_UP_SHARE_MIN
from udsprobe.rules.wording import count, duration, evidence, part


def dropped_suspects(report: Report) -> List[Suspect]:
    """One for each process that does so with more than a few."""
    found = [_suspect(report, row) for row in report.requests.served_by or []]
    return [each for each in found if each is not None]


def _suspect(report: Report, row: ServedBy) -> Optional[Suspect]:
    dropped = row.dropped
    if dropped is None or dropped.count < GIVEN_UP_MIN or not row.count:
        return None
    share = dropped.count / (dropped.count + row.count)
    if share < GIVEN_UP_SHARE_MIN:
        return None
    who = name_of(row)
    says = f"{part(share)} of requests end without a reply"
    fact = f"{count(dropped.count, 'connection')} ended so while the client was there"
    return Suspect(
        cause="app-blocked",
        name=f"app-blocked:{DROPPED}:{who}",
        kind=DROPPED,
        severity=CRITICAL,
        is_pressure=True,
        share_pct=100 * share,
        subject=who,
        headline=_headline(report, row, dropped),
        evidence=(evidence("dropped", dropped.count, "requests", fact, GIVEN_UP_MIN),),
        actions=choice.dropped(report, row.pid, who),
        seen=dropped.count,
        pids=frozenset([row.pid]),
        harm=Harm(FAILED, 100 * share, dropped.count, None, says),
    )


def _headline(report: Report, row: ServedBy, dropped: Unanswered) -> str:
    after = duration(dropped.waited_mean_us or 0.0)
    has_ended = any(each.pid == row.pid and each.state == "exited" for each in report.targets)
    how = "ended with them in hand" if has_ended else "closes their connections"
    return f"{name_of(row)} {how}, {after} after it received them on average"
