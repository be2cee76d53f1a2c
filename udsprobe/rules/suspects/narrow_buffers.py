"""Send buffers that a program made so small that its replies stop many times on their way.

An event loop sleeps in no send call for it: it writes what fits, gets EAGAIN or a part, and waits
in its poller for room. The reader is as quick as can be, and each stop costs a wake-up; over
TCP on one host, where not two packets fit, a delayed acknowledgement.
"""

from __future__ import annotations

from typing import List, Tuple

from udsprobe.model.report import Connection, Evidence, Report
from udsprobe.rules.peers.connecting import is_of_this_host
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.buffers import bytes_per_request
from udsprobe.rules.suspects.suspect import CRITICAL, Suspect
from udsprobe.rules.thresholds import (
    DELAYED_ACK_US,
    LOOPBACK_SEGMENT_BYTES,
    REQUESTS_MIN,
    SEND_BUFFER_DEFAULT_BYTES,
    SLOW_REQUESTS_MIN,
    WAIT_MEAN_US_MIN,
    WAKE_UP_US_MAX,
)
from udsprobe.rules.wording import count, duration, evidence


def narrow_buffer_suspects(report: Report) -> List[Suspect]:
    """One suspect for all connections whose buffer stops their replies; the worst is its subject.

    Blocking senders are found by the time that they sleep in their calls instead.
    """
    found = [row for row in report.connections or [] if _is_narrow(row)]
    requests = sum(row.requests or 0 for row in found)
    if requests < SLOW_REQUESTS_MIN:
        return []
    worst = max(found, key=stopped_us)
    cost_us = stopped_us(worst)
    if cost_us < WAIT_MEAN_US_MIN or (requests < REQUESTS_MIN and cost_us < DELAYED_ACK_US):
        return []
    return [_suspect(report, worst, cost_us, requests)]


def stopped_us(row: Connection) -> float:
    """What the stops of one reply cost, µs: their number by what one of them costs."""
    stops, each_us = _stops(row)
    return stops * each_us


def _stops(row: Connection) -> Tuple[float, float]:
    size = row.send_buffer_bytes or 1
    if (
        row.transport == "tcp"
        and is_of_this_host(row.local or "")
        and size < 2 * LOOPBACK_SEGMENT_BYTES
    ):
        return bytes_per_request(row) // max(size, LOOPBACK_SEGMENT_BYTES), DELAYED_ACK_US
    return bytes_per_request(row) // size, WAKE_UP_US_MAX


def _is_narrow(row: Connection) -> bool:
    if row.role != "served" or not row.send_buffer_is_fixed or not row.send_buffer_bytes:
        return False
    if row.send_buffer_bytes >= SEND_BUFFER_DEFAULT_BYTES:
        return False
    blocked = row.send_blocked
    return blocked is not None and blocked.eagain > 0 and not blocked.count


def _suspect(report: Report, row: Connection, cost_us: float, requests: int) -> Suspect:
    latency = report.requests.served.latency_us if report.requests.served is not None else None
    mean_us = (latency.mean if latency is not None else None) or 0.0
    needed, size = bytes_per_request(row), row.send_buffer_bytes or 0
    subject = f"{row.transport}:{row.local}"
    return Suspect(
        cause="send-blocked",
        name=f"send-blocked:{subject}",
        severity=CRITICAL,
        is_pressure=True,
        share_pct=100 * cost_us / (cost_us + mean_us),
        subject=subject,
        headline=f"replies of {needed:,.0f} bytes stop {_times(row)} on their way: the program "
        f"set its send buffer (SO_SNDBUF) to {size:,} bytes",
        evidence=_evidence(row, cost_us, requests),
        actions=choice.send_buffer(report, needed),
        seen=requests,
    )


def _times(row: Connection) -> str:
    stops = int(_stops(row)[0])
    return "once" if stops == 1 else f"{stops:,} times"


def _evidence(row: Connection, cost_us: float, requests: int) -> Tuple[Evidence, ...]:
    needed, size = bytes_per_request(row), row.send_buffer_bytes or 0
    eagain = row.send_blocked.eagain if row.send_blocked is not None else 0
    each_us = _stops(row)[1]
    why = "a wake-up" if each_us == WAKE_UP_US_MAX else "an acknowledgement that may be delayed"
    cost = f"up to {duration(cost_us)} per reply: each stop waits for {why}, {duration(each_us)}"
    return (
        evidence("stopped_us", cost_us, "µs", cost, WAIT_MEAN_US_MIN),
        evidence(
            "send_buffer_bytes", size, "bytes", f"{needed:,.0f} bytes per reply, {size:,} fit"
        ),
        evidence("send_eagain", eagain, "calls", f"{count(eagain, 'send call')} found no room"),
        evidence("requests", requests, "requests", f"over {count(requests, 'request')}"),
    )
