"""Connections that a program accepts and closes at once: its own limit is reached.

nginx does so without free worker_connections, Node above server.maxConnections, HAProxy by rule.
The kernel's queue let them in, so nothing was refused there, and clients that come again look
like churn.

No counter is kept of such connections. But each call is counted, and each connection that was
looked at took one at least: what is left is a lower bound.
"""

from __future__ import annotations

from typing import List, Optional, Tuple

from udsprobe.model.report import Evidence, Listener, Report, Syscall
from udsprobe.rules.harm import REFUSED, connects
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import CRITICAL, Suspect
from udsprobe.rules.thresholds import FAILED_CONNECTS_MIN, FAILED_CONNECTS_SHARE_MIN
from udsprobe.rules.wording import count, evidence, percent

_RECEIVES = ("read", "recv", "splice", "io_uring:read", "io_uring:recv")
_SENDS = ("write", "send", "io_uring:write", "io_uring:send")
_NOTHING = ("EAGAIN", "EINTR")


def closed_unread_suspects(report: Report) -> List[Suspect]:
    """One suspect at most: whose listener it is, where there are several, is the busiest's."""
    listeners = [row for row in report.listeners or [] if row.accepted]
    least = closed_unread(report)
    accepted = sum(row.accepted or 0 for row in listeners)
    if least is None or least < max(FAILED_CONNECTS_MIN, FAILED_CONNECTS_SHARE_MIN * accepted):
        return []
    busiest = max(listeners, key=lambda row: row.accepted or 0)
    return [_suspect(report, busiest, least, accepted)]


def closed_unread(report: Report) -> Optional[int]:
    """Connections that were accepted and closed without a receive or a send call, at least.

    None where not all calls are counted, or nothing was served: another process may serve then.
    """
    served = report.requests.served
    first = served.stages_us.accept_wait if served is not None else None
    if served is None or first is None or not served.count or report.syscalls is None:
        return None
    turns = served.count + sum(row.count for row in report.requests.upstream or [])
    moved = [_calls(report.syscalls, kind) for kind in (_RECEIVES, _SENDS)]
    if min(moved) < served.count:
        return None
    looked = sum(max(0, calls - turns) for calls in moved)
    accepted = sum(row.accepted or 0 for row in report.listeners or [])
    is_open = report.connections_total or 0
    return max(0, accepted - first.count - looked - is_open)


def _calls(rows: List[Syscall], names: Tuple[str, ...]) -> int:
    """On connections, but for those that found nothing."""
    return sum(
        row.calls - sum(row.errors.get(error, 0) for error in _NOTHING)
        for row in rows
        if row.transport in ("unix", "tcp") and row.name.startswith(names)
    )


def _suspect(report: Report, listener: Listener, least: int, accepted: int) -> Suspect:
    subject = f"{listener.transport}:{listener.address}"
    share = least / accepted
    return Suspect(
        cause="accept-starved",
        name=f"accept-starved:closed-unread:{subject}",
        severity=CRITICAL,
        is_pressure=True,
        share_pct=100 * share,
        subject=subject,
        headline=f"{_who(report, listener)} closes {percent(share)} of what it accepts at "
        f"{subject} at once: its own limit of connections is reached",
        evidence=tuple(_evidence(least, accepted)),
        actions=choice.seats_taken(report, listener),
        seen=least,
        harm=connects(REFUSED, least, accepted, "closed unread"),
        refuses=True,
    )


def _who(report: Report, listener: Listener) -> str:
    accepted_by = listener.accepted_by or {}
    most = max(accepted_by, key=lambda pid: accepted_by[pid], default=None)
    names = {str(target.pid): target.comm for target in report.targets}
    if most is None:
        return "the program"
    return f"{names[most]} {most}" if most in names else f"pid {most}"


def _evidence(least: int, accepted: int) -> List[Evidence]:
    says = (
        f"{count(least, 'connection')} of {accepted:,} accepted, or more, were closed without "
        "one call that reads or writes"
    )
    limit = max(FAILED_CONNECTS_MIN, FAILED_CONNECTS_SHARE_MIN * accepted)
    return [evidence("closed_unread", least, "connections", says, limit)]
