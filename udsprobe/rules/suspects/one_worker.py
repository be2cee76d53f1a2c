"""One of several workers whose clients suffer, where all requests together do not tell.

Who is full, or sleeps in each request, replies seldom: among those of the others its requests are
few. But the clients whose connections it has are bound to it, and queue there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import FrozenSet, Iterator, List

from udsprobe.model.harm import Harm
from udsprobe.model.report import Report, ServedBy
from udsprobe.rules.accounts.request_time import RequestTime
from udsprobe.rules.accounts.service import Service, of_one_process, processes_of
from udsprobe.rules.harm import SLOW
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import (
    BOUND_QUEUE_SHARE_MIN,
    SLOW_REQUESTS_MIN,
    TAIL_TIMES_MEDIAN,
    TAIL_US_MIN,
)
from udsprobe.rules.wording import duration


def slow_workers(report: Report, service: Service, late: FrozenSet[int]) -> List[Service]:
    """Those of its processes whose requests take far longer than those of all, each as one.

    Args:
        late: processes whose connections wait to be accepted by them alone.
    """
    return [of_one_process(report, row) for row in _slow(report, service, late)]


def is_queued_at(time: RequestTime) -> bool:
    """Its requests wait for each other: it is no session of its own that asks for more."""
    return time.queue_us >= BOUND_QUEUE_SHARE_MIN * time.total_us > 0


def is_most_of(worker: Service, whole: Service) -> bool:
    """Of the time that all requests take."""
    return 2 * worker.count * _mean_us(worker) >= whole.count * _mean_us(whole)


def of_worker(each: Suspect, worker: Service, whole: Service, report: Report) -> Suspect:
    """With the words of who suffers: the clients of this worker."""
    if not each.is_pressure:
        return each
    (pid,) = worker.pids or (0,)
    says = (
        f"requests of {worker.name} {pid} take {duration(_mean_us(worker))} on average, those of "
        f"all {len(_serving(report, whole)):,} processes {duration(_mean_us(whole))}"
    )
    share = worker.count / whole.count if whole.count else 0.0
    return replace(
        each,
        harm=Harm(SLOW, 100 * share, worker.count, None, says),
        actions=(*each.actions, *remedies("one-worker")),
    )


def _slow(report: Report, service: Service, late: FrozenSet[int]) -> Iterator[ServedBy]:
    rows = _serving(report, service)
    many_us = TAIL_TIMES_MEDIAN * _mean_us(service)
    for row in rows if len(rows) > 1 else ():
        least_us = TAIL_US_MIN if row.pid in late else max(TAIL_US_MIN, many_us)
        if row.count >= SLOW_REQUESTS_MIN and (row.latency_us.mean or 0.0) >= least_us:
            yield row


def _serving(report: Report, service: Service) -> List[ServedBy]:
    """Its processes that replied."""
    return [row for row in processes_of(report, service) if row.count]


def _mean_us(service: Service) -> float:
    return (service.latency.mean if service.latency is not None else None) or 0.0
