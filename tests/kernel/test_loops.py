"""Event loops that are away from their poller for known times, and who holds a target's CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import pytest

from tests.conftest import give_up
from tests.kernel.tool import Attached
from tests.workloads.build import BuildError
from tests.workloads.stages_program import Program
from udsprobe.kernel.programs.loader import MAP_BOUNDS

pytestmark = [pytest.mark.root, pytest.mark.alone]

Row = Dict[str, Any]
POLLERS = ("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6")
# The tolerance of the promise: 5 %, or 50 µs where a round is short.
RELATIVE, ABSOLUTE_US = 0.05, 50.0
ATTEMPTS, ROUNDING_US = 3, 0.001
BURN_S = 0.4
# Ahead of whatever else the machine does, and in turns with each other.
WAITS = """
import os, sys, time
os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
print("ready", flush=True)
sys.stdin.readline()
"""
BURNER = f"{WAITS}end = time.time() + 3\nwhile time.time() < end: pass"
FORKER = f"""{WAITS}
end = time.time() + 3
while time.time() < end:
    if os.fork() == 0:
        while time.thread_time() < 0.003: pass
        os._exit(0)
    os.wait()
"""
TARGET = f"""{WAITS}
end = time.thread_time() + {BURN_S}
while time.thread_time() < end: pass
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
print("done", flush=True)
sys.stdin.readline()
"""


def loops_program(poller: str, rounds: int, busy_us: int, how: str) -> Program:
    try:
        return Program("loops", poller, str(rounds), str(busy_us), how)
    except BuildError as error:
        give_up(str(error))
        raise


def observed(program: Program, folder: Path) -> Tuple[Row, Row]:
    """Its own account, and where the report says the time went."""
    with program:
        program.line()
        with Attached(["--pid", str(program.pid)], folder) as watched:
            program.go()
            account = program.document()
        return account, watched.report["time"]


def true_us(account: Row) -> float:
    return float(account["busy"] / account["iterations"] / 1000)


def assert_a_loop(poller: str, rounds: int, busy_us: int, how: str, folder: Path) -> None:
    """Its mean is the program's own in one of three observations: a program that loses its CPU
    between a stamp and the call beside it does not know of it. The rest is so in each."""
    for _ in range(ATTEMPTS):
        program = loops_program(poller, rounds, busy_us, how)
        account, time = observed(program, folder)
        assert_loop(time, account, program.pid)
        mean_us, wanted_us = time["loop_busy_us"]["mean"], true_us(account)
        if mean_us == pytest.approx(wanted_us, rel=RELATIVE, abs=ABSOLUTE_US):
            return
    raise AssertionError(f"busy for {mean_us} µs, not {wanted_us}")


def assert_loop(time: Row, account: Row, pid: int) -> None:
    """Counts exact, times no shorter than the program's, and the histogram of the same rounds."""
    (loop,) = time["loops"]
    assert (loop["pid"], loop["tid"], loop["comm"]) == (pid, pid, "loops")
    everything = time["loop_busy_us"]
    assert loop["iterations"] == everything["count"] == account["iterations"]
    # The program's stamps are between the calls: it never knows more than there was.
    assert loop["busy_us"]["mean"] >= true_us(account) - ROUNDING_US
    assert loop["busy_us"]["max"] >= account["longest"] / 1000
    assert everything["mean"] == pytest.approx(loop["busy_us"]["mean"], abs=0.01)
    assert everything["max"] == loop["busy_us"]["max"]


@pytest.mark.parametrize("how", ["spins", "sleeps"])
@pytest.mark.parametrize(
    ("busy_us", "rounds"), [(0, 2000), (1000, 300), (10_000, 40), (100_000, 6)]
)
def test_a_loop_that_is_busy_for_a_known_time(
    tmp_path: Path, busy_us: int, rounds: int, how: str
) -> None:
    assert_a_loop("epoll_wait", rounds, busy_us, how, tmp_path)


@pytest.mark.parametrize("poller", POLLERS)
def test_every_poller(tmp_path: Path, poller: str) -> None:
    assert_a_loop(poller, 50, 1000, "sleeps", tmp_path)


def test_who_never_polls_is_no_loop(tmp_path: Path) -> None:
    """One call of a poller is no round either."""
    program = loops_program("poll", 0, 0, "sleeps")
    _, time = observed(program, tmp_path)
    assert time["loops"] == []
    assert time["loop_busy_us"]["count"] == 0


