"""The workloads' own account against strace. Needs neither udsprobe nor root."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict

import pytest

from tests.kernel import strace
from tests.kernel.cases import (
    RESTARTING,
    URING,
    VARYING,
    Case,
    Truth,
    all_cases,
    command,
    read_truth,
)

Workload = Callable[[int], Path]

pytestmark = pytest.mark.usefixtures("strace_installed")

# strace names an O_PATH descriptor by its inode; to the kernel it is no socket.
DECODED = [case for case in all_cases() if case.name != "path_only"]
REPEATABLE = [case for case in all_cases() if case.name not in RESTARTING + VARYING]
THIRTY_TWO_BITS = [
    Case("send", "unix-stream"),
    Case("read", "tcp4"),
    Case("sendmmsg", "tcp4"),
    Case("socketcall", "unix-stream"),
    Case("socketcall", "tcp4"),
]


def as_strace_tells(truth: Truth) -> Dict[strace.Key, strace.Row]:
    """strace does not tell Unix seqpacket and dgram sockets apart, and sees no ring at work."""
    told: Dict[strace.Key, strace.Row] = {}
    for key, counts in truth.rows.items():
        if key.name.startswith(URING):
            continue
        transport = key.transport
        if transport == "unix":
            transport = "unix-stream" if key.socket_type == "stream" else "unix-packet"
        row = told.setdefault(strace.Key(key.name, transport, key.abi), strace.Row())
        row.calls += counts.calls
        row.bytes += counts.bytes
        row.errors.update(counts.errors)
    return told


def assert_traced_as_told(program: Path, case: Case, tmp_path: Path, **options: object) -> None:
    truth_path = tmp_path / "truth.json"
    traced = strace.rows(command(program, case, truth_path), tmp_path / "trace", **options)
    assert traced == as_strace_tells(read_truth(truth_path))


@pytest.mark.parametrize("case", DECODED, ids=str)
def test_every_row_is_as_traced(case: Case, workload: Workload, tmp_path: Path) -> None:
    assert_traced_as_told(workload(64), case, tmp_path)


@pytest.mark.parametrize("case", THIRTY_TWO_BITS, ids=str)
def test_every_row_of_32_bits_is_as_traced(case: Case, workload: Workload, tmp_path: Path) -> None:
    assert_traced_as_told(workload(32), case, tmp_path)


def test_exec_between_widths_is_as_traced(workload: Workload, tmp_path: Path) -> None:
    environment = {"WORKLOAD_EXEC_1": str(workload(32)), "WORKLOAD_EXEC_2": str(workload(64))}
    case = Case("exec", "unix-stream")
    assert_traced_as_told(workload(64), case, tmp_path, env=environment)


@pytest.mark.parametrize("case", REPEATABLE, ids=str)
def test_totals_are_those_of_strace_c(case: Case, workload: Workload, tmp_path: Path) -> None:
    truth_path = tmp_path / "truth.json"
    counted = strace.totals(command(workload(64), case, truth_path))
    calls = {name: total.calls for name, total in counted.items() if name in strace.NAMES}
    told = read_truth(truth_path).calls_by_name()
    assert calls == {name: told[name] for name in told if not name.startswith(URING)}
