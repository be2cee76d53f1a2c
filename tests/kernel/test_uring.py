"""io_uring: every completion of a server and a client that make no other socket calls."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Counter as CounterOf
from typing import Dict, List, NamedTuple, Tuple

import pytest

from tests.conftest import give_up
from tests.kernel import measured, tool
from tests.patience import PATIENCE_S
from tests.workloads.build import BuildError
from tests.workloads.stages_program import Program, program
from udsprobe.kernel.proc.limits import read_int

pytestmark = [pytest.mark.root]

NAME = "uring_ops"
# What each end answers and asks for: five rounds of four pairs, zero-copy, splice, six shots.
TURNS, SHOTS = 5 * 4 + 2 + 6, 6
SOCKET_CALLS = {"accept", "accept4", "recvfrom", "sendto", "recvmsg", "sendmsg", "readv", "writev"}


class Row(NamedTuple):
    calls: int = 0
    bytes: int = 0
    errors: Tuple[Tuple[str, int], ...] = ()


Table = Dict[Tuple[str, str], Row]


@pytest.fixture(scope="module")
def operations() -> Path:
    try:
        built = program(NAME)
    except BuildError as error:
        give_up(f"no workload: {error}")
        raise
    if read_int("/proc/sys/kernel/io_uring_disabled") == 2:
        give_up("io_uring is disabled on this host (kernel.io_uring_disabled)")
    return built


def truth(text: str, transport: str) -> Table:
    """What the workload printed: its server's and its client's account together."""
    counts: Dict[Tuple[str, str], Tuple[int, int]] = {}
    errors: Dict[Tuple[str, str], CounterOf[str]] = {}
    for line in text.splitlines():
        _, name, on, calls, moved, *failed = line.split()
        key = f"io_uring:{name}", transport if on == "socket" else "other"
        before = counts.get(key, (0, 0))
        counts[key] = before[0] + int(calls), before[1] + int(moved)
        for word in failed:
            error, _, number = word.partition("=")
            errors.setdefault(key, Counter())[error] += int(number)
    return {
        key: Row(*pair, tuple(sorted(errors.get(key, Counter()).items())))
        for key, pair in counts.items()
    }


def reported(report: tool.Report, transport: str) -> Table:
    """The rows of io_uring. Who connects to a path that is nowhere has a Unix socket."""
    table: Table = {}
    for row in report["syscalls"]:
        if not row["name"].startswith("io_uring:"):
            continue
        key = row["name"], row["transport"]
        if row["name"] == "io_uring:connect":
            key = row["name"], transport
        known = table.get(key, Row())
        errors = Counter(dict(known.errors)) + Counter(row["errors"])
        table[key] = Row(
            known.calls + row["calls"], known.bytes + row["bytes"], tuple(sorted(errors.items()))
        )
    return table


def observed(command: List[str], output: Path) -> Tuple[tool.Report, str]:
    """The report of a command's run, and what it printed."""
    argv = [*tool.UDSPROBE, "run", "--json", "--output", str(output), "--", *command]
    done = subprocess.run(
        argv,
        cwd=tool.REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return tool.read_report(output), done.stdout


@pytest.mark.parametrize("mode", ["plain", "async", "sqpoll", "fixed", "leaderless"])
@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_every_operation_is_counted(
    operations: Path, tmp_path: Path, transport: str, mode: str
) -> None:
    report, said = observed([str(operations), transport, mode], tmp_path / "report.json")
    assert reported(report, transport) == truth(said, transport)
    turns = TURNS + (1 if mode == "fixed" else 0)
    assert report["requests"]["served"]["count"] == turns
    (upstream,) = report["requests"]["upstream"]
    assert (upstream["transport"], upstream["count"]) == (transport, turns)
    if not measured.absence("accept_queue"):
        (listener,) = report["listeners"]
        assert (listener["established"], listener["accepted"]) == (SHOTS + 1, SHOTS + 1)
    assert report["probe"]["events_lost"] == {"map_full": 0, "ring_full": 0, "missed": 0}
    # All from its submission on: nothing began before we looked.
    for row in report["syscalls"]:
        if row["name"].startswith("io_uring:"):
            assert row["latency_us"]["count"] == row["calls"]
            assert (row["cpu_us"], row["in_flight"]) == (None, None)
    by_result = {each["address"]: each["errors"] for each in report["connects"]}
    assert by_result["/nonexistent/udsprobe"] == {"ENOENT": 1}
    assert all(target["state"] == "exited" for target in report["targets"])


@pytest.mark.parametrize("mode", ["silent", "crowded"])
@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_what_completes_without_a_word_is_said_to_be_missing(
    operations: Path, tmp_path: Path, transport: str, mode: str
) -> None:
    report, said = observed([str(operations), transport, mode], tmp_path / "report.json")
    told = truth(said, transport)
    if mode == "crowded":
        assert told.pop(("io_uring:send", transport)).calls == SHOTS
    assert reported(report, transport) == told
    probe = report["probe"]
    assert probe["events_lost"] == {"map_full": 0, "ring_full": 0, "missed": SHOTS}
    assert probe["missed_by_program"]["io_uring:untold"] == SHOTS
    assert probe["events_seen"] == probe["events_counted"] + SHOTS


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_multishot_armed_before_we_came(operations: Path, tmp_path: Path, transport: str) -> None:
    with Program(NAME, transport, "plain", "hold") as held:
        assert held.line() == "armed"
        with tool.Attached(["--pid", str(held.pid)], tmp_path, ending=None) as watched:
            held.go()
            said = [held.line(), held.line()]
    rows = reported(watched.report, transport)
    assert rows == truth("\n".join(said), transport)
    assert rows["io_uring:accept", transport].calls == SHOTS
    assert rows["io_uring:recv", transport].calls == SHOTS
    (listener,) = [one for one in watched.report["listeners"] if one["transport"] == transport]
    assert (listener["established"], listener["accepted"]) == (SHOTS, SHOTS)


def test_strace_sees_none_of_it(operations: Path, strace_installed: str, tmp_path: Path) -> None:
    """The operations that udsprobe counts, and what `strace -c` shows of the same program."""
    summary = tmp_path / "strace"
    command = [strace_installed, "-f", "-c", "-o", str(summary), str(operations), "unix", "plain"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    counted = truth(done.stdout, "unix")
    assert counted["io_uring:recv", "unix"].calls > TURNS
    shown = set(re.findall(r"^ .*?\s(\w+)$", summary.read_text(), re.MULTILINE))
    assert "io_uring_enter" in shown
    assert not shown & SOCKET_CALLS