@contextmanager
def pinned(code: str, *, in_session: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A Python program on the first CPU of ours; `in_session`: of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=in_session,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        yield process
    finally:
        process.kill()
        process.communicate()


def say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def time_of(target: subprocess.Popen[str], burner: subprocess.Popen[str], *options: str) -> Row:
    """Both burn one CPU until the target has had enough of it; where its time went."""
    time: Row = report_of(target, burner, *options)["time"]
    return time


def report_of(target: subprocess.Popen[str], burner: subprocess.Popen[str], *options: str) -> Row:
    with tempfile.TemporaryDirectory() as folder:  # noqa: SIM117
        with Attached(["--pid", str(target.pid), *options], Path(folder)) as watched:
            say(burner)
            say(target)
            assert target.stdout is not None and target.stdout.readline() == "done\n"
            burner.kill()
    return watched.report


def holders_of(target: subprocess.Popen[str], burner: subprocess.Popen[str], *options: str) -> Row:
    """The same, where all that held the CPU are in the report."""
    return whole(time_of(target, burner, *options))


def whole(time: Row) -> Row:
    """`time`, whose holders' waits are the threads' waits for a CPU."""
    rows = time["cpu_holders"]
    assert sum(row["share_pct"] for row in rows) == pytest.approx(100, abs=1)
    # But for a wait that goes on, or began before.
    runq_us = time["total"]["runq"] * time["total_s"] * 1e6
    assert sum(row["waited_us"] for row in rows) == pytest.approx(runq_us, rel=0.1, abs=20_000)
    return time


def test_who_holds_the_cpu_is_named() -> None:
    with pinned(TARGET) as target, pinned(BURNER) as burner:
        time = holders_of(target, burner)
    first = time["cpu_holders"][0]
    assert (first["pid"], first["is_target"]) == (burner.pid, False)
    assert first["comm"].startswith("python")
    # The kernel keeps a twentieth of each second from real-time programs, for whoever wants it.
    assert first["share_pct"] > 75


def sessions_share_the_cpus() -> bool:
    """Of processes at the root of the cgroups (sched(7), autogroup)."""
    try:
        enabled = Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip()
    except FileNotFoundError:
        return False
    return enabled == "1" and _is_at_the_root()


def _is_at_the_root() -> bool:
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    found = [path for _, names, path in lines if "cpu" in names.split(",") or not names]
    return all(path == "/" for path in found)


@pytest.mark.parametrize("in_session", [False, True])
def test_what_shares_the_cpu_out_with_who_holds_it(in_session: bool) -> None:
    with pinned(TARGET) as target, pinned(BURNER, in_session=in_session) as burner:
        os.setpriority(os.PRIO_PROCESS, burner.pid, 1)
        os.setpriority(os.PRIO_PROCESS, target.pid, 2)
        first = time_of(target, burner)["cpu_holders"][0]
    assert first["pid"] == burner.pid
    low = {"pid": target.pid, "file": None, "value": 2}
    expected = {"kind": "nice", "file": None, "value": 1, "lowered": [low]}
    if in_session and sessions_share_the_cpus():
        file = f"/proc/{burner.pid}/autogroup"
        expected = {"kind": "session", "file": file, "value": 0, "lowered": []}
    assert first["priority"] == expected


def test_targets_hold_each_other_s_cpu() -> None:
    with pinned(TARGET) as target, pinned(BURNER) as burner:
        time = holders_of(target, burner, "--pid", str(burner.pid))
    found = {row["pid"]: row["is_target"] for row in time["cpu_holders"]}
    assert {pid for pid, is_target in found.items() if is_target} == {target.pid, burner.pid}


def test_targets_that_come_and_go_are_no_strangers() -> None:
    """Nor is one in its last moments, when its thread is over and not yet off the CPU."""
    with pinned(TARGET) as target, pinned(FORKER) as forker:
        rows = time_of(target, forker, "--pid", str(forker.pid))["cpu_holders"]
    # Those who held it longest are shown, and strangers want this CPU too.
    shown_pct = sum(row["share_pct"] for row in rows)
    assert sum(row["share_pct"] for row in rows if row["is_target"]) > 0.75 * shown_pct


def test_a_storm_of_processes_loses_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for fewer than come and go: each wait is counted, and nothing is incomplete."""
    monkeypatch.setenv(MAP_BOUNDS, "cpu_holders=8")
    with pinned(TARGET) as target, pinned(FORKER) as forker:
        report = report_of(target, forker)
    rows, probe = whole(report["time"])["cpu_holders"], report["probe"]
    (rest,) = [row for row in rows if row["pid"] == 0 and row["comm"] is None]
    assert rest["waited_us"] > 0 and not rest["is_target"]
    assert (probe["turned_away"], probe["turned_away_by_map"]) == (0, {})
    assert "measurement-incomplete" not in [each["id"] for each in report["findings"]]
