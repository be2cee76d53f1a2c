"""Send buffers that stay full because the reader does not drain them."""

from __future__ import annotations

from math import inf
from typing import List, Optional

from udsprobe.model.harm import Harm
from udsprobe.model.report import Connection, Evidence, Finding, Report
from udsprobe.rules.harm import SLOW
from udsprobe.rules.peers.readers import (
    asleep_s,
    busy_s,
    drain_s,
    held_s,
    held_share,
    holds_bytes,
    holds_bytes_far_away,
    is_slow,
    readers_sleep,
    sleeps_over_bytes,
    stopped_share,
    stops_its_sender,
)
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import CRITICAL, INFO, Suspect
from udsprobe.rules.thresholds import (
    BUFFER_DRAIN_S_MIN,
    BUFFER_FILL_MIN,
    HUNG_US_MIN,
    SEND_BLOCKED_SHARE_MIN,
    TCP_BUFFER_FILL_MIN,
)
from udsprobe.rules.wording import count, duration, evidence, percent, process


def buffer_suspects(report: Report) -> List[Suspect]:
    """One suspect for all connections whose reader does not keep up; the worst is its subject."""
    stuck = _stuck(report)
    if not stuck or _harms_itself_only(report, stuck):
        return []
    worst = _worst(stuck)
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
            headline=f"{_headline(report, worst)}{more}",
            evidence=tuple(_evidence(report, worst)),
            actions=choice.reader(worst, reader(worst)),
            seen=sum((c.requests or 0) + 1 for c in stuck),
            overloads=any(_threads_sleep(report, c) for c in stuck),
            harm=_late_replies(report, stuck, worst),
        )
    ]


def slow_reader_findings(report: Report) -> List[Finding]:
    """Readers that are slow for nobody but themselves: downloads by a modem, a film that pauses."""
    stuck = _stuck(report)
    if not stuck or not _harms_itself_only(report, stuck):
        return []
    worst = _worst(stuck)
    well = count(len(_well(report, stuck)), "other connection is", "other connections are")
    says = f"{_late_replies(report, stuck, worst).says}: {_headline(report, worst)}; {well} served"
    facts = _evidence(report, worst)
    actions = list(choice.reader(worst, reader(worst)))
    return [Finding("send-blocked", INFO, reader(worst), says, facts, actions)]


def _stuck(report: Report) -> List[Connection]:
    return [row for row in report.connections or [] if is_stuck(report, row)]


def _worst(stuck: List[Connection]) -> Connection:
    return max(stuck, key=lambda row: (fill(row), row.send_queue_bytes or 0))


def _well(report: Report, stuck: List[Connection]) -> List[Connection]:
    """The connections of clients that have had replies in the window, and read them."""
    rows = [row for row in report.connections or [] if row.role == "served" and row.requests]
    return [row for row in rows if row not in stuck]


def _harms_itself_only(report: Report, stuck: List[Connection]) -> bool:
    """Clients of a loop that goes on with the others meanwhile, which are more.

    Each connection has a buffer of its own: who does not read it keeps nobody from theirs, unless
    a thread sleeps in a send call for it.
    """
    if any(row.role != "served" or _threads_sleep(report, row) for row in stuck):
        return False
    return len(_well(report, stuck)) > len(stuck)


def _late_replies(report: Report, stuck: List[Connection], worst: Connection) -> Harm:
    """Whose replies stop on their way: a request ends where its reply starts, and tells nothing."""
    many = len(stuck)
    share = 100 * many / max(report.connections_total or 1, many)
    stopped = held_share(report, worst)
    how = f"stopped {percent(stopped)} of the time" if stopped else "not read"
    says = f"replies on {count(many, 'connection')} are {how}"
    return Harm(SLOW, share, many, None, says)


def is_stuck(report: Report, row: Connection) -> bool:
    """Its reader slept while the sender was stopped, or takes long for a buffer that is full.

    It is, where it is found so, and while its sender is stopped: a reader that is busy then is
    so with something else than copying. Or it takes nothing at all: what TCP has not got rid of
    for so long, the reader has no room for.
    """
    if sleeps_over_bytes(report, row) or takes_nothing(row):
        return True
    is_full = fill(row) >= fill_min(row) or stops_its_sender(report, row)
    is_full = is_full or holds_bytes_far_away(report, row)
    return is_full and drain_s(report, row) >= BUFFER_DRAIN_S_MIN


def takes_nothing(row: Connection) -> bool:
    """Bytes wait for a TCP reader whose own buffer is full, though their sender goes on."""
    stalled_us = row.stalled_us or 0.0
    return row.transport == "tcp" and bool(row.send_queue_bytes) and stalled_us >= HUNG_US_MIN


