"""Strategy `fentry` puts programs at the functions of system calls, which only those calls pass.

The tracepoints, which all calls of the host pass, are there as long as a target needs them.
"""

from __future__ import annotations

import json
import platform
import subprocess
import time
from pathlib import Path
from typing import FrozenSet, Iterator

import pytest

from tests.kernel import tool
from tests.kernel.cases import Counts, read_truth
from tests.kernel.conftest import Workload
from tests.kernel.kernel_objects import held_by
from tests.kernel.live import answer
from tests.kernel.test_calls_attached import RECVFROM, Echo, echo, wait_until_inside
from tests.patience import PATIENCE_S
from udsprobe.kernel.abilities.features import kernel_features

__all__ = ["echo"]

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

FENTRY = ("--strategy", "fentry")
TRACEPOINTS = frozenset({"sys_enter", "sys_exit"})
PAYLOAD_BYTES = 64
ROUNDS = 23
READ = {"x86_64": 0, "aarch64": 63}[platform.machine()]
UNSEEN = "programs:32-bit"


@pytest.fixture(autouse=True)
def functions() -> None:
    """Skips where this kernel has none to attach to, or does not allow it."""
    if not kernel_features().call_functions:
        pytest.skip("this kernel has no functions of system calls to attach to")
    ended = answer(["run", *FENTRY, "--json", "--", "true"])
    if ended.code == 4:
        pytest.skip(ended.line)


def bpftool(kind: str) -> list[dict[str, object]]:
    done = subprocess.run(["bpftool", "--json", kind, "list"], capture_output=True, check=True)
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def tracepoints_of(pid: int) -> FrozenSet[object]:
    """Those of system calls at which programs of a process stand."""
    names = {program["id"]: program.get("name") for program in bpftool("prog")}
    links = held_by(pid)["link"]
    held = {names.get(link["prog_id"]) for link in bpftool("link") if link["id"] in links}
    return TRACEPOINTS & held


def wait_for_tracepoints(pid: int, wanted: FrozenSet[str]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while tracepoints_of(pid) != wanted:
        assert time.monotonic() < give_up_at, tracepoints_of(pid)
        time.sleep(0.05)


def test_tracepoints_stay_until_the_call_that_began_before_is_over(
    echo: Echo, tmp_path: Path
) -> None:
    selectors = ["--pid", str(echo.process.pid), *FENTRY]
    with tool.Attached(selectors, tmp_path) as attached:
        assert tracepoints_of(attached.pid) == TRACEPOINTS
        echo.rounds()
        wait_for_tracepoints(attached.pid, frozenset())
        echo.rounds()
        wait_until_inside(echo.process, RECVFROM)
    moved = 2 * ROUNDS * PAYLOAD_BYTES
    assert tool.rows(attached.report) == {
        echo.key("recvfrom"): Counts(2 * ROUNDS, {}, moved),
        echo.key("sendto"): Counts(2 * ROUNDS, {}, moved),
    }
    assert tool.in_flight(attached.report) == {echo.key("recvfrom"): 1}


@pytest.fixture
def shell(workload: Workload, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Becomes the 32-bit workload at its second line of input."""
    run = f"exec {workload(32)} send unix-stream {tmp_path / 'truth.json'}"
    argv = ["bash", "-c", f"read seen; read go; {run}"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        wait_until_inside(process, READ)
        yield process


def say_something(shell: subprocess.Popen[bytes]) -> None:
    assert shell.stdin is not None
    shell.stdin.write(b"\n")
    shell.stdin.flush()


def test_a_32_bit_program_from_the_beginning_is_counted(workload: Workload, tmp_path: Path) -> None:
    told = tmp_path / "truth.json"
    command = [str(workload(32)), "send", "unix-stream", str(told)]
    report = tool.run(command, tmp_path / "report.json", options=FENTRY)
    assert tool.rows(report) == read_truth(told).rows
    assert {key.abi for key in tool.rows(report)} == {"compat"}
    assert UNSEEN not in report["probe"]["missed_by_program"]


def test_a_32_bit_program_that_comes_later_is_told(
    shell: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    selectors = ["--pid", str(shell.pid), *FENTRY]
    with tool.Attached(selectors, tmp_path, ending=None) as attached:
        say_something(shell)
        wait_for_tracepoints(attached.pid, frozenset())
        say_something(shell)
        assert shell.wait(PATIENCE_S) == 0
    assert attached.report["probe"]["missed_by_program"][UNSEEN] == 1
    assert attached.report["probe"]["events_lost"]["missed"] >= 1
