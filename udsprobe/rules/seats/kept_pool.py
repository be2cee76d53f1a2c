"""Clients of a proxy that wait for a connection to its upstream, which others keep.

PgBouncer's sessions and open transactions, HAProxy's tunnels: who has a connection may keep it
however little he asks. Those who wait make no request that ends, so no mean tells of them. A proxy
has nothing of its own to do in a request; so of the replies that it owes, no more can be on their
way upstream than it has connections there.
"""

from __future__ import annotations

from typing import FrozenSet, List, NamedTuple, Optional, Tuple

from udsprobe.model.harm import Harm
from udsprobe.model.report import Evidence, Report, ServedBy, Upstream, Waiting
from udsprobe.rules.harm import STUCK
from udsprobe.rules.peers.late import hung_after_us
from udsprobe.rules.remedy import choice
from udsprobe.rules.servers import recognise
from udsprobe.rules.suspects.suspect import CRITICAL, Suspect
from udsprobe.rules.turned_away.answering import pids_of, who_there
from udsprobe.rules.wording import count, duration, evidence, percent, place, process

# Where a connection upstream is one client's until it gives it back, and others queue for it.
_ONE_CLIENT_EACH = ("haproxy", "pgbouncer")
_NOBODY = Waiting(0, None)
_NO_PIDS: FrozenSet[int] = frozenset()


class _Seats(NamedTuple):
    """Connections of a proxy to its upstreams.

    Attributes:
        asked: the places that it has asked in the window, the most asked first.
    """

    many: int
    asked: Tuple[Upstream, ...]

    def words(self) -> str:
        """`4 connections to postgres 812 at tcp:127.0.0.1:5432`."""
        where = f" to {who_there(self.asked[0])}" if len(self.asked) == 1 else " upstream"
        return count(self.many, "connection") + where

    def use(self) -> str:
        """`, 47 % busy`."""
        if len(self.asked) != 1 or self.asked[0].busy_pct is None:
            return ""
        return f", {percent(self.asked[0].busy_pct / 100)} busy"


class _Queue(NamedTuple):
    """Those who wait inside of a proxy; `least_us`: from which age on that is long."""

    waiting: Waiting
    least_us: float

    @property
    def oldest_us(self) -> float:
        return self.waiting.oldest_us or 0.0

    def says(self) -> str:
        """`16 clients wait for a connection, the longest for 12 s`."""
        who = count(self.waiting.count, "client waits", "clients wait")
        return f"{who} for a connection, the longest for {duration(self.oldest_us)}"


def kept_pool_suspects(report: Report) -> List[Suspect]:
    """One for each proxy with clients that wait so for longer than its requests take."""
    found = []
    for row in report.requests.served_by or ():
        if row.comm is not None and recognise(row.comm) in _ONE_CLIENT_EACH:
            seats = _seats(report, row)
            queue = None if seats is None else _queue(report, row, seats.many)
            if seats is not None and queue is not None:
                found.append(_suspect(report, row, seats, queue))
    return found


def _seats(report: Report, row: ServedBy) -> Optional[_Seats]:
    """None: not known how many."""
    asked = {(each.transport, each.address) for each in row.upstream}
    every = report.requests.upstream or ()
    rows = tuple(each for each in every if (each.transport, each.address) in asked)
    if not rows:
        return _unused(report, row)
    known = [each.connections for each in rows if each.connections is not None]
    return _Seats(sum(known), rows) if len(known) == len(rows) else None


def _unused(report: Report, row: ServedBy) -> Optional[_Seats]:
    """Of connections that moved nothing: those of the only target that are not its clients'."""
    waits = [each for each in report.waits_now or () if each.pid == row.pid]
    clients = [each.clients for each in waits if each.clients is not None]
    alone = all(each.pid == row.pid for each in report.targets if each.state == "running")
    if not clients or not alone or report.connections_total is None:
        return None
    return _Seats(max(0, report.connections_total - max(clients)), ())


def _queue(report: Report, row: ServedBy, seats: int) -> Optional[_Queue]:
    """None where all that is owed can be on its way, or nobody waits for long."""
    least_us = hung_after_us(report, row.comm)
    before, owed = row.asked_before or _NOBODY, row.unanswered
    beyond = owed.count + before.count - seats
    # Of those who asked in the window it is known how long the oldest waits; it may have a seat.
    late = [Waiting(min(owed.count, beyond), owed.oldest_us), before]
    late = [each for each in late if (each.oldest_us or 0.0) >= least_us and each.count > 0]
    if beyond < 1 or not late or _is_asking(row, seats, least_us):
        return None
    oldest_us = max(each.oldest_us or 0.0 for each in late)
    return _Queue(Waiting(sum(each.count for each in late), oldest_us), least_us)


def _is_asking(row: ServedBy, seats: int, least_us: float) -> bool:
    """All of them wait for an answer, for long: who has them keeps them for that."""
    return row.asking.count >= seats > 0 and (row.asking.oldest_us or 0.0) >= least_us


def _suspect(report: Report, row: ServedBy, seats: _Seats, queue: _Queue) -> Suspect:
    who = process(row.pid, row.comm)
    subject = place(seats.asked[0]) if len(seats.asked) == 1 else who
    has = f"{who} has {seats.words()}" if seats.many else f"{who} has no connection upstream"
    keeps = f", which others keep{seats.use()}" if seats.many else ""
    return Suspect(
        cause="upstream-wait",
        name=f"upstream-wait:kept:{who}",
        severity=CRITICAL,
        is_pressure=True,
        share_pct=100 * queue.waiting.count / (queue.waiting.count + seats.many),
        subject=subject,
        headline=f"{has}{keeps}",
        evidence=(*_facts(queue, seats),),
        actions=choice.kept_pool(report, row.pid),
        seen=round(queue.waiting.count * max(1.0, queue.oldest_us / 1e6)),
        pids=frozenset([row.pid]),
        waits_for=_NO_PIDS.union(*map(pids_of, seats.asked)),
        harm=Harm(STUCK, None, queue.waiting.count, queue.oldest_us / 1e6, queue.says()),
    )


def _facts(queue: _Queue, seats: _Seats) -> List[Evidence]:
    says = (
        f"{count(queue.waiting.count, 'client')} without a reply for long; "
        f"{count(seats.many, 'connection')} upstream, each for one client at a time"
    )
    return [evidence("kept_pool_oldest_us", queue.oldest_us, "µs", says, queue.least_us)]
