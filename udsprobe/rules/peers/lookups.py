"""Names that are looked up for each request, where that is no wait for the name server alone.

Who asks by a pool of threads, as Node's getaddrinfo() does, queues for these; and answers are seen
on connected sockets only. A resolver in a loop (nginx's) asks once for all requests that want the
same name: one question is outstanding, and many wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from udsprobe.model.report import Evidence, Report, Upstream
from udsprobe.rules.thresholds import ACCOUNTED_FOR_MIN, LOOKUPS_PER_REQUEST_MIN
from udsprobe.rules.wording import evidence, is_name_server, place

_USUAL_PORT = ":53"  # Of name servers (RFC 1035, 4.2.1), also where no question was seen.


@dataclass(frozen=True)
class Lookups:
    """`where`: `udp:127.0.0.53:53`, who is asked most. `per_request`: connects to name servers."""

    where: str
    calls: int
    per_request: float

    def fact(self) -> Evidence:
        """For the verdict."""
        says = f"{self.calls:,} connects to {self.where}, a name server, "
        says += f"{self.per_request:.1f} for each request"
        unit = "per request"
        return evidence("lookups", self.per_request, unit, says, LOOKUPS_PER_REQUEST_MIN)


def shared_us(slow_us: Optional[float], upstream: Sequence[Upstream], polled_us: float) -> float:
    """What of the time in a poller, with no own question outstanding, is a wait for another one's.

    All, where some requests are slow and take as long as the name server's answers.

    Args:
        slow_us: what requests take that are slow, None where none are. upstream: whom their
            service asks. polled_us: all requests together.
    """
    asked = (row.latency_us.mean for row in upstream if is_name_server(place(row)))
    answer_us = max((mean_us for mean_us in asked if mean_us is not None), default=0.0)
    if slow_us is None or not answer_us:
        return 0.0
    is_alike = ACCOUNTED_FOR_MIN * max(slow_us, answer_us) <= min(slow_us, answer_us)
    return polled_us if is_alike else 0.0


def lookups(report: Report, requests: int) -> Optional[Lookups]:
    """None where not each second request looks a name up, or it is not measured."""
    asked = {place(row) for row in report.requests.upstream or ()}
    rows = [
        row
        for row in report.connects or []
        if is_name_server(place(row)) and (row.address.endswith(_USUAL_PORT) or place(row) in asked)
    ]
    calls = sum(row.calls for row in rows)
    if not requests or calls < LOOKUPS_PER_REQUEST_MIN * requests:
        return None
    most = max(rows, key=lambda row: row.calls)
    return Lookups(place(most), calls, calls / requests)
