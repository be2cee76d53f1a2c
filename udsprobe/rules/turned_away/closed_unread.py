"""Connections that a program accepts and closes at once: its own limit is reached.

nginx does so without free worker_connections, Node above server.maxConnections, HAProxy by rule;
Redis, MariaDB and memcached write why before they close. The kernel's queue let them in, so nothing
was refused there, and clients that come again look like churn.

A service that only speaks, such as daytime, closes all of its connections so, and is well. Whoever
has reached a limit serves others at the same listener, or closes what had asked already.
"""

from __future__ import annotations

from typing import List, Optional

from udsprobe.model.report import Evidence, Listener, Report
from udsprobe.rules.harm import REFUSED, connects
from udsprobe.rules.peers.kept import served_at
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import CRITICAL, Suspect
from udsprobe.rules.thresholds import FAILED_CONNECTS_MIN, FAILED_CONNECTS_SHARE_MIN
from udsprobe.rules.wording import count, evidence, percent, place, process


def closed_unread_suspects(report: Report) -> List[Suspect]:
    """One for each listener whose program turns away more than a few."""
    rows = report.listeners or []
    return [_suspect(report, row) for row in rows if row.accepted and is_at_its_limit(report, row)]


def is_at_its_limit(report: Report, listener: Listener) -> bool:
    """Connections are closed unread, and not because their clients have nothing to say."""
    least = _least(listener)
    if (listener.closed_unread or 0) < least:
        return False
    return (listener.closed_unread_sent or 0) >= least or _serves(report, listener)


def _least(listener: Listener) -> float:
    return max(FAILED_CONNECTS_MIN, FAILED_CONNECTS_SHARE_MIN * (listener.accepted or 0))


def _serves(report: Report, listener: Listener) -> bool:
    """Others were read from: of those accepted now, or of those kept since before."""
    return bool(listener.read_from) or bool(served_at(report, listener))


def _suspect(report: Report, listener: Listener) -> Suspect:
    closed, accepted = listener.closed_unread or 0, listener.accepted or 1
    subject = place(listener)
    # One that was accepted before the window began can be closed in it.
    share = min(1.0, closed / accepted)
    return Suspect(
        cause="accept-starved",
        name=f"accept-starved:closed-unread:{subject}",
        severity=CRITICAL,
        is_pressure=True,
        share_pct=100 * share,
        subject=subject,
        headline=f"{accepting(report, listener)} closes {percent(share)} of what it accepts at "
        f"{subject} at once: its own limit of connections is reached",
        evidence=tuple(_evidence(listener)),
        actions=choice.seats_taken(report, listener),
        seen=closed,
        harm=connects(REFUSED, closed, accepted, "closed unread"),
        refuses=True,
    )


def accepting(report: Report, listener: Listener) -> str:
    """`nginx 4711`, who accepted most of its connections."""
    accepted_by = listener.accepted_by or {}
    most: Optional[str] = max(accepted_by, key=lambda pid: accepted_by[pid], default=None)
    names = {str(target.pid): target.comm for target in report.targets}
    return "the program" if most is None else process(int(most), names.get(most))


def _evidence(listener: Listener) -> List[Evidence]:
    closed, sent = listener.closed_unread or 0, listener.closed_unread_sent or 0
    says = (
        f"{count(closed, 'connection')} of {listener.accepted:,} accepted were closed by the "
        "program at once, with their clients still there and nothing received from them"
    )
    found = [evidence("closed_unread", closed, "connections", says, _least(listener))]
    if sent:
        says = f"to {count(sent, 'of these', 'of these')} the client had sent something by then"
        found.append(evidence("closed_unread_sent", sent, "connections", says))
    if listener.read_from:
        says = f"{count(listener.read_from, 'other connection')} accepted there were read from"
        found.append(evidence("read_from", listener.read_from, "connections", says))
    return found
