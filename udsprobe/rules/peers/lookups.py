"""Names that are looked up for each request, where that is no wait for the name server alone.

Who asks by a pool of threads, as Node's getaddrinfo() does, queues for these; and answers are seen
on connected sockets only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from udsprobe.model.report import Evidence, Report
from udsprobe.rules.thresholds import LOOKUPS_PER_REQUEST_MIN
from udsprobe.rules.wording import evidence, is_name_server, place


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


def lookups(report: Report, requests: int) -> Optional[Lookups]:
    """None where not each second request looks a name up, or it is not measured."""
    rows = [row for row in report.connects or [] if is_name_server(place(row))]
    calls = sum(row.calls for row in rows)
    if not requests or calls < LOOKUPS_PER_REQUEST_MIN * requests:
        return None
    most = max(rows, key=lambda row: row.calls)
    return Lookups(place(most), calls, calls / requests)
