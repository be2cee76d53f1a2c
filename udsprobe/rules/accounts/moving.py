"""How long moving the bytes of a request takes, to the end of its reply.

A request ends when the send call that starts its reply returns. A reply that does not fit into one
call is moved on after that, by the same threads; no stage contains this time.
"""

from __future__ import annotations

from dataclasses import dataclass

from udsprobe.model.report import Report, ThreadTime
from udsprobe.rules.accounts.request_time import RequestTime
from udsprobe.rules.accounts.service import ON_CPU, Service, serving_time
from udsprobe.rules.thresholds import SEND_BUFFER_DEFAULT_BYTES

_US_PER_S = 1e6
_MOVES = ("sys_socket", "sys_poll")


@dataclass(frozen=True)
class Moving:
    """Of a request on average, its whole reply included.

    Attributes:
        mean_us: in which its bytes were moved.
        whole_us: from its first byte to the end of its reply, as far as threads work for that.
        moving_s: of all requests: thread time in socket and poller calls.
    """

    mean_us: float
    whole_us: float
    moving_s: float

    @property
    def share(self) -> float:
        """The part of the whole in which bytes were moved."""
        return self.mean_us / self.whole_us if self.whole_us else 0.0

    def share_of(self, us: float) -> float:
        """The part of the whole that something in the request takes."""
        return us / self.whole_us if self.whole_us else 0.0


def moving(report: Report, service: Service, time: RequestTime) -> Moving:
    """Threads that move bytes after the request have it in their own time."""
    rows = serving_time(service)
    moving_s = sum(_moved_s(t) for t in rows)
    inside_us, whole_us = time.mean_us("transport"), time.total_us / max(time.count, 1)
    after_us = 0.0
    if time.count and sent_each(report, service) >= SEND_BUFFER_DEFAULT_BYTES:
        own_s = sum(_moved_s(t) + _own_runq_s(service, t) for t in rows)
        after_us = max(0.0, own_s * _US_PER_S / time.count - inside_us)
    return Moving(inside_us + after_us, whole_us + after_us, moving_s)


def _moved_s(thread: ThreadTime) -> float:
    return thread.observed_s * sum(thread.share.get(name, 0.0) for name in _MOVES)


def _own_runq_s(service: Service, thread: ThreadTime) -> float:
    """Of its waits for a CPU that its own side had, the part that is for moving bytes."""
    waited_s = thread.share.get("runq", 0.0) * thread.observed_s * (1 - service.foreign_runq)
    ran_s = thread.observed_s * sum(thread.share.get(name, 0.0) for name in ON_CPU)
    return waited_s * _moved_s(thread) / ran_s if ran_s else 0.0


def sent_each(report: Report, service: Service) -> float:
    """Bytes of a reply, on average over the connections that are listed."""
    rows = [
        row
        for row in report.connections or []
        if row.role == "served" and (service.pids is None or row.pid in service.pids)
    ]
    replies = sum(row.requests or 0 for row in rows)
    return sum(row.bytes_out or 0 for row in rows) / replies if replies else 0.0
