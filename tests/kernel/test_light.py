"""Detail `light` against the truth of what it observed: requests, bytes and queues equal.

No program is on system calls then, so a workload's calls are compared by what they moved.
"""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Callable, Dict, NamedTuple, Set, Tuple

import pytest

from tests.kernel import tool
from tests.kernel.cases import URING, Case, Truth, all_cases, command, is_of_requests, read_truth
from tests.workloads.queue_process import Actor
from udsprobe.kernel.abilities.light_plan import PROGRAMS

pytestmark = pytest.mark.root

Workload = Callable[[int], Path]
ObserveOnce = Callable[[Case], Tuple[Truth, tool.Report]]
LIGHT = ("--detail", "light")
# From a socket to a pipe no message is told, and splice() to a socket looks alike in the truth.
SPLICED = ("splice", "requests_splice")
SEEN = [case for case in all_cases() if case.name not in SPLICED]
REQUESTS = [case for case in all_cases() if is_of_requests(case)]


class Bytes(NamedTuple):
    sent: int
    received: int


def observe(program: Path, case: Case, folder: Path) -> Tuple[Truth, tool.Report]:
    told = folder / "truth.json"
    report = tool.run(command(program, case, told), folder / "report.json", options=LIGHT)
    return read_truth(told), report


@pytest.fixture(scope="module")
def observe_once(workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> ObserveOnce:
    """Each case is observed at its first use, and not again."""

    @cache
    def observed(case: Case) -> Tuple[Truth, tool.Report]:
        return observe(workload(64), case, tmp_path_factory.mktemp("observed"))

    return observed


def bytes_told(truth: Truth) -> Dict[Tuple[str, str], Bytes]:
    """Bytes that calls on sockets moved, by transport and type."""
    found: Dict[Tuple[str, str], Bytes] = {}
    for key, counts in truth.rows.items():
        name = key.name[len(URING) :] if key.name.startswith(URING) else key.name
        kind = (key.transport, key.socket_type or "")
        before = found.get(kind, Bytes(0, 0))
        if key.transport == "other" or not counts.bytes:
            continue
        if name.startswith(("recv", "read", "preadv")):
            found[kind] = before._replace(received=before.received + counts.bytes)
        else:
            found[kind] = before._replace(sent=before.sent + counts.bytes)
    return found


def bytes_reported(report: tool.Report) -> Dict[Tuple[str, str], Bytes]:
    return {
        (row["transport"], row["socket_type"]): Bytes(row["sent_bytes"], row["received_bytes"])
        for row in report["traffic"]
    }


@pytest.mark.parametrize("case", SEEN, ids=str)
def test_bytes_are_those_that_were_moved(case: Case, observe_once: ObserveOnce) -> None:
    truth, report = observe_once(case)
    assert bytes_reported(report) == bytes_told(truth)


@pytest.mark.parametrize("case", REQUESTS, ids=str)
def test_served_requests_are_the_turns_made(case: Case, observe_once: ObserveOnce) -> None:
    truth, report = observe_once(case)
    served = report["requests"]["served"]
    assert truth.requests
    # Taken out by splice(), with the next one there before the call of the reply has returned.
    missed = truth.requests - served["count"] if case.name in SPLICED else 0
    assert 0 <= missed < truth.requests / 2
    assert served["count"] == served["latency_us"]["count"] == truth.requests - missed


def test_upstream_requests_are_the_turns_made(workload: Workload, tmp_path: Path) -> None:
    """The workload is its own client: each turn is one served and one made."""
    truth, report = observe(workload(64), Case("requests", "tcp4"), tmp_path)
    upstream = report["requests"]["upstream"]
    assert sum(row["count"] for row in upstream) == truth.requests


def test_recording_is_read_back_as_it_was(workload: Workload, tmp_path: Path) -> None:
    """`record` in detail light, and the report of the file."""
    recording = tmp_path / "light.udsprobe"
    told = tmp_path / "truth.json"
    options = (*LIGHT, "--record", str(recording))
    argv = command(workload(64), Case("requests", "unix-stream"), told)
    report = tool.run(argv, tmp_path / "report.json", options=options)
    argv = [*tool.UDSPROBE, "report", str(recording), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tool.REPOSITORY)
    again = json.loads(done.stdout)
    assert again["traffic"] == report["traffic"]
    assert again["probe"]["detail"] == "light"
    assert again["requests"]["served"]["count"] == read_truth(told).requests


def test_in_a_pid_namespace_of_its_own(workload: Workload, tmp_path: Path) -> None:
    told, output = tmp_path / "truth.json", tmp_path / "report.json"
    argv = command(workload(64), Case("requests", "unix-stream"), told)
    observed = [*tool.UDSPROBE, "run", *LIGHT, "--json", "--output", str(output), "--", *argv]
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    subprocess.run([*inside, *observed], check=True, cwd=tool.REPOSITORY)
    report, truth = tool.read_report(output), read_truth(told)
    assert report["requests"]["served"]["count"] == truth.requests
    assert [row["established"] for row in report["listeners"]] == [
        counts.calls for key, counts in truth.rows.items() if key.name == "accept4"
    ]


def test_32_bit_programs_are_seen_alike(workload: Workload, tmp_path: Path) -> None:
    for case in (Case("socketcall", "tcp4"), Case("sendmmsg", "unix-dgram")):
        truth, report = observe(workload(32), case, tmp_path)
        assert bytes_reported(report) == bytes_told(truth)
        assert report["requests"]["served"]["count"] == (truth.requests or 0)


def test_strategies_without_it_say_so(tmp_path: Path) -> None:
    for strategy in ("fentry", "bcc"):
        argv = [*tool.UDSPROBE, "run", *LIGHT, "--strategy", strategy, "--", "true"]
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, cwd=tool.REPOSITORY
        )
        assert done.returncode == 4
        assert "error[no-light]" in done.stderr


def test_programs_stand_at_sockets_and_processes_alone(tmp_path: Path) -> None:
    with Actor() as server, tool.Attached(["--pid", str(server.pid), *LIGHT], tmp_path) as watched:
        assert tracepoints_of(watched.pid) == PROGRAMS - {"light_listener"}


def tracepoints_of(pid: int) -> Set[str]:
    """Of the links that a process holds, as the kernel names them."""
    found: Set[str] = set()
    for each in Path(f"/proc/{pid}/fdinfo").iterdir():
        # Others come and go.
        with suppress(FileNotFoundError):
            found.update(re.findall(r"^tp_name:\s+(\w+)$", each.read_text(), re.MULTILINE))
    return found
