"""Whether what a service does leaves its threads no time for another connection.

A queue is full because of its server only where the server's own work keeps it
busy. Connects that are refused and come again burn CPU too: a thread that waits
for a CPU because of them has time, as soon as they are let in.
"""

from __future__ import annotations

from udsprobe.model.report import Listener, Report
from udsprobe.rules.accounts.cpu_holders import has_too_many_threads, is_limited
from udsprobe.rules.accounts.request_time import app_account, occupation
from udsprobe.rules.accounts.saturation import part_of_host
from udsprobe.rules.accounts.service import ON_CPU, Service, serving_threads, serving_time
from udsprobe.rules.thresholds import THREAD_BUSY_MIN
from udsprobe.rules.turned_away.accept_queue import turned_away


def is_retried(listener: Listener) -> bool:
    """More connects are turned away than accepted: each comes back, and that is no demand."""
    return turned_away(listener) > (listener.accepted or 0)


def has_time(report: Report, service: Service) -> bool:
    """Its threads could take connections, but for the CPU that connects in vain take from them."""
    if is_limited(report) or has_too_many_threads(report):
        return False
    work = max(_own_work(service), _busiest_thread(service), part_of_host(service))
    return work < THREAD_BUSY_MIN


def _own_work(service: Service) -> float:
    """The part of their time in which the serving threads worked, or waited inside a request."""
    spent = occupation(service, app_account(service))
    there_us = max(sum(row.observed_s for row in serving_time(service)), service.duration_s) * 1e6
    if not there_us:
        return 0.0
    return min(1.0, sum(us for name, us in spent.items() if name != "runq") / there_us)


def _busiest_thread(service: Service) -> float:
    """On a CPU; where nothing is served, a loop that never comes back touches no socket either."""
    rows = serving_threads(service) or service.long_lived()
    return max((sum(row.share.get(name, 0.0) for name in ON_CPU) for row in rows), default=0.0)
