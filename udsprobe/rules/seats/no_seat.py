"""Databases that answer a connection with an error: all that they allow are taken.

PostgreSQL and PgBouncer, MySQL and MariaDB, Redis and memcached say so in their protocol. A server
that does so before it has read anything is told by `closed_unread`, too.
"""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from udsprobe.model.report import Action, Listener, Report, Upstream
from udsprobe.rules.harm import REFUSED, connects
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import CRITICAL, Suspect
from udsprobe.rules.thresholds import FAILED_CONNECTS_MIN, FAILED_CONNECTS_SHARE_MIN
from udsprobe.rules.turned_away.answering import who
from udsprobe.rules.turned_away.closed_unread import accepting
from udsprobe.rules.wording import count, evidence, place

Actions = Tuple[Action, ...]


def with_no_seat(report: Report, suspects: Sequence[Suspect]) -> List[Suspect]:
    """The suspects, and one for each place that does so more than a few times."""
    told = {each.subject for each in suspects if each.refuses}
    own = [_own(report, row) for row in report.listeners or () if place(row) not in told]
    found = [each for each in own if each is not None]
    told |= {each.subject for each in found}
    asked = [
        _asked(report, row) for row in report.requests.upstream or () if place(row) not in told
    ]
    return [*suspects, *found, *(each for each in asked if each is not None)]


def _own(report: Report, row: Listener) -> Optional[Suspect]:
    owner = accepting(report, row)
    return _suspect(place(row), owner, row.no_seat, row.accepted, choice.seats_taken(report, row))


def _asked(report: Report, row: Upstream) -> Optional[Suspect]:
    connects_there = [each for each in report.connects or () if place(each) == place(row)]
    of = sum(each.calls for each in connects_there)
    who_answers = "the server" if who(row) == place(row) else who(row)
    return _suspect(place(row), who_answers, row.no_seat, of, choice.no_seat(row))


def _suspect(
    where: str, who_answers: str, no_seat: Optional[int], of: Optional[int], actions: Actions
) -> Optional[Suspect]:
    """None where no more than a few are turned away."""
    turned_away, of = no_seat or 0, max(of or 0, no_seat or 0)
    least = max(FAILED_CONNECTS_MIN, FAILED_CONNECTS_SHARE_MIN * of)
    if turned_away < least:
        return None
    says = f"{count(turned_away, 'connection')} of {of:,} got the answer that all are taken"
    return Suspect(
        cause="accept-starved",
        name=f"accept-starved:no-seat:{where}",
        severity=CRITICAL,
        is_pressure=True,
        share_pct=100 * turned_away / of,
        subject=where,
        headline=f"{who_answers} answers that all connections that it allows are taken",
        evidence=(evidence("no_seat", turned_away, "connections", says, least),),
        actions=actions,
        seen=turned_away,
        harm=connects(REFUSED, turned_away, of, f"to {where} are turned away"),
        refuses=True,
    )
