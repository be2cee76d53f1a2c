"""Waits and their authors: differences, sums, and chains of up to four hops."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.samples import sample, target
from udsprobe.model.report import Wait
from udsprobe.model.threads.waits import AUTHORS_SHOWN_MAX, HOPS_MAX, Waits, waits
from udsprobe.sample import WaitCounts, WaitPart

PID = 100
US = 1000


def ended(
    tid: int,
    kind: str = "lock",
    by: Optional[int] = None,
    *,
    count: int = 1,
    author: str = "thread",
    **was_us: int,
) -> WaitCounts:
    """Waits of a thread of PID that another one of it ended."""
    calls = {"disk": "fsync", "lock": "futex"}
    parts = tuple(WaitPart(name, us * US, calls.get(name)) for name, us in was_us.items())
    return WaitCounts(
        pid=PID,
        tid=tid,
        started_ns=tid,
        kind=kind,
        object=0x7F00 if kind == "lock" else 0,
        author=author,
        author_pid=PID if by else None,
        author_tid=by,
        author_started_ns=by or 0,
        author_comm="worker" if by else None,
        author_is_target=bool(by),
        count=count,
        max_ns=max((part.total_ns for part in parts), default=0),
        last_ns=count,
        parts=parts,
    )


def window(*last: WaitCounts, first: Tuple[WaitCounts, ...] = ()) -> Waits:
    found = waits(
        sample(waits=first), sample(1, sequence=1, targets=(target(pid=PID),), waits=last)
    )
    assert found is not None
    assert_sums(found.rows)
    return found


def assert_sums(rows: List[Wait]) -> None:
    for row in rows:
        for parts in (row.authors, row.roots):
            spent_us = row.unknown_us + sum(part.total_us for part in parts)
            assert spent_us == pytest.approx(row.total_us, abs=1e-6)


def test_what_is_not_measured_is_none() -> None:
    assert waits(sample(), sample(1, sequence=1, waits=None)) is None
    assert window().rows == []


def test_a_wait_is_divided_by_what_its_author_did() -> None:
    (row,) = window(ended(1, by=2, disk=80, cpu=20)).rows
    assert (row.kind, row.count, row.total_us) == ("lock", 1, 100)
    assert [(a.tid, a.was, a.call, a.total_us) for a in row.authors] == [
        (2, "disk", "fsync", 80),
        (2, "cpu", None, 20),
    ]
    assert row.unknown_us == 0


def test_only_the_window_counts() -> None:
    before = ended(1, by=2, count=3, disk=300, cpu=10)
    (row,) = window(ended(1, by=2, count=5, disk=350, cpu=10), first=(before,)).rows
    assert (row.count, row.total_us) == (2, 50)
    assert [a.was for a in row.authors] == ["disk"]
    assert window(before, first=(before,)).rows == []


def test_names_kept_no_longer_are_counted_once() -> None:
    before = ended(1, by=2, count=3, cpu=300)
    rest = replace(ended(0, author="unknown", count=4, unknown=500), pid=0, started_ns=0, object=0)
    (row,) = window(rest, first=(before,)).rows
    assert (row.pid, row.tid, row.count, row.total_us, row.unknown_us) == (0, 0, 1, 200, 200)


@pytest.mark.parametrize(
    ("kind", "author", "by"),
    [
        ("sleep", "interrupt", "timer"),
        ("disk", "softirq", "device"),
        ("poll", "softirq", "interrupt"),
        ("recv", "interrupt", "interrupt"),
    ],
)
def test_an_interrupt_is_no_thread(kind: str, author: str, by: str) -> None:
    (row,) = window(ended(1, kind, author=author, unknown=70)).rows
    (found,) = row.authors
    assert (found.by, found.pid, found.tid, found.was) == (by, None, None, None)


def test_an_author_that_is_not_known_is_nobody() -> None:
    (row,) = window(ended(1, author="unknown", unknown=70)).rows
    assert row.authors == row.roots == []
    assert row.unknown_us == 70


def test_a_chain_ends_at_who_waits_for_nobody() -> None:
    found = window(
        ended(1, by=2, lock=90, cpu=10), ended(2, by=3, pipe=100), ended(3, "pipe", by=4, cpu=100)
    )
    (row,) = (each for each in found.rows if each.tid == 1)
    told = [(a.tid, a.was, a.total_us, len(a.via)) for a in row.roots]
    assert told == [(4, "cpu", 90, 2), (2, "cpu", 10, 0)]


def test_shares_of_several_authors() -> None:
    found = window(ended(1, by=2, lock=100), ended(2, by=3, cpu=300), ended(2, by=4, disk=100))
    (row,) = (each for each in found.rows if each.tid == 1)
    assert [(a.tid, a.was, a.total_us) for a in row.roots] == [(3, "cpu", 75), (4, "disk", 25)]


def test_a_circle_is_cut() -> None:
    found = window(ended(1, by=2, lock=100), ended(2, by=1, lock=100))
    for row in found.rows:
        (root,) = row.roots
        assert (root.was, root.via) == ("lock", [])


def test_who_is_asleep_ends_no_wait_of_its_author() -> None:
    """A proxy before a proxy: the second is idle until the first asks, then it waits as well."""
    found = window(
        ended(1, "poll", by=2, poll=100),
        ended(2, "poll", by=1, poll=900),
        ended(2, "poll", by=3, cpu=90, lock=10),
    )
    (row,) = (each for each in found.rows if each.tid == 1)
    assert [(a.tid, a.was, a.total_us) for a in row.roots] == [(3, "cpu", 90), (3, "lock", 10)]


def test_four_hops_and_no_more() -> None:
    rows = [ended(tid, by=tid + 1, lock=100) for tid in range(1, 10)]
    (row,) = (each for each in window(*rows).rows if each.tid == 1)
    (root,) = row.roots
    assert (root.tid, len(root.via)) == (1 + HOPS_MAX, HOPS_MAX - 1)


def test_what_a_timer_ends_stays_with_who_waits_for_it() -> None:
    found = window(
        ended(1, by=2, poll=100),
        ended(2, "poll", author="interrupt", unknown=60),
        ended(2, "poll", by=3, cpu=40),
    )
    (row,) = (each for each in found.rows if each.tid == 1)
    assert [(a.tid, a.was, a.total_us) for a in row.roots] == [(2, "poll", 60), (3, "cpu", 40)]


def test_many_authors_are_others_behind_the_longest() -> None:
    many = [ended(1, by=tid, cpu=tid) for tid in range(2, 2 + AUTHORS_SHOWN_MAX + 5)]
    (row,) = window(*many).rows
    assert len(row.authors) == AUTHORS_SHOWN_MAX + 1
    assert row.authors[-1].by == "others"


def test_processes_of_one_name_are_told_together_behind_the_longest() -> None:
    """A child for each request; threads of one process are none of them, nor is one by itself."""
    rows = [
        replace(ended(1, "poll", by=7, sleep=1000 + n), author_pid=n, author_comm="slow.cgi")
        for n in range(200, 200 + 2 * AUTHORS_SHOWN_MAX)
    ]
    rows += [replace(ended(1, "poll", by=7, cpu=5), author_pid=300, author_comm="lonely")]
    rows += [ended(1, "poll", by=tid, cpu=1) for tid in (8, 9)]
    (row,) = window(*rows).rows
    for parts in (row.authors, row.roots):
        program, others = parts[AUTHORS_SHOWN_MAX:]
        assert (program.by, program.pid, program.tid) == ("program", None, None)
        assert (program.comm, program.was, program.is_target) == ("slow.cgi", "sleep", True)
        assert program.total_us == sum(1000 + n for n in range(200, 200 + AUTHORS_SHOWN_MAX))
        assert (others.by, others.total_us) == ("others", 7)


def test_locks_by_address() -> None:
    found = window(
        ended(1, by=3, count=2, cpu=100), ended(2, by=4, count=9, cpu=50), ended(5, "pipe", cpu=9)
    )
    (lock,) = found.locks
    assert (lock.address, lock.waiters, lock.count) == ("0x7f00", 2, 11)
    assert (lock.total_us, lock.last_woken_by) == (150, 4)


AUTHORED = st.builds(
    lambda tid, by, kind, was, us: ended(tid, kind, by, **{was: us}),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(("lock", "pipe", "poll")),
    st.sampled_from(("lock", "pipe", "poll", "cpu", "disk", "unknown")),
    st.integers(1, 10_000),
)


@given(st.lists(AUTHORED, max_size=20, unique_by=lambda w: (w.tid, w.kind, w.author_tid)))
@settings(max_examples=60, deadline=None)
def test_sums_stay_sums_in_any_tangle(rows: List[WaitCounts]) -> None:
    window(*rows)


def program(tid: int, count: int, comm: str = "convert", **was_us: int) -> WaitCounts:
    """Waits in a poller that processes of one name ended, which have ended themselves."""
    row = ended(tid, "poll", count=count, author="program", **was_us)
    return replace(row, author_comm=comm, author_is_target=True)


def test_of_processes_that_ended_the_program_is_told() -> None:
    (row,) = window(program(1, 3, cpu=30, runq=60), first=(program(1, 1, cpu=10, runq=20),)).rows
    assert [(a.by, a.pid, a.comm, a.was, a.total_us) for a in row.authors] == [
        ("program", None, "convert", "runq", 40),
        ("program", None, "convert", "cpu", 20),
    ]
    assert (row.count, row.unknown_us) == (2, 0)


def test_who_ended_since_is_taken_from_its_program() -> None:
    before = replace(ended(1, "poll", by=2, cpu=10), author_comm="convert")
    (row,) = window(program(1, 2, cpu=35), first=(before,)).rows
    assert [(a.by, a.total_us, row.count) for a in row.authors] == [("program", 25, 1)]


def test_who_has_ended_was_named_as_when_it_ended_the_wait() -> None:
    """A child of vfork() wakes its parent under its name first, then under its program's."""
    begins, ends = (
        replace(ended(1, kind, by=2, sleep=9), author_pid=2, author_comm=comm)
        for kind, comm in (("other", "nginx"), ("child", "sh"))
    )
    named = {row.kind: row.authors[0].comm for row in window(begins, ends).rows}
    assert named == {"child": "sh", "other": "nginx"}


def test_programs_of_different_names_stay_apart() -> None:
    (row,) = window(program(1, 2, cpu=35), program(1, 1, "other", cpu=5)).rows
    assert [(a.comm, a.total_us) for a in row.authors] == [("convert", 35), ("other", 5)]


def test_what_is_neither_lock_nor_socket_is_followed() -> None:
    """An eventfd, a semaphore, a signal: the last in the chain computed meanwhile."""
    row = window(ended(1, by=2, other=80), ended(2, "other", by=3, cpu=200)).rows[1]
    assert [(a.tid, a.was, a.total_us, a.via) for a in row.roots] == [
        (3, "cpu", 80, [f"worker {PID}/2"]),
    ]


def test_of_those_behind_the_longest_it_stays_known_what_they_did() -> None:
    many = [ended(1, by=by, disk=1000 + by) for by in range(100, 100 + 2 * AUTHORS_SHOWN_MAX)]
    (row,) = window(*many, ended(1, by=99, cpu=7)).rows
    rest = [(a.by, a.was) for a in row.authors[AUTHORS_SHOWN_MAX:]]
    assert rest == [("others", "disk"), ("others", "cpu")]
