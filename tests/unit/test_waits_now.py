"""Waits that go on: since when, and no more of the other end than is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

from tests.unit.samples import connection, sample, server, thread
from tests.unit.test_model_waits import PID, ended
from udsprobe.model.report import Peer, Waker
from udsprobe.model.threads.waits_now import WAITS_NOW_SHOWN_MAX, WaitsNow, waits_now
from udsprobe.sample import PeerReading, Sample, ThreadActivities, Waiting

S, FUTEX = 1_000_000_000, 0x7F00
END_NS = 100 * S


def asleep(tid: int, lasted_s: float = 41.0, **changes: Any) -> ThreadActivities:
    fixed = replace(
        thread(tid, PID),
        asleep="blocked_lock",
        asleep_since_ns=END_NS - int(lasted_s * S),
        kind="lock",
        call="futex",
        object=FUTEX,
    )
    return replace(fixed, **changes)


def at_end(*threads: ThreadActivities, **changes: Any) -> Sample:
    return sample(**{"monotonic_ns": END_NS, "threads": threads, "waits": (), **changes})


def found(*threads: ThreadActivities, **changes: Any) -> WaitsNow:
    rows = waits_now(at_end(*threads, **changes))
    assert rows is not None
    return rows


def test_a_thread_that_sleeps_for_longer_than_an_interval() -> None:
    rows, total = found(asleep(1), asleep(2, 0.5), thread(3, PID))
    (row,) = rows
    assert total == 1
    assert (row.tid, row.kind, row.call, row.lock) == (1, "lock", "futex", "0x7f00")
    assert row.lasted_us == 41e6
    assert (row.last_woken_by, row.peer, row.connection) == (None, None, None)


def test_those_of_processes_that_owe_replies_come_first() -> None:
    owes = replace(server(), pid=PID + 1, in_progress=Waiting(2, END_NS - S))
    idle, waits = asleep(1, 90), asleep(2, 2, pid=PID + 1)
    poller = asleep(3, 95, kind="poll", object=0)
    rows, _ = found(poller, idle, waits, served_by=(owes,))
    assert [(row.tid, row.replies_owed) for row in rows] == [(2, 2), (1, 0), (3, 0)]
    assert found(idle, served_by=None).rows[0].replies_owed is None


def test_who_woke_the_last_one_at_the_lock() -> None:
    """Of the same process at the same address; a timer is nobody."""
    earlier, later = ended(5, by=6), replace(ended(7, by=8), last_ns=9)
    timer = replace(ended(7, author="interrupt"), last_ns=99)
    other = replace(ended(7, by=9), last_ns=999, pid=PID + 1)
    elsewhere = replace(ended(7, by=10), last_ns=999, object=FUTEX + 8)
    (row,) = found(asleep(1), waits=(earlier, later, timer, other, elsewhere)).rows
    assert row.last_woken_by == Waker(PID, 8, "worker")


def peer_of(only: bool = True, open_now: Optional[int] = 1, **changes: Any) -> Optional[Peer]:
    mine = connection(pid=PID, inode=77, peer=PeerReading(300, "app"), peer_address="")
    more = () if only else (connection(pid=PID, inode=78, peer=PeerReading(301, "other")),)
    threads = (asleep(1, object=0, **changes),)
    kept = (mine, *more)
    (row,) = found(*threads, connections=kept, connections_open=open_now).rows
    return row.peer


def test_the_other_end_of_its_connection() -> None:
    assert peer_of(kind="recv", inode=77) == Peer(300, "app", None)
    assert peer_of(kind="recv", inode=79) is None
    assert peer_of(kind="recv") is None


def test_a_poller_of_one_connection_waits_for_that_one() -> None:
    assert peer_of(kind="poll") == Peer(300, "app", None)
    assert peer_of(kind="poll", only=False, open_now=2) is None
    # One that is not listed.
    assert peer_of(kind="poll", open_now=2) is None
    assert peer_of(kind="poll", open_now=None) is None


def test_what_is_not_told_is_not_measured() -> None:
    untold = asleep(1, kind=None, call=None, object=0)
    assert waits_now(at_end(untold)) is None
    assert waits_now(at_end(asleep(1), waits=None)) is None
    assert found(thread(1, PID)) == ([], 0)


def test_the_rows_are_bounded() -> None:
    rows, total = found(*(asleep(tid) for tid in range(1, WAITS_NOW_SHOWN_MAX + 10)))
    assert (len(rows), total) == (WAITS_NOW_SHOWN_MAX, WAITS_NOW_SHOWN_MAX + 9)
