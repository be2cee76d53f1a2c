"""Waits whose author is known: who it was, what they did meanwhile, and nobody else's name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import pytest

from tests.conftest import give_up
from tests.kernel.tool import Attached, Report
from tests.workloads.build import BuildError
from tests.workloads.stages_program import Program

pytestmark = [pytest.mark.root, pytest.mark.alone]

Row = Dict[str, Any]
HANDOVERS = 10_000
BRIEF_TURNS = 4_000
POOL_S, POOL_WAITS_MIN = 6, 200
ROUNDS = 5
# Enough that it does not matter where a lock became free between two waits of a thread.
TIMED_ROUNDS = 20
ATTEMPTS, SCHEDSTAT_MAX = 3, 0.02
# What the workload does itself between the stamps and its wait, and udsprobe's decimals.
ROUNDING_US = 1.0


class Seen(NamedTuple):
    truth: Dict[str, Any]
    report: Report

    def row(self, tid: int, kind: str) -> Row:
        (found,) = (r for r in self.report["waits"] if (r["tid"], r["kind"]) == (tid, kind))
        assert isinstance(found, dict)
        return found

    def lock(self) -> Row:
        """The workload's own."""
        (found,) = (r for r in self.report["locks"] if r["address"] == self.truth["lock"])
        assert isinstance(found, dict)
        return found


def watched(folder: Path, case: str, work: str = "cpu", rounds: int = ROUNDS) -> Seen:
    try:
        program = Program("authors", case, work, str(rounds), str(folder / "scratch"))
    except BuildError as error:
        give_up(str(error))
        raise
    with program:
        program.line()
        with Attached(["--pid", str(program.pid)], folder) as observation:
            program.go()
            truth = program.document()
    seen = Seen(truth, observation.report)
    assert_sums(seen.report)
    return seen


def assert_sums(report: Report) -> None:
    """The parts of each wait are its authors', and in another way those of its chains."""
    state = {row["name"]: row["state"] for row in report["probe"]["measurements"]}["waits"]
    assert state in ("on", "degraded")
    for row in report["waits"]:
        for parts in (row["authors"], row["roots"]):
            total_us = row["unknown_us"] + sum(part["total_us"] for part in parts)
            assert total_us == pytest.approx(row["total_us"], abs=0.001)
    assert report["waits_total"] >= len(report["waits"])


def names(parts: List[Row]) -> Set[Tuple[str, Any]]:
    return {(part["by"], part["tid"]) for part in parts}


def spent_us(parts: List[Row], *was: Optional[str]) -> float:
    return sum(part["total_us"] for part in parts if part["was"] in was)


# A thread of a busy host waits for a CPU as well.
@pytest.mark.parametrize(
    ("work", "was", "call"),
    [("cpu", "cpu", None), ("sleep", "sleep", "clock_nanosleep"), ("disk", "disk", "fsync")],
)
def test_a_mutex_whose_holder_works(tmp_path: Path, work: str, was: str, call: str) -> None:
    seen = watched(tmp_path, "mutex", work)
    waiter, holder, *_ = seen.truth["tids"]
    row = seen.row(waiter, "lock")
    assert names(row["authors"]) == {("thread", holder)}
    assert row["unknown_us"] == 0
    did = {part["was"]: part["call"] for part in row["authors"]}
    assert did[was] in (call, "nanosleep" if call else None)
    if was != "disk":
        assert spent_us(row["authors"], was, "runq") > 0.9 * row["total_us"]
    lock = seen.lock()
    assert (lock["waiters"], lock["last_woken_by"]) == (1, holder)
    assert lock["count"] >= ROUNDS


def test_what_was_waited_is_what_the_waiter_measured(tmp_path: Path) -> None:
    """Its stamps are around the calls: it never knows less than there was."""
    seen = watched(tmp_path, "mutex", "sleep")
    lock = seen.lock()
    assert lock["total_us"] <= seen.truth["waited"] / 1000 + ROUNDING_US


def test_every_hand_over_is_counted(tmp_path: Path) -> None:
    """The kernel counts how often each thread went to sleep."""
    assert handed_over(watched(tmp_path, "handover", rounds=2 * HANDOVERS)) >= HANDOVERS


def handed_over(seen: Seen) -> int:
    first, second, *_ = seen.truth["tids"]
    counted = 0
    for me, other, at in ((first, second, 0), (second, first, 1)):
        row = seen.row(me, "lock")
        assert row["count"] == seen.truth["switches"][at]
        assert names(row["authors"]) == {("thread", other)}
        counted += row["count"]
    return counted


