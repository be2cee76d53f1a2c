"""Whom a service asks: their names, what they take, and what a process says that only asks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, List, Optional, Sequence, Tuple

from udsprobe.model.report import Action, Evidence, Latency, Report, Upstream
from udsprobe.model.requests.reply_pieces import paused_us
from udsprobe.rules.accounts.service import (
    Service,
    answer_mean_us,
    processes_of,
    tail_us,
    upstream_us,
)
from udsprobe.rules.accounts.upstream_pool import at_once, full_pool, is_full, is_queueing
from udsprobe.rules.peers.readers import busy_at_least_s
from udsprobe.rules.remedy import choice
from udsprobe.rules.servers import ONE_CPU, recognise
from udsprobe.rules.thresholds import (
    ACCOUNTED_FOR_MIN,
    ASKS_PER_REQUEST_MIN,
    REQUESTS_MIN,
    THREAD_BUSY_MIN,
    WAIT_SHARE_MIN,
)
from udsprobe.rules.turned_away.answering import pid_of, who, who_there
from udsprobe.rules.wording import count, duration, evidence, is_name_server, percent, place

FACTS_MAX = 3
# The part of answers that take as long as a percentile, or longer.
_ABOVE = (("p50", 0.5), ("p90", 0.1), ("p99", 0.01))


@dataclass(frozen=True)
class MostAsked:
    """The destination that most of the time of own requests goes to.

    Attributes:
        address: `tcp:127.0.0.1:5432`.
        who: `postgres 812`, or the address. where: `postgres 812 at tcp:127.0.0.1:5432`.
        pid: of the process there, where it is known. is_kept: connections to it are.
        count, mean_us: of requests to it. server: what it is, of `SERVERS`.
    """

    address: str
    who: str
    where: str
    pid: Optional[int]
    count: int
    mean_us: float
    server: str
    facts: Tuple[Evidence, ...]
    is_kept: bool = True

    def actions(self) -> Tuple[Action, ...]:
        """How to see why it takes so long."""
        return choice.upstream(self.pid, self.who, self.address, self.is_kept)


def most_asked(service: Service) -> Optional[MostAsked]:
    """None where it asks nobody.

    Where some of its requests are slow, it is one whose answers take as long, if there is any.
    """
    places = sorted(_by_place(service.upstream), key=upstream_us, reverse=True)
    rows = _late_first(service, places)
    if not rows:
        return None
    worst = rows[0]
    return MostAsked(
        address=place(worst),
        who=who(worst),
        where=who_there(worst),
        pid=pid_of(worst),
        count=worst.count,
        mean_us=upstream_us(worst) / worst.count if worst.count else 0.0,
        server=recognise((worst.peer.comm if worst.peer is not None else None) or ""),
        facts=tuple(_fact(row) for row in rows[:FACTS_MAX]),
        is_kept=worst.connections is not None,
    )


def _by_place(rows: Sequence[Upstream]) -> List[Upstream]:
    """Of several processes of one service, what they ask the same destination is told together."""
    by_place: Dict[str, List[Upstream]] = {}
    for row in rows:
        by_place.setdefault(place(row), []).append(row)
    return [_together(each) for each in by_place.values()]


def _together(rows: Sequence[Upstream]) -> Upstream:
    """As the one that most of the time goes to, with the requests and the means of all."""
    first, *others = sorted(rows, key=upstream_us, reverse=True)
    if not others:
        return first
    count = sum(row.count for row in rows)
    took_us = sum((row.latency_us.mean or 0.0) * row.count for row in rows)
    queued_us = sum((row.recv_wait_mean_us or 0.0) * row.count for row in rows)
    return replace(
        first,
        count=count,
        latency_us=Latency(count, took_us / count if count else None),
        recv_wait_mean_us=queued_us / count if count else None,
    )


def _late_first(service: Service, rows: Sequence[Upstream]) -> List[Upstream]:
    slow_us = tail_us(service.latency)
    if slow_us is None:
        return list(rows)
    # Of a hundredth of the requests; one answer of a name server may be for many of them.
    least = ACCOUNTED_FOR_MIN * service.count / 100
    return sorted(
        rows,
        key=lambda row: (
            _late(row, ACCOUNTED_FOR_MIN * slow_us) < (1 if is_name_server(place(row)) else least)
        ),
    )


def _late(row: Upstream, us: float) -> float:
    """How many of its answers took as long, at least."""
    late = (part for name, part in _ABOVE if (getattr(row.latency_us, name) or 0.0) >= us)
    return row.count * next(late, 0.0)


def times_in_turn(service: Service, asked: MostAsked, waits_us: float) -> Optional[float]:
    """How often each request asks it, one answer after the other; None: once, or all at once, or
    it waits for something else for longer (a free connection).

    Args:
        waits_us: that requests wait for their upstreams, all together.
    """
    each = asks_per_request(service, asked)
    in_turn_us = asked.count * asked.mean_us
    is_in_turn = waits_us >= WAIT_SHARE_MIN * in_turn_us
    return each if is_in_turn and in_turn_us >= WAIT_SHARE_MIN * waits_us else None


def asks_per_request(service: Service, asked: MostAsked) -> Optional[float]:
    """How often each request asks it, in turn or not; None: once."""
    # Half of what those in progress when we came ask is seen, and of those at the end.
    asking = service.count + (service.at_once if service.is_first else 0.0)
    each = asked.count / asking if asking else 0.0
    return None if each < ASKS_PER_REQUEST_MIN or is_name_server(asked.address) else each


def times(each: float) -> str:
    """`60`, `2.5`: how often, in words."""
    return f"{each:,.0f}" if each >= 10 else f"{each:.1f}".removesuffix(".0")


def without_time(report: Report, asked: MostAsked) -> Optional[float]:
    """How busy the process is that is asked, of what it can use, where it has no time to spare.

    More connections to it would only queue there. None where it has some, or that is not known: of
    one that may compute on many CPUs it is where it does not use all of them.
    """
    used = [
        busy_at_least_s(report, row)
        for row in report.connections or ()
        if row.role == "upstream" and row.peer is not None and row.peer.pid == asked.pid
    ]
    known = [each for each in used if each is not None]
    if asked.pid is None or not known:
        return None
    cpus = 1 if recognise(asked.who) in ONE_CPU else report.host.cpus
    share = min(1.0, max(known) / report.window.duration_s / cpus)
    return share if share >= THREAD_BUSY_MIN else None


def is_sent_unasked(report: Report, service: Service, waits_us: float) -> bool:
    """What requests wait for is no answer: those all came, long before. It is what others send
    through the one that is asked (a result that a worker stores, a message of a channel).

    No pool is full, and most of the time nobody owes an answer: else requests queue for one, or
    for a thread that waits for one, or hang.

    Args:
        waits_us: that requests wait for their upstreams, all together.
    """
    longest_us = max((row.latency_us.max or 0.0 for row in service.upstream), default=0.0)
    least_us = ACCOUNTED_FOR_MIN * waits_us / service.count if service.count else 0.0
    owed_us = max(
        (row.asking.oldest_us or 0.0 for row in processes_of(report, service)), default=0.0
    )
    are_answers_known = service.upstream and not any(row.multiplexed for row in service.upstream)
    return (
        bool(are_answers_known)
        and max(longest_us, owed_us, service.connecting_us) < least_us
        and service.upstream_us < ACCOUNTED_FOR_MIN * waits_us
        and at_once(service) < ACCOUNTED_FOR_MIN
        and full_pool(service) is None
        and not is_queueing(service)
    )


def asks_only(service: Service) -> Optional[MostAsked]:
    """Whom it asks, where it serves no request and asks enough of them; None else."""
    if service.count or sum(row.count for row in service.upstream) < REQUESTS_MIN:
        return None
    return most_asked(service)


def _fact(row: Upstream) -> Evidence:
    mean_us, queued_us = answer_mean_us(row), row.recv_wait_mean_us or 0.0
    says = f"{place(row)} answers in {duration(mean_us)} on average, {count(row.count, 'request')}"
    if queued_us > mean_us:
        says += f"; its answers are then queued for the app for {duration(queued_us)}"
    if is_full(row):
        size = count(row.connections or 0, "connection")
        says += f"; {size} to it, {percent((row.busy_pct or 0.0) / 100)} busy"
    pieces = row.in_pieces
    if pieces is not None and 2 * paused_us(row) > upstream_us(row):
        says += f"; its replies end {duration(pieces.transfer_mean_us or 0.0)} later"
    return evidence("upstream_latency_us", mean_us, "µs", says)
