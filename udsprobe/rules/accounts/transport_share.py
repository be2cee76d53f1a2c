"""How much of a request the transport is, and what a free one would save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from udsprobe.model.report import Report
from udsprobe.rules.accounts.held import of_service
from udsprobe.rules.accounts.request_time import RequestTime
from udsprobe.rules.accounts.saturation import is_busy_for_nobody, there_at_once
from udsprobe.rules.accounts.service import Service


@dataclass(frozen=True)
class TransportShare:
    """Both in % of served-request time; None when it was not measured.

    Attributes:
        share_pct: receive and send calls and delivery; replies that Nagle's algorithm holds are
            on their way as well, after the request.
        max_gain_pct: these, and the other system calls on sockets and pollers
            that come with each request: Amdahl's bound of what a transport
            that costs nothing would save.
    """

    share_pct: Optional[float]
    max_gain_pct: Optional[float]


NOT_MEASURED = TransportShare(None, None)


def transport_share(service: Service, time: RequestTime, report: Report) -> TransportShare:
    """Of the requests of the window."""
    if not time.count or not time.total_us:
        return NOT_MEASURED
    replies, questions = (each.mean_us * time.count for each in of_service(report, service))
    total_us = time.total_us + replies
    share = min(1.0, (time.sum_us("transport") + replies + questions) / total_us)
    around_us = max(0.0, _socket_cpu_us(report) - _in_stages_us(service))
    if is_busy_for_nobody(service, time):
        around_us *= there_at_once(service, time)  # a loop polls between requests, too
    gain = min(1.0, share + min(around_us, time.sum_us("cpu")) / total_us)
    return TransportShare(round(100 * share, 2), round(100 * gain, 2))


def _socket_cpu_us(report: Report) -> float:
    """CPU time of all system calls on sockets and pollers, io_uring_enter among them."""
    return sum(row.cpu_us or 0.0 for row in report.syscalls or [])


def _in_stages_us(service: Service) -> float:
    return service.stage_sums_us.get("recv", 0.0) + service.stage_sums_us.get("send", 0.0)