def test_time_by_author_is_what_the_scheduler_accounts_for(tmp_path: Path) -> None:
    """/proc/PID/task/TID/schedstat has the time on a CPU and ready to run; the rest was waits, or
    taken by interrupts and the hypervisor. Each turn computes for 0.1 ms: what lies between the
    scheduler's stamps of a switch and ours, some 0.1 µs, is no wait and no work."""
    off: List[float] = []
    for _ in range(ATTEMPTS):
        seen = watched(tmp_path, "handover", work="brief", rounds=BRIEF_TURNS)
        assert handed_over(seen)
        off = [abs(difference(seen, at)) for at in (0, 1)]
        if max(off) <= SCHEDSTAT_MAX:
            return
    raise AssertionError(f"off by these parts of the time: {off}")


def difference(seen: Seen, at: int) -> float:
    """Of a thread's time, what waits and the scheduler's account differ by."""
    waited_us = seen.row(seen.truth["tids"][at], "lock")["total_us"]
    elapsed_us, blocked_us = (seen.truth[name][at] / 1000 for name in ("elapsed", "blocked"))
    return float((waited_us - blocked_us) / elapsed_us)


def test_no_wait_lasts_longer_than_the_window(tmp_path: Path) -> None:
    """Who wakes a thread that is leaving its CPU may see the wait before that one still."""
    command = [sys.executable, "-m", "tests.workloads.thread_pool"]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as pool:
        assert pool.stdin is not None and pool.stdout is not None
        pid = pool.stdout.readline().strip()
        with Attached(["--pid", pid, "--duration", f"{POOL_S}s"], tmp_path, ending=None) as seen:
            pass
        pool.stdin.close()
    report = seen.report
    assert_sums(report)
    window_us = report["window"]["duration_s"] * 1e6
    rows = [row for row in report["waits"] if row["tid"]]
    assert sum(row["count"] for row in rows if row["kind"] == "lock") > POOL_WAITS_MIN
    parts = [part["total_us"] for row in rows for part in row["authors"]]
    assert max(parts) <= max(row["total_us"] for row in rows) <= 1.1 * window_us


def test_readers_wait_for_a_writer(tmp_path: Path) -> None:
    seen = watched(tmp_path, "rwlock")
    reader, writer, *_ = seen.truth["tids"]
    row = seen.row(reader, "lock")
    assert names(row["authors"]) == {("thread", writer)}
    assert spent_us(row["authors"], "cpu", "runq") > 0.9 * row["total_us"]


def test_who_fills_a_queue_is_no_holder(tmp_path: Path) -> None:
    """It wakes who waits at the condition variable; the mutex is free meanwhile."""
    seen = watched(tmp_path, "queue")
    consumer, producer, *_ = seen.truth["tids"]
    row = seen.row(consumer, "lock")
    assert names(row["authors"]) == {("thread", producer)}
    assert spent_us(row["authors"], "cpu", "runq") > 0.9 * row["total_us"]
    assert "holder" not in str(seen.report["locks"])


@pytest.mark.parametrize(("case", "kind"), [("pipe", "pipe"), ("unix", "recv")])
def test_a_child_that_answers(tmp_path: Path, case: str, kind: str) -> None:
    seen = watched(tmp_path, case)
    parent, child, *_ = seen.truth["tids"]
    waits = [row for row in seen.report["waits"] if (row["tid"], row["kind"]) == (parent, kind)]
    row = max(waits, key=lambda each: each["total_us"])
    theirs = [part for part in row["authors"] if part["tid"] == child]
    assert {part["is_target"] for part in theirs} == {True}
    assert spent_us(theirs, "cpu", "runq") > 0.5 * row["total_us"]
    # The test itself wrote to its stdin, a pipe: that it waited for that is as true.
    assert names(row["authors"]) <= {("thread", child), *others(row, child)}


def others(row: Row, child: int) -> Set[Tuple[str, Any]]:
    """Threads that are no targets."""
    return names(
        [part for part in row["authors"] if not part["is_target"] and part["tid"] != child]
    )


@pytest.mark.parametrize(("case", "kind"), [("tcp", "recv"), ("polled", "poll")])
def test_a_tcp_connection_s_author_is_the_process_at_its_other_end(
    tmp_path: Path, case: str, kind: str
) -> None:
    """Packets are delivered by whoever an interrupt meets."""
    seen = watched(tmp_path, case)
    reader, writer, *_ = seen.truth["tids"]
    row = seen.row(reader, kind)
    allowed = {("process", writer), ("interrupt", None)}
    assert {(part["by"], part["pid"]) for part in row["authors"]} <= allowed
    assert ("process", writer) in {(part["by"], part["pid"]) for part in row["authors"]}


