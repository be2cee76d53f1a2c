"""`udsprobe run` against the truth of the command it ran: every number equal.

Each workload runs once under udsprobe; the tests look at that one report.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterator, NamedTuple, Optional

import pytest

from tests.kernel import leftovers, strace, tool
from tests.kernel.cases import (
    RESTARTING,
    VARYING,
    Case,
    Truth,
    all_cases,
    command,
    read_truth,
)
from tests.kernel.conftest import Workload

pytestmark = pytest.mark.root


class Observed(NamedTuple):
    case: Case
    truth: Truth
    report: tool.Report


@pytest.fixture(scope="module", autouse=True)
def nothing_left_over_by_any(require: object) -> Iterator[None]:
    before = leftovers.loaded()
    yield
    assert not any(leftovers.left_over_since(before))


def observe(
    program: Path, case: Case, folder: Path, environment: Optional[Dict[str, str]] = None
) -> Observed:
    told = folder / "truth.json"
    report = tool.run(command(program, case, told), folder / "report.json", environment)
    return Observed(case, read_truth(told), report)


@pytest.fixture(scope="module", params=all_cases(), ids=str)
def observed(
    request: pytest.FixtureRequest, workload: Workload, tmp_path_factory: pytest.TempPathFactory
) -> Observed:
    folder = tmp_path_factory.mktemp("observed")
    return observe(workload(64), request.param, folder)


def test_every_row_is_the_truth(observed: Observed) -> None:
    assert tool.rows(observed.report) == observed.truth.rows


def test_nothing_is_in_flight_after_the_end(observed: Observed) -> None:
    assert tool.in_flight(observed.report) == {}


def test_every_call_has_a_latency_and_possible_times(observed: Observed) -> None:
    assert tool.impossible_times(observed.report) == []


def test_nothing_is_lost(observed: Observed) -> None:
    probe = observed.report["probe"]
    assert probe["events_lost"] == {"map_full": 0, "ring_full": 0, "missed": 0}
    assert probe["events_counted"] == sum(observed.truth.calls_by_name().values())


def test_served_requests_are_the_turns_made(observed: Observed) -> None:
    if observed.truth.requests is None:
        pytest.skip("this workload makes no requests")
    served = observed.report["requests"]["served"]
    assert served["count"] == observed.truth.requests
    assert served["latency_us"]["count"] == observed.truth.requests


def test_calls_per_request_add_up(observed: Observed) -> None:
    if observed.truth.requests is None:
        pytest.skip("this workload makes no requests")
    per_request = observed.report["requests"]["syscalls_per_request"]
    told = observed.truth.calls_by_name()
    assert {
        name: round(per_request["by_syscall"][name] * observed.truth.requests) for name in told
    } == told
    assert per_request["total"] == pytest.approx(sum(per_request["by_syscall"].values()))


def test_totals_are_those_of_strace_c(
    observed: Observed, workload: Workload, tmp_path: Path, strace_installed: str
) -> None:
    if observed.case.name in RESTARTING + VARYING:
        pytest.skip("another run makes another number of calls")
    counted = strace.totals(command(workload(64), observed.case, tmp_path / "truth.json"))
    told: Dict[str, strace.Totals] = {}
    for key, counts in tool.rows(observed.report).items():
        calls, errors = told.get(key.name, (0, 0))
        told[key.name] = strace.Totals(calls + counts.calls, errors + sum(counts.errors.values()))
    assert told == {name: counted[name] for name in counted if name in strace.NAMES}


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
def test_exec_changes_the_width(family: str, workload: Workload, tmp_path: Path) -> None:
    environment = {"WORKLOAD_EXEC_1": str(workload(32)), "WORKLOAD_EXEC_2": str(workload(64))}
    observed = observe(workload(64), Case("exec", family), tmp_path, environment)
    assert {key.abi for key in observed.truth.rows} == {"native", "compat"}
    assert tool.rows(observed.report) == observed.truth.rows
