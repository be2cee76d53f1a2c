"""Runs the udsprobe under test, the way a user would: as a command of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from tests.kernel.at_rest import wait_until_at_rest
from tests.kernel.cases import URING, Counts, Key
from tests.patience import PATIENCE_S

Report = Dict[str, Any]
UDSPROBE = [sys.executable, "-m", "udsprobe"]
REPOSITORY = Path(__file__).resolve().parents[2]


def run(
    command: Sequence[str],
    output: Path,
    environment: Optional[Mapping[str, str]] = None,
    options: Sequence[str] = (),
) -> Report:
    """The report of `udsprobe run OPTIONS --json --output OUTPUT -- COMMAND`."""
    argv = [*UDSPROBE, "run", *options, "--json", "--output", str(output), "--", *command]
    done = subprocess.run(
        argv,
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return read_report(output)


def read_report(output: Path) -> Report:
    document = json.loads(output.read_text())
    assert isinstance(document, dict)
    return document


class Attached:
    """`udsprobe attach` from its ready file on until the block is left.

    Args:
        selectors: such as `--pid 1`.
        folder: where the report and the ready file go.
        ending: the signal that ends the window; None: it ends by itself.

    Attributes:
        report: the document; there once the block was left.
        pid: of udsprobe.
    """

    pid: int

    def __init__(
        self,
        selectors: Sequence[str],
        folder: Path,
        ending: Optional[signal.Signals] = signal.SIGINT,
    ) -> None:
        self.report: Report = {}
        self._ending = ending
        given = [pids for word, pids in zip(selectors, selectors[1:]) if word == "--pid"]
        self._pids = [int(pid) for pids in given for pid in pids.split(",") if pid.isdigit()]
        self._output = folder / "report.json"
        self._ready = folder / "ready"
        self._argv = [*UDSPROBE, "attach", *selectors, "--json", "--output", str(self._output)]
        self._argv += ["--ready-file", str(self._ready)]

    def __enter__(self) -> Attached:
        # Of an earlier observation in the same folder.
        self._ready.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            self._argv, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        try:
            self._wait_until_ready()
        except BaseException:
            self._process.kill()
            self._process.communicate()
            raise
        return self

    def _wait_until_ready(self) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not self._ready.exists():
            assert self._process.poll() is None, self._process.communicate()[1]
            assert time.monotonic() < give_up_at, "udsprobe attach was never ready"
            time.sleep(0.005)

    def __exit__(self, *raised: object) -> None:
        if self._ending is not None:
            if raised[:1] == (None,):
                wait_until_at_rest(self._pids)
            self._process.send_signal(self._ending)
        try:
            _, said = self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        if self._ending is signal.SIGKILL:
            return
        assert self._process.returncode == 0, f"exit code {self._process.returncode}: {said}"
        self.report = read_report(self._output)


def rows(report: Report) -> Dict[Key, Counts]:
    """The report's table without the rows of calls that have not returned yet."""
    return {
        _key(row): Counts(row["calls"], row["errors"], row["bytes"])
        for row in report["syscalls"]
        if row["calls"]
    }


def in_flight(report: Report) -> Dict[Key, int]:
    """Calls under way when the window ended."""
    return {_key(row): row["in_flight"] for row in report["syscalls"] if row["in_flight"]}


def calls_per_request(report: Report, *names: str) -> float:
    """Of these system calls together."""
    by_syscall: Dict[str, float] = report["requests"]["syscalls_per_request"]["by_syscall"]
    return sum(by_syscall.get(name, 0.0) for name in names)


def impossible_times(report: Report) -> List[str]:
    """Rows whose times cannot be: wall >= cpu >= 0, and a latency for each call."""
    return [
        f"{_key(row)}: wall {row['wall_us']} cpu {row['cpu_us']} slow {row['slow_us']} "
        f"calls {row['calls']} latencies {row['latency_us']['count']}"
        for row in report["syscalls"]
        if not (
            row["wall_us"] >= (row["cpu_us"] or 0) >= 0
            and (row["cpu_us"] is None) == row["name"].startswith(URING)
            and row["wall_us"] >= row["slow_us"] >= 0
            and row["latency_us"]["count"] == row["calls"]
        )
    ]


def _key(row: Mapping[str, Any]) -> Key:
    return Key(row["name"], row["transport"], row["socket_type"], row["abi"])


def row_of(report: Report, heard: Mapping[str, Any]) -> Dict[str, Any]:
    """The one row of the listener that an actor told of."""
    (row,) = [row for row in report["listeners"] if row["inode"] == heard["inode"]]
    assert isinstance(row, dict)
    return row