def test_a_child_that_ends(tmp_path: Path) -> None:
    seen = watched(tmp_path, "child", rounds=1)
    parent, child, *_ = seen.truth["tids"]
    row = seen.row(parent, "child")
    assert names(row["authors"]) == {("thread", child)}
    assert row["count"] == 1


def test_what_a_child_did_is_known_while_others_come_and_go(tmp_path: Path) -> None:
    """It wakes its parent when it is gone already, and another one may have its place."""
    seen = watched(tmp_path, "children", "sleep", rounds=20)
    row = seen.row(seen.truth["tids"][0], "child")
    assert row["count"] == 20
    assert spent_us(row["authors"], "sleep") > 0.8 * row["total_us"]
    assert spent_us(row["authors"], None) == 0


def test_a_child_has_the_name_of_the_program_that_it_became(tmp_path: Path) -> None:
    seen = watched(tmp_path, "programs", rounds=20)
    row = seen.row(seen.truth["tids"][0], "child")
    assert row["count"] == 20
    # A child may wait for a disk besides: that has no name.
    named = [part["comm"] for part in row["authors"] if part["by"] in ("thread", "program")]
    assert set(named) == {"sleep"}


@pytest.mark.parametrize("work", ["cpu", "sleep"])
@pytest.mark.parametrize("case", ["timedlock", "timedqueue", "twowords"])
def test_a_wait_that_is_begun_anew_is_that_of_who_ends_it(
    case: str, work: str, tmp_path: Path
) -> None:
    """Timers end five of six, and all is for the same thread."""
    seen = watched(tmp_path, case, work, TIMED_ROUNDS)
    waiter, holder, *_ = seen.truth["tids"]
    row = seen.row(waiter, "lock")
    assert names(row["authors"]) <= {("thread", holder), ("timer", None)}
    assert row["count"] > 2 * TIMED_ROUNDS
    did = ("sleep", "cpu", "runq") if work == "sleep" else ("cpu", "runq")
    assert spent_us(row["authors"], *did) > 0.5 * row["total_us"]


@pytest.mark.parametrize("work", ["cpu", "sleep"])
def test_a_loop_that_ticks_waits_for_its_worker(work: str, tmp_path: Path) -> None:
    seen = watched(tmp_path, "ticks", work, TIMED_ROUNDS)
    loop, worker, *_ = seen.truth["tids"]
    row = seen.row(loop, "poll")
    assert names(row["authors"]) <= {("thread", worker), ("interrupt", None)}
    assert row["count"] > 2 * TIMED_ROUNDS
    did = ("sleep", "cpu", "runq") if work == "sleep" else ("cpu", "runq")
    assert spent_us(row["authors"], *did) > 0.5 * row["total_us"]


def test_a_loop_that_speaks_when_it_ticks_waits_for_its_timer(tmp_path: Path) -> None:
    seen = watched(tmp_path, "ticksandtells", "sleep", TIMED_ROUNDS)
    row = seen.row(seen.truth["tids"][0], "poll")
    # Packets wake pollers by an interrupt, too.
    by_timer = [part for part in row["authors"] if part["by"] == "interrupt"]
    assert row["count"] > 2 * TIMED_ROUNDS
    assert sum(part["total_us"] for part in by_timer) > 0.5 * row["total_us"]


def test_every_wait_that_is_begun_anew_is_counted(tmp_path: Path) -> None:
    """The kernel counts how often the thread went to sleep while it wanted the lock. Where an event
    does not reach probes, perf's either, one is not seen; none is ever counted twice."""
    missed: List[int] = []
    for _ in range(ATTEMPTS):
        seen = watched(tmp_path, "timedlock", rounds=ROUNDS)
        (counted,) = (
            row["count"]
            for row in seen.report["locks"]
            if row["waiters"] == 1 and row["count"] > 2 * ROUNDS
        )
        missed.append(seen.truth["switches"][0] - counted)
        assert missed[-1] >= 0
        if missed[-1] == 0:
            return
    raise AssertionError(f"not counted: {missed}")


