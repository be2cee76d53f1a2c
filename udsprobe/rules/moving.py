"""How long moving the bytes of a request takes, to the end of its reply.

A request ends when the send call that starts its reply returns. A reply that does not fit into one
call is moved on after that, by the same threads; no stage contains this time.
"""

from __future__ import annotations

from dataclasses import dataclass

from udsprobe.model.report import Report
from udsprobe.rules.request_time import RequestTime
from udsprobe.rules.service import Service, serving_time
from udsprobe.rules.thresholds import SEND_BUFFER_DEFAULT_BYTES

_US_PER_S = 1e6


@dataclass(frozen=True)
class Moving:
    """Of a request on average, its whole reply included.

    Attributes:
        mean_us: in which its bytes were moved.
        share: the part of the time that it takes to the end of the reply.
        moving_s: of all requests: thread time in socket and poller calls.
    """

    mean_us: float
    share: float
    moving_s: float


def moving(report: Report, service: Service, time: RequestTime) -> Moving:
    """Threads that move bytes after the request have it in their own time."""
    moving_s = sum(
        (t.share.get("sys_socket", 0.0) + t.share.get("sys_poll", 0.0)) * t.observed_s
        for t in serving_time(service)
    )
    inside_us, whole_us = time.mean_us("transport"), time.total_us / max(time.count, 1)
    after_us = 0.0
    if time.count and sent_each(report, service) >= SEND_BUFFER_DEFAULT_BYTES:
        after_us = max(0.0, moving_s * _US_PER_S / time.count - inside_us)
    whole_us += after_us
    share = (inside_us + after_us) / whole_us if whole_us else 0.0
    return Moving(inside_us + after_us, share, moving_s)


def sent_each(report: Report, service: Service) -> float:
    """Bytes of a reply, on average over the connections that are listed."""
    rows = [
        row
        for row in report.connections or []
        if row.role == "served" and (service.pids is None or row.pid in service.pids)
    ]
    replies = sum(row.requests or 0 for row in rows)
    return sum(row.bytes_out or 0 for row in rows) / replies if replies else 0.0
