"""`udsprobe run` and `attach` against the truth of what they observed: every number equal.

Each workload runs once under each; the tests look at those reports.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, NamedTuple, Optional, Tuple

import pytest

from tests.conftest import Require
from tests.kernel import leftovers, strace, tool
from tests.kernel.cases import (
    FAMILIES_OF_CASE,
    RESTARTING,
    URING,
    VARYING,
    Case,
    Key,
    Truth,
    all_cases,
    command,
    is_of_requests,
    read_truth,
)
from tests.kernel.conftest import Workload
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.root


class Observed(NamedTuple):
    case: Case
    truth: Truth
    report: tool.Report


REQUEST_CASES = [case for case in all_cases() if is_of_requests(case)]
REPEATABLE_CASES = [case for case in all_cases() if case.name not in RESTARTING + VARYING]
ENTERED_CASES = [case for case in all_cases() if case.name != "denied"]


def each_of(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """By `run`, and by `attach` once for each kind of workload: what was open before is a matter
    of threads and roles, not of transports.

    With `-n` what looks at one case runs in one process, which observes it once.
    """
    shared = [
        pytest.param(how, case, marks=pytest.mark.xdist_group(str(case)), id=f"{how}-{case}")
        for how in ("run", "attach")
        for case in cases
        if how == "run" or case.family == FAMILIES_OF_CASE[case.name][0] or is_of_requests(case)
    ]
    return pytest.mark.parametrize(("how", "case"), shared)


each_case = each_of(all_cases())
each_case_of_requests = each_of(REQUEST_CASES)
each_repeatable_case = each_of(REPEATABLE_CASES)
# Of a call that seccomp denies nobody sees the entry.
each_case_seen_to_enter = each_of(ENTERED_CASES)


@pytest.fixture(scope="module", autouse=True)
def nothing_left_over_by_any(require: Require) -> Iterator[None]:
    require("bpftool")
    before = leftovers.loaded()
    yield
    assert not any(leftovers.left_over_since(before))


def observe(
    program: Path, case: Case, folder: Path, environment: Optional[Dict[str, str]] = None
) -> Observed:
    told = folder / "truth.json"
    report = tool.run(command(program, case, told), folder / "report.json", environment)
    return Observed(case, read_truth(told), report)


def observe_attached(program: Path, case: Case, folder: Path) -> Observed:
    """As `observe`, by `attach` to a workload that has not begun."""
    told = folder / "truth.json"
    environment = {**os.environ, "WORKLOAD_STOPS": "1"}
    with subprocess.Popen(command(program, case, told), env=environment) as process:
        try:
            wait_until_stopped(process.pid)
            selectors = ["--pid", str(process.pid)]
            with tool.Attached(selectors, folder, ending=None) as attached:
                process.send_signal(signal.SIGCONT)
                assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    return Observed(case, read_truth(told), attached.report)


def wait_until_stopped(pid: int) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < give_up_at, f"{pid} never stopped"
        time.sleep(0.001)


OBSERVERS = {"run": observe, "attach": observe_attached}
ObserveOnce = Callable[[Case, str], Observed]


@pytest.fixture(scope="module")
def observe_once(workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> ObserveOnce:
    """Each case runs under each observer at its first use, and not again."""
    seen: Dict[Tuple[Case, str], Observed] = {}

    def observed(case: Case, how: str) -> Observed:
        if (case, how) not in seen:
            folder = tmp_path_factory.mktemp("observed")
            seen[case, how] = OBSERVERS[how](workload(64), case, folder)
        return seen[case, how]

    return observed


@pytest.fixture
def observed(how: str, case: Case, observe_once: ObserveOnce) -> Observed:
    return observe_once(case, how)


@each_case
def test_every_row_is_the_truth(observed: Observed) -> None:
    assert tool.rows(observed.report) == observed.truth.rows


@each_case
def test_nothing_is_in_flight_after_the_end(observed: Observed) -> None:
    assert tool.in_flight(observed.report) == {}


@each_case_seen_to_enter
def test_every_call_has_a_latency_and_possible_times(observed: Observed) -> None:
    assert tool.impossible_times(observed.report) == []


@each_case
def test_nothing_is_lost(observed: Observed) -> None:
    # `missed` may be above 0: the kernel skips probe runs on traffic of other
    # processes too. A run skipped on this one's would show in the count.
    probe = observed.report["probe"]
    assert probe["events_lost"]["map_full"] == probe["events_lost"]["ring_full"] == 0
    assert probe["events_counted"] == sum(observed.truth.calls_by_name().values())
    assert probe["calls_left"] == observed.truth.left


@each_case_of_requests
def test_served_requests_are_the_turns_made(observed: Observed) -> None:
    served = observed.report["requests"]["served"]
    assert served["count"] == observed.truth.requests
    assert served["latency_us"]["count"] == observed.truth.requests


@each_case_of_requests
def test_calls_per_request_add_up(observed: Observed) -> None:
    per_request = observed.report["requests"]["syscalls_per_request"]
    told = observed.truth.calls_by_name()
    assert observed.truth.requests
    assert {
        name: round(per_request["by_syscall"][name] * observed.truth.requests) for name in told
    } == told
    # Four significant digits.
    assert per_request["total"] == pytest.approx(
        sum(per_request["by_syscall"].values()), rel=0.0005
    )


@each_repeatable_case
def test_totals_are_those_of_strace_c(
    observed: Observed, workload: Workload, tmp_path: Path, strace_installed: str
) -> None:
    counted = strace.totals(command(workload(64), observed.case, tmp_path / "truth.json"))
    told: Dict[str, strace.Totals] = {}
    for key, counts in tool.rows(observed.report).items():
        if key.name.startswith(URING):
            continue
        calls, errors = told.get(key.name, (0, 0))
        told[key.name] = strace.Totals(calls + counts.calls, errors + sum(counts.errors.values()))
    assert told == {name: counted[name] for name in counted if name in strace.NAMES}


def test_a_call_whose_entry_was_not_seen_has_no_latency(workload: Workload, tmp_path: Path) -> None:
    observed = observe(workload(64), Case("denied", "unix-stream"), tmp_path)
    denied = next(row for row in observed.report["syscalls"] if row["name"] == "sendto")
    assert denied["errors"] == {"EPERM": denied["calls"]}
    assert denied["latency_us"]["count"] == 0


def test_a_restarted_call_lasts_from_its_first_entry_to_its_return(
    workload: Workload, tmp_path: Path
) -> None:
    # A timer interrupts it every 20 ms, so no part of it can be this long.
    observed = observe(workload(64), Case("restarted", "unix-stream"), tmp_path)
    restarted = next(row for row in observed.report["syscalls"] if row["name"] == "recvfrom")
    assert restarted["latency_us"]["max"] > 35_000


def test_a_table_that_is_full_says_how_much_it_missed(workload: Workload, tmp_path: Path) -> None:
    observed = observe(workload(64), Case("wide", "unix-stream"), tmp_path)
    rows = tool.rows(observed.report)
    assert {key: observed.truth.rows[key] for key in rows} == rows
    told = sum(observed.truth.calls_by_name().values())
    kept = sum(counts.calls for counts in rows.values())
    assert observed.report["probe"]["events_lost"]["map_full"] == told - kept


@pytest.mark.parametrize("name", ["forks", "exec", "spawn", "vfork"])
def test_without_following_children_are_left_alone(
    name: str, workload: Workload, tmp_path: Path
) -> None:
    told = tmp_path / "truth.json"
    argv = command(workload(64), Case(name, "unix-stream"), told)
    report = tool.run(argv, tmp_path / "report.json", options=["--no-follow"])
    truth = read_truth(told)
    sent = Key("sendto", "unix", "stream", "native")
    opened = Key("socketpair", "unix", "stream", "native")
    rows = tool.rows(report)
    assert truth.rows[sent].calls > 0, "the children send"
    assert sent not in rows, "and the parent does not"
    assert rows[opened] == truth.rows[opened]
    assert len(report["targets"]) == 1


THIRTY_TWO_BITS = [
    Case(name, family)
    for name in ("send", "read", "readv", "sendmsg", "sendmmsg", "epoll", "threads", "forks")
    for family in ("unix-stream", "tcp4")
]


@pytest.mark.parametrize("case", THIRTY_TWO_BITS, ids=str)
def test_32_bit_calls_are_not_read_as_64_bit_ones(
    case: Case, workload: Workload, tmp_path: Path
) -> None:
    observed = observe(workload(32), case, tmp_path)
    assert {key.abi for key in observed.truth.rows} == {"compat"}
    assert tool.rows(observed.report) == observed.truth.rows
    assert tool.impossible_times(observed.report) == []


@pytest.mark.parametrize("family", ["unix-stream", "tcp4"])
def test_socketcall_is_the_calls_it_is_asked_for(
    family: str, workload: Workload, tmp_path: Path
) -> None:
    observed = observe(workload(32), Case("socketcall", family), tmp_path)
    assert tool.rows(observed.report) == observed.truth.rows
    assert tool.impossible_times(observed.report) == []
    assert observed.report["requests"]["served"]["count"] == observed.truth.requests


@pytest.mark.parametrize("family", ["unix-stream", "tcp4"])
def test_exec_changes_the_width(family: str, workload: Workload, tmp_path: Path) -> None:
    environment = {"WORKLOAD_EXEC_1": str(workload(32)), "WORKLOAD_EXEC_2": str(workload(64))}
    observed = observe(workload(64), Case("exec", family), tmp_path, environment)
    assert {key.abi for key in observed.truth.rows} == {"native", "compat"}
    assert tool.rows(observed.report) == observed.truth.rows
