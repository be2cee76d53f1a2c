"""Processes that have answered nobody in the window, and what they have been in all the time.

Of a server that hangs since before the observation began no call is seen. What is known: requests
that nobody reads; connections of TCP whose client spoke last; and in what each thread sleeps. Where
a thread waits for its clients, or works, or it cannot be told, nothing is concluded.
"""

from __future__ import annotations

from collections import Counter
from typing import List, Optional, Tuple

from udsprobe.model.report import Report, ServedBy, Waiting, WaitNow
from udsprobe.model.threads.thread_time import busy_share
from udsprobe.rules.thresholds import HUNG_US_MIN, THREAD_BUSY_MIN
from udsprobe.rules.wording import count, duration

UNREAD, BEFORE = "unread", "before"
# For the reply of somebody else.
FOR_OTHERS = ("recv", "connect")
# In these a thread is in the middle of something, whoever its clients are.
AT_WORK = ("file_lock", "disk", "child", "pipe")


def is_at_full_pipe(wait: WaitNow) -> bool:
    """It writes to a pipe, and whoever reads that takes nothing."""
    return wait.kind == "pipe" and wait.call in ("write", "writev")


def left_waiting(row: ServedBy) -> Optional[Tuple[str, Waiting]]:
    """What its clients wait for, for a second or longer: `UNREAD`, or `BEFORE` and no byte since.

    None where it has served somebody, or nobody waits.
    """
    if row.count or row.in_progress.count:
        return None
    for how, waiting in ((UNREAD, row.unread), (BEFORE, row.asked_before)):
        if waiting is not None and (waiting.oldest_us or 0.0) >= HUNG_US_MIN:
            return how, waiting
    return None


def asked_before_words(connections: int, oldest_us: float) -> str:
    """What is known of `BEFORE`."""
    where, age = count(connections, "connection"), duration(oldest_us)
    return f"on {where} the client has spoken last, {age} ago, and no byte has passed since"


def what_stalls(report: Report, row: ServedBy, waits: List[WaitNow], how: str) -> List[WaitNow]:
    """The waits, of one kind, that keep a process from its clients; empty: not known."""
    if _works(report, row.pid):
        return []
    if how == UNREAD and row.unread.count > 1:
        full = _full_pool(waits)
        if full:
            return full
    if any(_may_be_for_clients(each, how) for each in waits):
        return []
    # Of an event loop it is the first thread that counts; the others are those of a pool.
    main = [each for each in waits if each.tid == each.pid]
    if any(_is_at_work(each) or each.kind == "poll" for each in main):
        return main
    found = _most([each for each in waits if _is_at_work(each) or each.kind == "lock"])
    if how == BEFORE and _may_be_of_a_helper(row, found) and _polls_besides(report, row.pid, waits):
        return []
    # It is the loop, or it leaves all work to the others.
    sleeps = [each for each in main if each.kind == "sleep"]
    return [] if found and sleeps else found or sleeps


def _full_pool(waits: List[WaitNow]) -> List[WaitNow]:
    """Its threads, which are all in the middle of the same, while a loop that sleeps leaves it to
    them to read. One of a pool that has no work waits for a lock."""
    found = _most([each for each in waits if _is_at_work(each) or each.kind == "sleep"])
    return found if len(found) > 1 and not any(each.tid == each.pid for each in found) else []


def _is_at_work(wait: WaitNow) -> bool:
    if wait.kind in FOR_OTHERS:
        return wait.connection == "upstream"
    return wait.kind == "send" or wait.kind in AT_WORK


def _may_be_for_clients(wait: WaitNow, how: str) -> bool:
    if wait.kind == "poll":
        return wait.polls_clients is not False
    return how == BEFORE and wait.kind == "recv" and wait.connection != "upstream"


def _may_be_of_a_helper(row: ServedBy, found: List[WaitNow]) -> bool:
    """One thread that sleeps, and several clients that wait: it looks names up for a loop, say."""
    asked = row.asked_before.count if row.asked_before is not None else 0
    return len(found) == 1 < asked


def _polls_besides(report: Report, pid: int, waits: List[WaitNow]) -> bool:
    """A thread goes through its poller again and again, for clients perhaps: none of its sleeps is
    long."""
    asleep = {each.tid for each in waits}
    threads = report.time.threads if report.time is not None else []
    return any(
        each.share.get("blocked_poll", 0.0) + each.share.get("sys_poll", 0.0) > 0
        for each in threads
        if each.pid == pid and each.tid not in asleep
    )


def _works(report: Report, pid: int) -> bool:
    threads = report.time.threads if report.time is not None else []
    return any(busy_share(each.share) >= THREAD_BUSY_MIN for each in threads if each.pid == pid)


def _most(waits: List[WaitNow]) -> List[WaitNow]:
    """Those of the commonest kind: a thread in the background has one of its own."""
    counts = Counter(map(_alike, waits)).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return []
    return [each for each in waits if _alike(each) == counts[0][0]]


def _alike(wait: WaitNow) -> Tuple[str, Optional[str], Optional[str], Optional[str]]:
    return wait.kind, wait.call, wait.lock, wait.peer.address if wait.peer is not None else None