def _headline(report: Report, row: Connection) -> str:
    if holds_bytes(report, row):
        does = "sleeps with unread bytes" if sleeps_over_bytes(report, row) else "reads too slowly"
        share = percent(held_share(report, row))
        if not is_stopped(report, row):
            return f"{reader(row)} {does}: its receive window is full {share} of the time"
        return f"{reader(row)} {does}: its sender is stopped {share} of the time"
    return (
        f"{reader(row)} does not read: {row.send_queue_bytes:,} of "
        f"{row.send_buffer_bytes:,} bytes of its sender's buffer are unread"
    )


def fill(row: Connection) -> float:
    """Part of its send buffer in use."""
    if not row.send_buffer_bytes or row.send_queue_bytes is None:
        return 0.0
    return row.send_queue_bytes / row.send_buffer_bytes


def fill_min(row: Connection) -> float:
    """Below that a sender is not stopped: it has everything in the buffer, or is woken."""
    return TCP_BUFFER_FILL_MIN if row.transport == "tcp" else BUFFER_FILL_MIN


def readers_keep_up(report: Report) -> bool:
    """Those who let senders sleep copy all the while: senders are just faster."""
    waited = _waited(report)
    slow = any(is_slow(report, row) for row in waited) or readers_sleep(report, waited)
    return bool(waited) and not slow and binding_buffer(report) is None


def has_stuck_reader(report: Report) -> bool:
    """Somebody does not read; a call that sends to it may not have returned in the window."""
    return any(is_stuck(report, row) for row in report.connections or [])


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


def reader(row: Connection) -> str:
    """Who reads, or should: `redis-cli 4711`, `the peer of unix:/run/app.sock`."""
    peer = row.peer
    if peer is not None and peer.pid:
        return process(peer.pid, peer.comm)
    if peer is not None and peer.address and row.transport != "unix":
        return f"{row.transport}:{peer.address}"
    return f"the peer of {row.transport}:{row.local}" if row.local else "the peer"


def is_stopped(report: Report, row: Connection) -> bool:
    """The sender noticed, and not only its kernel."""
    return 2 * stopped_share(report, row) >= held_share(report, row)


def _threads_sleep(report: Report, row: Connection) -> bool:
    threads = report.time.threads if report.time is not None else []
    return any(
        t.pid == row.pid and t.share.get("blocked_send", 0.0) >= SEND_BLOCKED_SHARE_MIN
        for t in threads
    )


def _evidence(report: Report, row: Connection) -> List[Evidence]:
    sleeps = sleeps_over_bytes(report, row)
    facts = _stops(report, row) if sleeps else []
    says = f"the send buffer is {percent(fill(row))} full"
    least = None if sleeps or holds_bytes(report, row) else fill_min(row)
    facts.append(evidence("send_buffer_fill", fill(row), "of 1", says, least))
    facts += [] if sleeps else _stops(report, row)
    takes_s = drain_s(report, row)
    if takes_s == inf:
        facts.append(evidence("bytes_out", 0, "bytes", "nothing could be sent in the window"))
    else:
        says = f"the reader takes {duration(takes_s * 1e6)} for one buffer"
        least = None if sleeps else BUFFER_DRAIN_S_MIN
        facts.append(evidence("buffer_drain_s", takes_s, "s", says, least))
    blocked = row.send_blocked
    if blocked is not None and blocked.eagain:
        says = f"{count(blocked.eagain, 'send call')} found no room (EAGAIN)"
        facts.append(evidence("send_eagain", blocked.eagain, "calls", says))
    if blocked is not None and blocked.count and blocked.wait_us is not None:
        mean_us = blocked.wait_us.mean or 0.0
        says = f"{count(blocked.count, 'send call')} slept {duration(mean_us)} on average"
        facts.append(evidence("send_blocked", blocked.count, "calls", says))
    return facts


def _stops(report: Report, row: Connection) -> List[Evidence]:
    held = held_s(row)
    if not held:
        return []
    share, asleep, busy = held_share(report, row), asleep_s(report, row), busy_s(report, row)
    what = "its sender was stopped" if is_stopped(report, row) else "its receive window was full"
    says = f"{what} for {duration(held * 1e6)}, {percent(share)} of the window"
    if asleep is None or busy is None:
        says += "; what the reader did meanwhile was not measured"
        return [evidence("stopped_share", share, "of 1", says)]
    slept = (
        f"the reader slept for {duration(asleep * 1e6)} of that or more: it was on a CPU, or "
        f"waited for one, for {duration(busy * 1e6)}"
    )
    least = SEND_BLOCKED_SHARE_MIN if sleeps_over_bytes(report, row) else None
    return [
        evidence("stopped_share", share, "of 1", says, least),
        evidence("reader_asleep_s", asleep, "s", slept),
    ]
