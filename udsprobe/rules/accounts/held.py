"""How long messages of a service wait in TCP because of Nagle's algorithm, a request.

A reply that is held is not in the time of its request: that ended with the send call that began
it. A question to an upstream that is held is: its answer comes so much later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from udsprobe.model.report import Connection, Report
from udsprobe.rules.accounts.service import Service
from udsprobe.rules.thresholds import HELD_SENDS_SHARE_MIN, REQUESTS_MIN


@dataclass(frozen=True)
class Held:
    """What is known from the connections that are listed.

    Attributes:
        role: `served`: replies are held; `upstream`: the service's own requests.
        rows: connections on which this happens.
        sends: send calls that left bytes to the algorithm; requests: on all connections of the
            role, held or not, as `requests` in `sends` may be on few of them.
        mean_us: of a request that the service serves, so long or longer.
        whole_us: that request with all that is held of its reply.
    """

    role: str
    rows: Tuple[Connection, ...]
    sends: int
    requests: int
    mean_us: float
    whole_us: float

    @property
    def share(self) -> float:
        """The part of the whole in which bytes were held."""
        return min(1.0, self.mean_us / self.whole_us) if self.whole_us else 0.0

    @property
    def is_usual(self) -> bool:
        """It happens again and again."""
        return self.sends >= max(REQUESTS_MIN, HELD_SENDS_SHARE_MIN * self.requests)


def held(report: Report, service: Service, role: str) -> Held:
    """In the window."""
    rows = [row for row in report.connections or () if _is_of(row, service, role)]
    requests = sum(row.requests or 0 for row in rows)
    each_us = sum(row.held_us or 0.0 for row in rows) / requests if requests else 0.0
    request_us = service.total_us / service.count if service.count else 0.0
    if role == "served":
        mean_us, whole_us = each_us, request_us + each_us
    else:
        asked = sum(row.count for row in service.upstream)
        mean_us = each_us * asked / service.count if service.count else 0.0
        whole_us = request_us
    found = tuple(row for row in rows if row.sends_held)
    sends = sum(row.sends_held or 0 for row in found)
    return Held(role, found, sends, requests, mean_us, whole_us)


def of_service(report: Report, service: Service) -> Tuple[Held, Held]:
    """Replies, and its own requests."""
    return held(report, service, "served"), held(report, service, "upstream")


def _is_of(row: Connection, service: Service, role: str) -> bool:
    return row.role == role and (service.pids is None or row.pid in service.pids)
