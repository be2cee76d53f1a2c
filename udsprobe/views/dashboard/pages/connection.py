"""What a connection's row rests on: both queues against their limits, and who is behind."""

from __future__ import annotations

from typing import List, Optional

from udsprobe.model.report import Connection, Report
from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.dashboard.pages.lines import LABEL, Fact, plain, rests_on, rule, section
from udsprobe.views.dashboard.state import connection_keys
from udsprobe.views.dashboard.table import Line
from udsprobe.views.fields import bars, cells, numbers
from udsprobe.views.fields.escape import visible

_BAR = 40


def connection_page(key: object, frame: Frame, width: int) -> List[Line]:
    """One connection; says so when it is not among the busiest any more."""
    rows = connection_keys(frame.window.connections or [])
    row = next((row for known, row in rows if known == key), None)
    if row is None:
        return [plain("this connection is no longer among the busiest")]
    return [
        *section("connection", _facts(row, frame.window), width),
        *_queue("send queue", row.send_queue_bytes, row.send_queue_max_bytes, _sending(row)),
        *_queue("receive queue", row.recv_queue_bytes, row.recv_queue_max_bytes, _receiving(row)),
        *section("sending", _blocked(row), width),
        *rests_on(frame.window, ("connections",), width),
    ]


def _facts(row: Connection, report: Report) -> List[Fact]:
    comms = cells.comms_of(report.targets)
    address = row.peer.address if row.peer is not None else None
    return [
        ("transport", visible(row.transport)),
        ("target", cells.process(row.pid, comms.get(row.pid))),
        ("local", visible(row.local)),
        ("peer", cells.peer(row.peer)),
        ("peer's address", visible(address) if address else numbers.NOT_MEASURED),
        ("role", visible(row.role)),
        ("requests", numbers.count(row.requests, 15)),
        ("bytes in, out", f"{numbers.count(row.bytes_in, 20)}, {numbers.count(row.bytes_out, 20)}"),
    ]


class _Limit:
    """A buffer's limit, and whether the application set it."""

    def __init__(self, size: Optional[int], is_fixed: Optional[bool], option: str) -> None:
        self.size = size
        grows = {True: f"set with {option}, does not grow", False: "set by the kernel", None: ""}
        self.says = grows[is_fixed]


def _sending(row: Connection) -> _Limit:
    return _Limit(row.send_buffer_bytes, row.send_buffer_is_fixed, "SO_SNDBUF")


def _receiving(row: Connection) -> _Limit:
    return _Limit(row.recv_buffer_bytes, row.recv_buffer_is_fixed, "SO_RCVBUF")


def _queue(name: str, now: Optional[int], most: Optional[int], limit: _Limit) -> List[Line]:
    bar = bars.limit_bar(now, limit.size, _BAR, peak=most)
    told = f"{numbers.count(limit.size, 15)} bytes" + (f", {limit.says}" if limit.says else "")
    return [
        rule(name),
        plain(f"{'now':<{LABEL}} {numbers.count(now, 15):>15}  {bar}"),
        plain(f"{'most since the start':<{LABEL}} {numbers.count(most, 15):>15}"),
        plain(f"{'limit with overhead':<{LABEL}} {told}"),
        plain(""),
    ]


def _blocked(row: Connection) -> List[Fact]:
    blocked = row.send_blocked
    stalled = numbers.NOT_MEASURED
    if row.stalled_us is not None:
        stalled = numbers.spaced(numbers.duration(row.stalled_us))
    if blocked is None:
        return [("peer takes nothing for", stalled)]
    slept = numbers.count(blocked.count, 15)
    if blocked.count and blocked.wait_us is not None:
        slept += f", {numbers.spaced(numbers.duration(blocked.wait_us.mean))} on average"
    return [
        ("sends that slept", slept),
        ("sends with EAGAIN", numbers.count(blocked.eagain, 15)),
        ("sends held by Nagle", numbers.count(row.sends_held, 15)),
        ("peer takes nothing for", stalled),
    ]
