"""What the reader of a connection did while its sender was stopped for want of room."""

from __future__ import annotations

from math import inf
from typing import Optional, Sequence, Set

from udsprobe.model.report import Connection, Report
from udsprobe.model.threads.thread_time import BUSY
from udsprobe.rules.thresholds import (
    BUFFER_DRAIN_S_MIN,
    LOOPBACK_SEGMENT_BYTES,
    READER_ASLEEP_SHARE_MIN,
    SEND_BLOCKED_SHARE_MIN,
    WAKE_UP_US_MAX,
)

_US_PER_S = 1e6


def stopped_s(row: Connection) -> Optional[float]:
    """How long its senders were stopped; None when not measured."""
    return None if row.stopped_us is None else row.stopped_us / _US_PER_S


def held_s(row: Connection) -> Optional[float]:
    """How long bytes could not go on for want of room; None when not measured.

    The sender was stopped, or TCP's send buffer took all of a reply that the reader had no room
    for: then it went on, and its reply did not.
    """
    known = [us for us in (row.stopped_us, row.window_full_us) if us is not None]
    return max(known) / _US_PER_S if known else None


def held_share(report: Report, row: Connection) -> float:
    """The part of the window."""
    whole_s = report.window.duration_s
    return (held_s(row) or 0.0) / whole_s if whole_s else 0.0


def stopped_share(report: Report, row: Connection) -> float:
    """The part of the window."""
    whole_s = report.window.duration_s
    return (stopped_s(row) or 0.0) / whole_s if whole_s else 0.0


def busy_s(report: Report, row: Connection) -> Optional[float]:
    """How long the process that reads was on a CPU or waited for one; None when not known."""
    pid = row.peer.pid if row.peer is not None else None
    for process in report.time.processes if report.time is not None and pid else []:
        if process.pid == pid:
            return sum(process.share.get(name, 0.0) for name in BUSY) * process.observed_s
    return None if row.reader_busy_us is None else row.reader_busy_us / _US_PER_S


def busy_at_least_s(report: Report, row: Connection) -> Optional[float]:
    """The same, without the part of the window in which nobody looked at it."""
    most_s = busy_s(report, row)
    if most_s is None or row.reader_busy_us is None:
        return most_s
    if row.reader_seen_us is None:
        return None
    return max(0.0, most_s - (report.window.duration_s - row.reader_seen_us / _US_PER_S))


def asleep_s(report: Report, row: Connection) -> Optional[float]:
    """How long, at least, the reader slept while bytes were held; None when not known.

    It cannot have been busy for longer than it was in the whole window, and each stop has
    room for waking up.
    """
    held, busy = held_s(row), busy_s(report, row)
    if held is None or busy is None:
        return None
    return max(0.0, held - _wake_ups(row) * WAKE_UP_US_MAX / _US_PER_S - busy)


def _wake_ups(row: Connection) -> float:
    """A reader whose window is full wakes up for each packet at the most."""
    if not row.window_full_us:
        return row.stops or 0
    return max(row.stops or 0, (row.bytes_out or 0) / LOOPBACK_SEGMENT_BYTES)


def sleeps_over_bytes(report: Report, row: Connection) -> bool:
    """Bytes were held for a good part of the window, and most of that the reader slept."""
    asleep = asleep_s(report, row)
    if asleep is None or not holds_bytes(report, row):
        return False
    return asleep >= READER_ASLEEP_SHARE_MIN * (held_s(row) or 0.0)


def readers_sleep(report: Report, rows: Sequence[Connection]) -> bool:
    """As `sleeps_over_bytes`, of all connections of one thread: those too that have ended, as where
    each reply has one of its own. These are the ones that are left; stops were as long there."""
    stopped = _stopped_by_thread_s(report, {row.pid for row in rows})
    if stopped < SEND_BLOCKED_SHARE_MIN * report.window.duration_s:
        return False
    busy = {row.peer.pid: busy_s(report, row) for row in rows if row.peer is not None}
    busy_of_all = [each for each in busy.values() if each is not None]
    held, woken = sum(held_s(row) or 0.0 for row in rows), sum(map(_wake_ups, rows))
    if len(busy_of_all) < max(1, len(busy)) or not held:
        return False
    waking = stopped * woken / held * WAKE_UP_US_MAX / _US_PER_S
    return stopped - waking - sum(busy_of_all) >= READER_ASLEEP_SHARE_MIN * stopped


def _stopped_by_thread_s(report: Report, pids: Set[int]) -> float:
    """How long the thread slept in send calls that did so longest."""
    threads = report.time.threads if report.time is not None else []
    slept = (t.share.get("blocked_send", 0.0) * t.observed_s for t in threads if t.pid in pids)
    return max(slept, default=0.0)


def holds_bytes(report: Report, row: Connection) -> bool:
    """Its reader has no room for a good part of the window; the sender need not be stopped."""
    if _waits_for_acknowledgements(row):
        return False
    return held_share(report, row) >= SEND_BLOCKED_SHARE_MIN


def holds_bytes_far_away(report: Report, row: Connection) -> bool:
    """The same of a reader that cannot be looked at: it is on another host."""
    return busy_s(report, row) is None and holds_bytes(report, row)


def stops_its_sender(report: Report, row: Connection) -> bool:
    """For a good part of the window, and not because acknowledgements are late."""
    if _waits_for_acknowledgements(row):
        return False
    return stopped_share(report, row) >= SEND_BLOCKED_SHARE_MIN


def _waits_for_acknowledgements(row: Connection) -> bool:
    """Of TCP where not two packets fit: the reader has read, and nobody told the sender."""
    size = row.send_buffer_bytes or 0
    return (
        row.transport == "tcp"
        and bool(row.send_buffer_is_fixed)
        and size < 2 * LOOPBACK_SEGMENT_BYTES
    )


def drain_s(report: Report, row: Connection) -> float:
    """How long the reader takes for one buffer, at the rate while bytes were held.

    Where no stop was seen, at the rate of the window: a loop that sends less at once than there is
    room for waits in its poller all the same. 0 when a call that sends for longer than the window
    gets on.
    """
    stopped, whole_s = held_s(row), report.window.duration_s
    if not row.bytes_out:
        gets_on = row.stalled_us is not None and row.stalled_us < whole_s * _US_PER_S / 2
        return 0.0 if stopped and gets_on else inf
    return (row.send_buffer_bytes or 0) * (stopped or whole_s) / row.bytes_out


def is_slow(report: Report, row: Connection) -> bool:
    """It keeps its sender waiting for longer than copying takes."""
    return sleeps_over_bytes(report, row) or drain_s(report, row) >= BUFFER_DRAIN_S_MIN
