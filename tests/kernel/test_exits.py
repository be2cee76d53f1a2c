"""How targets end, and with how many requests in hand: as wait4() says, and as many as asked."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

import pytest

from tests.conftest import Require
from tests.kernel import tool
from tests.kernel.memory_cgroup import MemoryCgroup
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.root]

SERVER = Path(__file__).resolve().parents[1] / "workloads/ending_server.py"
Row = Tuple[str, int, int, Optional[int]]


class Server:
    """The program, and its clients."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.pid = process.pid
        self._process, self._address = process, address

    def worker(self, answered: int, left: int, how: str, number: int) -> int:
        """The status of one that ended so."""
        self._start(f"{answered} {left} {how} {number}")
        clients = [self._ask() for _ in range(answered + left)]
        replies = [each.recv(1) for each in clients]
        assert replies == [b"!"] * answered + [b""] * left
        return self._status()

    def worker_of_who_leaves(self, number: int) -> int:
        """The status of one whose client says more, and leaves."""
        self._start(f"0 1 goodbye {number}")
        with self._ask() as client:
            client.sendall(b"?")
        return self._status()

    def _start(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _status(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def _ask(self) -> socket.socket:
        is_tcp = self._address.isdigit()
        client = socket.socket(socket.AF_INET if is_tcp else socket.AF_UNIX)
        client.settimeout(PATIENCE_S)
        client.connect(("127.0.0.1", int(self._address)) if is_tcp else self._address)
        client.sendall(b"?")
        return client


@contextmanager
def served(folder: Path, is_tcp: bool = False) -> Iterator[Server]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, str(SERVER), "tcp" if is_tcp else str(folder / "s")],
        stdin=pipe,
        stdout=pipe,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        address = process.stdout.readline().strip()
        try:
            yield Server(process, address)
        finally:
            process.stdin.close()
            process.wait(PATIENCE_S)


def exits(report: tool.Report) -> List[Row]:
    names = ("how", "processes", "served", "unanswered")
    return sorted(tuple(row[name] for name in names) for row in report["exits"])


def test_each_end_is_counted_by_its_status(tmp_path: Path) -> None:
    with served(tmp_path) as server, tool.Attached(["--pid", str(server.pid)], tmp_path) as watch:
        assert server.worker(2, 0, "status", 0) == 0
        for _ in range(3):
            assert server.worker(2, 1, "status", 3) == 3 << 8
        assert server.worker(0, 0, "status", 1) == 1 << 8
        for number in (signal.SIGSEGV, signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM):
            assert server.worker(1, 4, "signal", number) & 0x7F == number
        assert server.worker(1, 0, "signal", signal.SIGRTMIN + 3) == signal.SIGRTMIN + 3
    assert exits(watch.report) == [
        ("SIGKILL", 1, 1, 4),
        ("SIGSEGV", 2, 2, 8),
        ("SIGTERM", 1, 1, 4),
        (f"signal {signal.SIGRTMIN + 3}", 1, 1, 0),
        ("status 1", 1, 0, 0),
        ("status 3", 3, 3, 3),
    ]
    assert {row["comm"] for row in watch.report["exits"]} == {watch.report["targets"][0]["comm"]}
    assert watch.report["targets_exited"] == 10


def test_a_clients_goodbye_is_owed_no_reply(tmp_path: Path) -> None:
    """As of SSH over TCP, whose servers end with status 255 once their clients have left."""
    with (
        served(tmp_path, is_tcp=True) as server,
        tool.Attached(["--pid", str(server.pid)], tmp_path) as watch,
    ):
        for _ in range(3):
            assert server.worker_of_who_leaves(3) == 3 << 8
        assert server.worker(1, 1, "status", 4) == 4 << 8
    assert exits(watch.report) == [("status 3", 3, 3, 0), ("status 4", 1, 1, 1)]
    assert watch.report["verdict"]["cause"] == "unknown"


def test_who_is_killed_for_its_memory_is_told_from_who_is_killed(
    tmp_path: Path, require: Require
) -> None:
    with MemoryCgroup() as cgroup, served(tmp_path) as server:
        cgroup.add(server.pid)
        cgroup.limit(48 << 20)
        with tool.Attached(["--pid", str(server.pid)], tmp_path) as watch:
            for _ in range(3):
                assert server.worker(4, 2, "memory", 400) == signal.SIGKILL
            assert server.worker(4, 2, "signal", signal.SIGKILL) == signal.SIGKILL
        assert cgroup.kills() == 3
    assert exits(watch.report) == [("SIGKILL", 1, 1, 2), ("out of memory", 3, 3, 6)]
    verdict = watch.report["verdict"]
    assert (verdict["cause"], verdict["harm"]["kind"]) == ("app-failing", "failed")
    assert "3 processes" in verdict["summary"] and "killed, out of memory" in verdict["summary"]


def test_at_detail_light_it_is_told_how_and_not_with_what_in_hand(tmp_path: Path) -> None:
    selectors = ["--detail", "light", "--pid"]
    with (
        served(tmp_path) as server,
        tool.Attached([*selectors, str(server.pid)], tmp_path) as watch,
    ):
        assert server.worker(2, 1, "signal", signal.SIGSEGV) & 0x7F == signal.SIGSEGV
        assert server.worker(2, 0, "status", 7) == 7 << 8
    assert exits(watch.report) == [("SIGSEGV", 1, 1, None), ("status 7", 1, 1, None)]
