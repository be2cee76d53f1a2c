"""Send buffers that stay full because the reader does not drain them."""

from __future__ import annotations

from math import inf
from typing import List, Optional, Tuple

from udsprobe.model.report import Action, Connection, Evidence, Report
from udsprobe.rules.suspect import CRITICAL, Suspect
from udsprobe.rules.thresholds import (
    BUFFER_DRAIN_S_MIN,
    BUFFER_FILL_MIN,
    SEND_BLOCKED_SHARE_MIN,
    TCP_BUFFER_FILL_MIN,
)
from udsprobe.rules.wording import count, duration, evidence, percent


def buffer_suspects(report: Report) -> List[Suspect]:
    """One suspect for all connections whose reader does not keep up; the worst is its subject."""
    stuck = [c for c in report.connections or [] if is_stuck(report, c)]
    if not stuck:
        return []
    worst = max(stuck, key=lambda c: (fill(c), c.send_queue_bytes or 0))
    others = len(stuck) - 1
    more = f", and {count(others, 'more connection')} like it" if others else ""
    return [
        Suspect(
            cause="send-blocked",
            name=f"send-blocked:{reader(worst)}",
            severity=CRITICAL,
            is_pressure=True,
            share_pct=100 * len(stuck) / max(report.connections_total or 1, len(stuck)),
            subject=reader(worst),
            headline=f"{reader(worst)} does not read: {worst.send_queue_bytes:,} of "
            f"{worst.send_buffer_bytes:,} bytes of buffer are queued to it{more}",
            evidence=tuple(_evidence(report, worst)),
            actions=_actions(worst),
            seen=sum((c.requests or 0) + 1 for c in stuck),
            overloads=any(_threads_sleep(report, c) for c in stuck),
        )
    ]


def is_stuck(report: Report, row: Connection) -> bool:
    """Its buffer is full enough to stop the sender, and takes its reader long to empty.

    Loops that write what fits and wait for room see no EAGAIN and sleep in no
    send call; a queue found full says it all, for a reader that keeps up
    leaves one for under a millisecond.
    """
    return fill(row) >= fill_min(row) and drain_s(report, row) >= BUFFER_DRAIN_S_MIN


def fill(row: Connection) -> float:
    """Part of its send buffer in use."""
    if not row.send_buffer_bytes or row.send_queue_bytes is None:
        return 0.0
    return row.send_queue_bytes / row.send_buffer_bytes


def fill_min(row: Connection) -> float:
    """Below that a sender is not stopped: it has everything in the buffer, or is woken."""
    return TCP_BUFFER_FILL_MIN if row.transport == "tcp" else BUFFER_FILL_MIN


def drain_s(report: Report, row: Connection) -> float:
    """How long the reader takes for one buffer at the rate of the window."""
    rate = (row.bytes_out or 0) / report.window.duration_s if report.window.duration_s else 0.0
    return (row.send_buffer_bytes or 0) / rate if rate else inf


def readers_keep_up(report: Report) -> bool:
    """Those who let senders sleep empty their buffers quickly: senders are just faster."""
    waited = _waited(report)
    keeping_up = all(drain_s(report, row) < BUFFER_DRAIN_S_MIN for row in waited)
    return bool(waited) and keeping_up and binding_buffer(report) is None


def binding_buffer(report: Report) -> Optional[Connection]:
    """A connection whose program set a send buffer that its replies do not fit into."""
    bound = [
        row
        for row in _waited(report)
        if row.send_buffer_is_fixed and bytes_per_request(row) > (row.send_buffer_bytes or 0)
    ]
    return max(bound, key=bytes_per_request, default=None)


def bytes_per_request(row: Connection) -> float:
    """Sent for each request."""
    return (row.bytes_out or 0) / row.requests if row.requests else 0.0


def _waited(report: Report) -> List[Connection]:
    rows = report.connections or []
    return [row for row in rows if row.send_blocked is not None and row.send_blocked.count]


def larger_buffer(report: Report, needed: float) -> Action:
    """What to do about a send buffer that a program set for replies of `needed` bytes."""
    limits = [n.wmem_max for n in report.namespaces or [] if n.wmem_max is not None]
    do = f"leave SO_SNDBUF out, or set {needed:.0f} (the kernel doubles it)"
    if limits and needed > min(limits):
        do += f" after sysctl -w net.core.wmem_max={needed:.0f}"
    return Action(do, "the kernel grows TCP buffers by itself, unless a program sets their size")


def reader(row: Connection) -> str:
    """Who reads, or should: `redis-cli 4711`, `the peer of unix:/run/app.sock`."""
    peer = row.peer
    if peer is not None and peer.pid:
        return f"{peer.comm} {peer.pid}" if peer.comm else f"pid {peer.pid}"
    if peer is not None and peer.address and row.transport != "unix":
        return f"{row.transport}:{peer.address}"
    return f"the peer of {row.transport}:{row.local}" if row.local else "the peer"


def _threads_sleep(report: Report, row: Connection) -> bool:
    threads = report.time.threads if report.time is not None else []
    return any(
        t.pid == row.pid and t.share.get("blocked_send", 0.0) >= SEND_BLOCKED_SHARE_MIN
        for t in threads
    )


def _evidence(report: Report, row: Connection) -> List[Evidence]:
    says = f"the send buffer is {percent(fill(row))} full"
    facts = [evidence("send_buffer_fill", fill(row), "of 1", says, fill_min(row))]
    takes_s = drain_s(report, row)
    if takes_s == inf:
        facts.append(evidence("bytes_out", 0, "bytes", "nothing could be sent in the window"))
    else:
        says = f"the reader takes {duration(takes_s * 1e6)} for one buffer"
        facts.append(evidence("buffer_drain_s", takes_s, "s", says, BUFFER_DRAIN_S_MIN))
    blocked = row.send_blocked
    if blocked is not None and blocked.eagain:
        says = f"{count(blocked.eagain, 'send call')} found no room (EAGAIN)"
        facts.append(evidence("send_eagain", blocked.eagain, "calls", says))
    if blocked is not None and blocked.count:
        mean_us = blocked.wait_us.mean or 0.0
        says = f"{count(blocked.count, 'send call')} slept {duration(mean_us)} in the mean"
        facts.append(evidence("send_blocked", blocked.count, "calls", says))
    return facts


def _actions(row: Connection) -> Tuple[Action, ...]:
    why = "a larger buffer only takes longer to fill; the reader has to read"
    if row.peer is not None and row.peer.pid:
        return (Action(f"udsprobe attach --pid {row.peer.pid}", f"shows what it does: {why}"),)
    return (Action("find the reader: ss -xp or ss -tnp", why),)
