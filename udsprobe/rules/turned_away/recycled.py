"""Processes that accept a few connections and end, while others are started in their place.

To start and to end them takes more of their time than requests do. Connections wait meanwhile, and
what wants the CPUs is not what requests ask for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import FrozenSet, List, Optional, Sequence, Tuple

from udsprobe.model.report import Evidence, Listener, Report, Time
from udsprobe.rules import harm
from udsprobe.rules.accounts.service import lists_the_busiest, stayed_us
from udsprobe.rules.causes import QUEUES
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import (
    ACCOUNTED_FOR_MIN,
    RECYCLED_CONNECTIONS_MAX,
    SLOW_REQUESTS_MIN,
)
from udsprobe.rules.wording import count, duration, evidence, place

CAUSE = "accept-starved"
# What a process does while it starts and ends; asleep for peers it has nothing to do.
_STARTING = ("user", "sys_socket", "sys_other", "runq", "blocked_disk", "blocked_lock")


@dataclass(frozen=True)
class Crew:
    """The processes that accepted at one listener, most of which have ended.

    Attributes:
        accepted: connections of those that ended; starting_us, requests_us: of the time of all that
            came or went in the window.
    """

    comm: str
    pids: FrozenSet[int]
    ended: int
    accepted: int
    started: int
    starting_us: float
    requests_us: float


def with_recycled(report: Report, suspects: Sequence[Suspect]) -> List[Suspect]:
    """The suspects, and in place of what follows from such processes one that says so."""
    found = list(suspects)
    for row in report.listeners or ():
        crew = _crew(report, row)
        caused = [each for each in found if crew is not None and _is_caused(each, row, crew)]
        if crew is not None and caused:
            found = [each for each in found if each not in caused]
            found.append(_suspect(report, row, crew, caused))
    return found


def _is_caused(each: Suspect, listener: Listener, crew: Crew) -> bool:
    """Nobody comes to accept, a process for each few connections, or CPUs that are busy with it."""
    if not each.is_pressure or each.refuses:
        return False
    if each.cause == "app-cpu":
        return not each.pids or bool(each.pids & crew.pids)
    return each.cause in (*QUEUES, "connection-churn") and each.subject == place(listener)


def _crew(report: Report, listener: Listener) -> Optional[Crew]:
    """None where they stay, or what they do is not known, or mostly what requests ask for."""
    accepted = {int(pid): n for pid, n in (listener.accepted_by or {}).items() if n}
    ended = {pid: n for pid, n in accepted.items() if pid not in (listener.pids or ())}
    is_most = sum(ended.values()) >= ACCOUNTED_FOR_MIN * sum(accepted.values())
    starts = max(report.starts or (), key=lambda row: row.started, default=None)
    # Of a reload no more end than are there afterwards.
    is_again = len(ended) > len(listener.pids or ())
    if len(ended) < SLOW_REQUESTS_MIN or not is_again or not is_most or starts is None:
        return None
    # What a connection itself costs outside of requests would count as starting and ending.
    if sum(ended.values()) > RECYCLED_CONNECTIONS_MAX * len(ended):
        return None
    pids = frozenset(accepted) | frozenset(listener.pids or ())
    comms = {each.comm for each in report.targets if each.pid in pids}
    all_started = sum(row.started for row in report.starts or ())
    if starts.comm not in comms or starts.started < ACCOUNTED_FOR_MIN * all_started:
        return None
    brief_us = _brief_us(report.time, report.window.duration_s)
    requests_us = _requests_us(report, frozenset(accepted))
    if brief_us - requests_us <= requests_us:
        return None
    return Crew(
        starts.comm,
        pids,
        len(ended),
        sum(ended.values()),
        starts.started,
        brief_us - requests_us,
        requests_us,
    )


def _brief_us(time: Optional[Time], duration_s: float) -> float:
    """What threads that came or went in the window did but sleep; 0 where it is not known."""
    if time is None or not lists_the_busiest(time, duration_s):
        return 0.0
    spent_us = 1e6 * time.total_s * sum(time.total.get(name, 0.0) for name in _STARTING)
    return max(0.0, spent_us - stayed_us(time, duration_s, _STARTING))


def _requests_us(report: Report, pids: FrozenSet[int]) -> float:
    """From the first receive call to the reply."""
    rows = [row for row in report.requests.served_by or () if row.pid in pids]
    each_us = [(row.count, row.stages_mean_us) for row in rows]
    return sum(
        n * ((mean.recv or 0.0) + (mean.app or 0.0) + (mean.send or 0.0)) for n, mean in each_us
    )


def _suspect(report: Report, listener: Listener, crew: Crew, caused: Sequence[Suspect]) -> Suspect:
    worst = max(caused, key=lambda each: (each.cause in QUEUES, harm.rank(each), each.share_pct))
    many = f"{crew.accepted / crew.ended:,.1f}".removesuffix(".0")
    return replace(
        worst,
        cause=CAUSE,
        name=f"{CAUSE}:recycled:{place(listener)}",
        subject=place(listener),
        headline=f"processes of {crew.comm} end after {many} connections each, and others are "
        "started in their place",
        evidence=(*_facts(report, crew), *worst.evidence),
        actions=choice.recycled(report, crew.pids, crew.comm),
        overloads=False,
        pids=crew.pids,
        waits_for=frozenset(),
    )


def _facts(report: Report, crew: Crew) -> Tuple[Evidence, ...]:
    per_s = crew.started / report.window.duration_s
    ended = f"{count(crew.ended, 'process', 'processes')} of {crew.comm} ended"
    started = f"{crew.started:,} were started, {per_s:,.1f} a second"
    says = f"{ended} after {count(crew.accepted, 'connection')}; {started}"
    took = (
        f"they spent {duration(crew.starting_us)} on starting and ending, or waiting for a CPU, "
        f"and {duration(crew.requests_us)} on requests"
    )
    return (
        evidence("recycled", crew.ended, "processes", says, SLOW_REQUESTS_MIN),
        evidence("starting_us", crew.starting_us, "µs", took, crew.requests_us),
    )