def test_a_clock_that_is_stopped_was_the_timer_s(tmp_path: Path) -> None:
    """It does something each time: only the last wait is that of who stops it."""
    seen = watched(tmp_path, "ticker", rounds=ROUNDS)
    ticker, stopper, *_ = seen.truth["tids"]
    row = seen.row(ticker, "lock")
    by_timer = [part for part in row["authors"] if part["by"] == "timer"]
    others_us = row["total_us"] - sum(part["total_us"] for part in by_timer)
    assert names(row["authors"]) <= {("thread", stopper), ("timer", None)}
    assert row["count"] > 2 * ROUNDS
    assert others_us <= row["max_us"] + ROUNDING_US


def test_waits_that_nobody_ends_are_the_timer_s(tmp_path: Path) -> None:
    seen = watched(tmp_path, "alarm", rounds=20)
    row = seen.row(seen.truth["tids"][0], "lock")
    assert 1 < row["count"] <= seen.truth["switches"][0]
    assert names(row["authors"]) == {("timer", None)}


def test_a_timer_has_no_thread(tmp_path: Path) -> None:
    """A thread that loses its CPU on its way to sleep for longer than it wanted to never slept."""
    seen = watched(tmp_path, "timer", rounds=20)
    row = seen.row(seen.truth["tids"][0], "sleep")
    assert row["count"] == seen.truth["switches"][0]
    assert names(row["authors"]) == {("timer", None)}


@pytest.mark.parametrize("chain", ["filelock", "record"])
def test_a_file_lock_between_processes(chain: str, tmp_path: Path) -> None:
    seen = watched(tmp_path, chain, "sleep", rounds=1)
    waiter, holder, *_ = seen.truth["tids"]
    row = seen.row(waiter, "file_lock")
    assert names(row["authors"]) == {("thread", holder)}
    assert spent_us(row["authors"], "sleep") > 0


def test_a_semaphore_between_processes_is_a_lock(tmp_path: Path) -> None:
    seen = watched(tmp_path, "semaphore", rounds=1)
    waiter, holder, *_ = seen.truth["tids"]
    row = seen.row(waiter, "lock")
    assert names(row["authors"]) == {("thread", holder)}
    assert row["count"] == 1
    assert spent_us(row["authors"], "cpu", "runq") > 0.5 * row["total_us"]


def test_an_eventfd_is_followed_to_who_writes_to_it(tmp_path: Path) -> None:
    """The holder of a lock waits for a process that computes."""
    seen = watched(tmp_path, "event", rounds=1)
    waiter, holder, helper, *_ = seen.truth["tids"]
    row = seen.row(waiter, "lock")
    assert names([part for part in row["authors"] if part["was"] == "other"]) == {
        ("thread", holder)
    }
    behind = [part for part in row["roots"] if part["tid"] == helper]
    assert spent_us(behind, "cpu", "runq") > 0.5 * row["total_us"]
    assert all(via.endswith(f"/{holder}") for part in behind for via in part["via"])


def test_a_reader_that_sleeps(tmp_path: Path) -> None:
    """It makes room in the sender's buffer when it reads at last."""
    seen = watched(tmp_path, "reader", "sleep", rounds=20)
    sender, reader, *_ = seen.truth["tids"]
    row = seen.row(sender, "send")
    assert names(row["authors"]) == {("thread", reader)}
    assert spent_us(row["authors"], "sleep", "runq") > 0.5 * row["total_us"]


def test_a_pool_of_two_connections(tmp_path: Path) -> None:
    """Who gives one back woke the third; behind them is who answers both."""
    seen = watched(tmp_path, "pool")
    third, *users, server = seen.truth["tids"]
    row = seen.row(third, "lock")
    assert names(row["authors"]) <= {("thread", tid) for tid in users}
    assert spent_us(row["authors"], "recv") > 0.5 * row["total_us"]
    behind = [part for part in row["roots"] if part["tid"] == server]
    assert spent_us(behind, "cpu", "runq") > 0.5 * row["total_us"]
    assert {part["via"][0].rpartition("/")[2] for part in behind} <= {str(tid) for tid in users}


def test_a_chain_of_locks_ends_at_a_child_behind_a_pipe(tmp_path: Path) -> None:
    seen = watched(tmp_path, "chain", "child", rounds=2)
    first, second, third, _ = seen.truth["tids"]
    pid = seen.truth["pid"]
    row = seen.row(first, "lock")
    assert row["authors"][0]["tid"] == second
    root = row["roots"][0]
    # Children of the third: of another process each, and targets as well.
    assert root["pid"] not in (pid, None)
    assert root["is_target"]
    assert [who.rpartition(" ")[2] for who in root["via"]] == [f"{pid}/{second}", f"{pid}/{third}"]
