"""Loops and holders of CPUs: of the window only, in order, and bounded."""

from __future__ import annotations

from tests.unit.samples import latency, sample, unmeasured_sample
from udsprobe.model.report import BusyTime, Loop
from udsprobe.model.report import CpuHolder as Holder
from udsprobe.model.threads.cpu_holders import HOLDERS_SHOWN_MAX, cpu_holders
from udsprobe.model.threads.loops import LOOPS_SHOWN_MAX, loop_busy_us, loop_rows
from udsprobe.sample import ENDED_PID, CpuHolder, LoopCounts

US = 1000


def loop(tid: int, iterations: int, busy_ns: int, longest_ns: int = 9 * US) -> LoopCounts:
    return LoopCounts(4711, tid, "node", iterations, busy_ns, longest_ns)


def holder(pid: int, waited_ns: int, started_ns: int = 1, is_target: bool = False) -> CpuHolder:
    return CpuHolder(pid, started_ns, "cc1", is_target, waited_ns)


def test_not_measured_is_none() -> None:
    pair = sample(), unmeasured_sample(1)
    assert loop_rows(*pair) is loop_busy_us(*pair) is cpu_holders(*pair) is None


def test_loops_of_the_window_the_busiest_first() -> None:
    before = sample(loops=(loop(1, 10, 100 * US), loop(2, 5, 5 * US)))
    after = (loop(1, 14, 108 * US), loop(2, 5, 5 * US), loop(3, 1, 9 * US))
    assert loop_rows(before, sample(1, loops=after)) == [
        Loop(4711, 3, "node", 1, BusyTime(9.0, 9.0)),
        Loop(4711, 1, "node", 4, BusyTime(2.0, 9.0)),
    ]


def test_another_thread_of_the_same_number() -> None:
    before = sample(loops=(loop(1, 10, 100 * US),))
    (row,) = loop_rows(before, sample(1, loops=(loop(1, 2, 4 * US),))) or []
    assert (row.iterations, row.busy_us.mean) == (2, 2.0)


def test_the_busiest_fifty() -> None:
    many = tuple(loop(tid, 1, tid * US) for tid in range(1, LOOPS_SHOWN_MAX + 5))
    rows = loop_rows(sample(), sample(1, loops=many)) or []
    assert len(rows) == LOOPS_SHOWN_MAX
    assert rows[0].tid == LOOPS_SHOWN_MAX + 4


def test_all_loops_together() -> None:
    before, after = latency([5 * US]), latency([5 * US, 7 * US, 9 * US])
    found = loop_busy_us(sample(loop_busy=before), sample(1, loop_busy=after))
    assert found is not None
    assert (found.count, found.mean, found.max) == (2, 8.0, 9.0)


def test_holders_share_the_waits_of_the_window() -> None:
    before = sample(cpu_holders=(holder(5, 100), holder(6, 50), holder(8, 10_000)))
    after = (holder(5, 100 + 3 * US), holder(6, 50, 2), holder(0, 950), holder(8, 10_000))
    assert cpu_holders(before, sample(1, cpu_holders=after)) == [
        Holder(5, "cc1", False, 3.0, 75.0),
        Holder(0, "cc1", False, 0.95, 23.75),
        Holder(6, "cc1", False, 0.05, 1.25),
    ]


def test_twenty_holders() -> None:
    many = tuple(holder(pid, pid, is_target=True) for pid in range(1, HOLDERS_SHOWN_MAX + 3))
    rows = cpu_holders(sample(), sample(1, cpu_holders=many)) or []
    assert len(rows) == HOLDERS_SHOWN_MAX
    assert (rows[0].pid, rows[0].is_target) == (HOLDERS_SHOWN_MAX + 2, True)


def test_holders_that_ended_are_one_row_of_the_same_sum() -> None:
    """5 had 100 ns in an earlier sample: in the row of the ended they are no growth."""
    before = sample(cpu_holders=(holder(5, 100), holder(6, 50)))
    ended = CpuHolder(ENDED_PID, 1, None, False, 100 + 3 * US)
    rows = cpu_holders(before, sample(1, cpu_holders=(holder(6, 50 + US), ended))) or []
    assert [(row.pid, row.comm, row.waited_us) for row in rows] == [
        (ENDED_PID, None, 3.0),
        (6, "cc1", 1.0),
    ]
    assert not rows[0].is_idle


def test_an_entry_that_comes_again_adds_to_the_sum() -> None:
    before = sample(cpu_holders=(holder(5, 100),))
    ended = CpuHolder(ENDED_PID, 1, None, False, 150)
    rows = cpu_holders(before, sample(1, cpu_holders=(holder(5, 30), ended))) or []
    assert sum(row.waited_us for row in rows) >= 0.08


def test_partners_that_ended_are_a_row_of_their_own() -> None:
    strangers = CpuHolder(ENDED_PID, 1, None, False, 7 * US)
    partners = CpuHolder(ENDED_PID, 3, None, False, 9 * US, is_partner=True)
    rows = cpu_holders(sample(), sample(1, cpu_holders=(strangers, partners))) or []
    assert [(row.waited_us, row.is_partner) for row in rows] == [(9.0, True), (7.0, False)]
