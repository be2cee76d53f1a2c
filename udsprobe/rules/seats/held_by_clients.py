"""Threads that wait for the rest of requests, while others wait for a thread.

A thread of a pool reads one request to its end before it takes another. The queue of the kernel
stays empty: another thread accepts, and hands out what has said something.
"""

from __future__ import annotations

from typing import List, Optional, Tuple

from udsprobe.model.harm import Harm
from udsprobe.model.report import Action, Evidence, Listener, Report
from udsprobe.rules.accounts.request_time import RequestTime
from udsprobe.rules.accounts.service import Service
from udsprobe.rules.harm import SLOW
from udsprobe.rules.peers.kept import served_at
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.processing import occupied_fact
from udsprobe.rules.suspects.suspect import WARNING, Suspect
from udsprobe.rules.thresholds import WAIT_MEAN_US_MIN, WAIT_SHARE_MIN
from udsprobe.rules.turned_away.accept_queue import accepts_late
from udsprobe.rules.wording import duration, evidence, percent, place


def held_by_clients(report: Report, service: Service, time: RequestTime) -> List[Suspect]:
    """One suspect for the service whose threads all wait for clients, or none.

    Where connections wait for accept() that is told with their listener.
    """
    occupied = occupied_fact(service, time)
    if occupied is None or not _waits_for_clients(time) or accepts_late(report, service.pids):
        return []
    listener = _listener(report, service)
    subject = service.name if listener is None else place(listener)
    held = time.occupied * time.share("client")
    return [
        Suspect(
            cause="accept-starved",
            name=f"accept-starved:held-by-clients:{subject}",
            severity=WARNING,
            is_pressure=True,
            share_pct=100 * time.share("client"),
            subject=subject,
            headline=f"clients hold the threads of {_who(service, listener)}, which spend "
            f"{percent(held)} of the time waiting for the rest of requests that are sent slowly",
            evidence=(occupied, _client_fact(time)),
            actions=_actions(report, listener),
            seen=time.count,
            pids=service.pids or frozenset(),
            harm=_harm(time),
        )
    ]


def _who(service: Service, listener: Optional[Listener]) -> str:
    return service.name if listener is None else f"{service.name} at {place(listener)}"


def _waits_for_clients(time: RequestTime) -> bool:
    """That is what requests, and those queued before them, spend their time on."""
    is_long = _queued_mean_us(time) >= WAIT_MEAN_US_MIN
    return is_long and time.share("client") >= WAIT_SHARE_MIN


def _queued_mean_us(time: RequestTime) -> float:
    return time.queue_us / time.count


def _listener(report: Report, service: Service) -> Optional[Listener]:
    """Of those that the service accepts at, the one with most requests."""
    owners = service.pids
    rows = [row for row in report.listeners or () if owners is None or owners & set(row.pids or ())]
    return max(rows, key=lambda row: _requests_at(report, row), default=None)


def _requests_at(report: Report, listener: Listener) -> int:
    return sum(row.requests or 0 for row in served_at(report, listener))


def _client_fact(time: RequestTime) -> Evidence:
    client_us = time.mean_us("client")
    for_rest = f"{duration(client_us)} per request, {percent(time.share('client'))} of its time, "
    return evidence("client_us", client_us, "µs", f"{for_rest}wait for what clients have not sent")


def _actions(report: Report, listener: Optional[Listener]) -> Tuple[Action, ...]:
    """More threads are held as the others are; they help until clients are that many more."""
    more = () if listener is None else choice.seats_taken(report, listener)
    return (*choice.sent_slowly(), *more)


def _harm(time: RequestTime) -> Harm:
    says = f"requests wait {duration(_queued_mean_us(time))} on average for a thread"
    return Harm(SLOW, None, time.count, None, says)
