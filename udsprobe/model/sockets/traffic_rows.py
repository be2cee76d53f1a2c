"""What the targets' sockets moved in a window, where no system call is seen."""

from __future__ import annotations

from typing import List, Optional

from udsprobe.model.growth import by_name, growth
from udsprobe.model.report import Traffic
from udsprobe.sample import Sample, TrafficCounts


def traffic_rows(first: Sample, last: Sample) -> Optional[List[Traffic]]:
    """One row for each kind of socket that moved anything, most bytes first."""
    if first.traffic is None or last.traffic is None:
        return None
    before = {each.endpoint: each for each in first.traffic}
    rows = [_row(each, before.get(each.endpoint)) for each in last.traffic]
    moved = [row for row in rows if row.sent_messages or row.received_messages]
    return sorted(moved, key=lambda row: -(row.sent_bytes + row.received_bytes))


def _row(now: TrafficCounts, before: Optional[TrafficCounts]) -> Traffic:
    return Traffic(
        transport=now.endpoint.transport,
        socket_type=now.endpoint.socket_type or "stream",
        **by_name(growth("traffic", now, before), Traffic),
    )
