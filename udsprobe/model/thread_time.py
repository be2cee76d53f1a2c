"""Where the targets' threads spent the window: shares of wall time that sum to 1."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Tuple

from udsprobe.model.counters import grown
from udsprobe.model.report import ThreadTime, Time
from udsprobe.sample import Sample, ThreadActivities

THREADS_SHOWN_MAX = 50
# Waiting for a CPU is being busy without one: the thread has work to do.
BUSY = ("user", "sys_socket", "sys_poll", "sys_other", "runq")


def thread_time(first: Sample, last: Sample) -> Optional[Time]:
    """Shares by thread, busiest first, and of all threads together.

    A thread that was born or ended in the window has the shares of its own
    time; those that ended are only in the total. None when not measured.
    """
    if last.threads is None or last.exited_activity_ns is None:
        return None
    before = {(t.pid, t.tid): t.activity_ns for t in first.threads or ()}
    spent = [(thread, _spent(thread, before)) for thread in last.threads]
    spent = [(thread, times) for thread, times in spent if sum(times.values())]
    rows = [ThreadTime(t.pid, t.tid, t.comm, shares(times)) for t, times in spent]
    rows.sort(key=lambda row: (-busy_share(row.share), row.tid))
    exited = _difference("exited threads", last.exited_activity_ns, first.exited_activity_ns or {})
    gone = _gone(first, {(t.pid, t.tid) for t in last.threads})
    total = _sum([*(times for _, times in spent), exited])
    return Time(
        threads=rows[:THREADS_SHOWN_MAX],
        busiest=rows[0] if rows else None,
        total=shares({name: max(0, ns - gone.get(name, 0)) for name, ns in total.items()}),
    )


def busy_share(share: Mapping[str, float]) -> float:
    """The part of a thread's time in which it had something to do, 0 to 1."""
    return sum(share.get(name, 0.0) for name in BUSY)


def shares(times: Mapping[str, int]) -> Dict[str, float]:
    """ns by activity → parts of their sum; all zero when there was no time."""
    whole = sum(times.values())
    return {name: ns / whole if whole else 0.0 for name, ns in times.items()}


def _spent(
    thread: ThreadActivities, before: Mapping[Tuple[int, int], Mapping[str, int]]
) -> Dict[str, int]:
    earlier = before.get((thread.pid, thread.tid), {})
    if sum(earlier.values()) > sum(thread.activity_ns.values()):
        earlier = {}  # another thread has the number of one that ended
    return _difference(f"thread {thread.tid}", thread.activity_ns, earlier)


def _gone(first: Sample, living: set[Tuple[int, int]]) -> Dict[str, int]:
    """What threads that ended in the window had spent before it: it is in the exited sum."""
    ended = [t.activity_ns for t in first.threads or () if (t.pid, t.tid) not in living]
    return _sum(ended)


def _difference(name: str, last: Mapping[str, int], first: Mapping[str, int]) -> Dict[str, int]:
    return {key: grown(f"{name} {key}", ns, first.get(key, 0)) for key, ns in last.items()}


def _sum(parts: List[Mapping[str, int]]) -> Dict[str, int]:
    total: Dict[str, int] = {}
    for part in parts:
        for name, ns in part.items():
            total[name] = total.get(name, 0) + ns
    return total
