"""Who accepts: pre-fork pools, stopped workers, listeners that were handed over."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple

import pytest

from tests.conftest import Require, give_up
from tests.kernel import tool
from tests.kernel.tool import row_of
from tests.patience import PATIENCE_S
from tests.workloads.queue_process import Actor, Answer, tcp, unix

pytestmark = [pytest.mark.root]

WORKERS, ATTEMPTS = 4, 3
REQUESTS = 200
WORKLOADS = Path(__file__).resolve().parent.parent / "workloads"
Row = Dict[str, Any]


@pytest.fixture
def folder(reachable: Path) -> Path:
    return reachable


class Pool:
    """A pre-fork server on a Unix socket.

    Attributes:
        pid: of its first process.
        workers: PIDs of those that answer.
    """

    def __init__(self, argv: List[str], path: Path, log: Path) -> None:
        self.path = path
        self._log = log
        with log.open("w") as output:
            self._process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
        self.pid = self._process.pid
        self.workers: List[int] = []

    def wait_for_workers(self, ready: str, pid_before: str) -> None:
        """Until its log says `ready`; then each word behind `pid_before` is a worker."""
        give_up_at = time.monotonic() + PATIENCE_S
        while self._log.read_text().count(ready) < (WORKERS if ready == pid_before else 1):
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < give_up_at, self._log.read_text()
            time.sleep(0.01)
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        self.workers = sorted(map(int, children.split()))
        assert len(self.workers) == WORKERS

    def stop_one(self) -> int:
        """SIGSTOP to a worker, which has taken effect on return."""
        stopped = self.workers[0]
        os.kill(stopped, signal.SIGSTOP)
        while Path(f"/proc/{stopped}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)
        return stopped

    def ask(self, requests: int) -> Counter[str]:
        """One connection a request; who answered how often."""
        answers: Counter[str] = Counter()
        for _ in range(requests):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(PATIENCE_S)
                sock.connect(str(self.path))
                sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                with sock.makefile("rb") as stream:
                    answers[stream.read().split()[-1].decode()] += 1
        return answers

    def end(self) -> None:
        for pid in self.workers:
            os.kill(pid, signal.SIGCONT)
        self._process.terminate()
        self._process.wait(PATIENCE_S)


@pytest.fixture
def gunicorn(folder: Path) -> Iterator[Pool]:
    if importlib.util.find_spec("gunicorn") is None:
        give_up("gunicorn is not installed: scripts/setup --for-tests")
    path = folder / "app.sock"
    argv = [sys.executable, "-m", "gunicorn", "--workers", str(WORKERS), "--timeout", "0"]
    argv += ["--no-control-socket"] if _has_control_socket() else []
    argv += ["--bind", f"unix:{path}", "--chdir", str(WORKLOADS), "queue_wsgi:application"]
    pool = Pool(argv, path, folder / "log")
    try:
        pool.wait_for_workers("Booting worker", "Booting worker")
        yield pool
    finally:
        pool.end()


def _has_control_socket() -> bool:
    argv = [sys.executable, "-m", "gunicorn", "--help"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return "--no-control-socket" in said


@pytest.fixture(params=["rr", "none"])
def cluster(request: pytest.FixtureRequest, require: Require, folder: Path) -> Iterator[Pool]:
    path, script = folder / "app.sock", WORKLOADS / "queue_cluster.js"
    argv = [require("node")["node"], str(script), str(path), str(WORKERS), request.param]
    pool = Pool(argv, path, folder / "log")
    try:
        pool.wait_for_workers("ready", "listening")
        yield pool
    finally:
        pool.end()


def row_at(report: tool.Report, path: Path) -> Row:
    # Node's primary binds the shorter of the absolute path and the one from its directory.
    (row,) = [row for row in report["listeners"] if Path(row["address"]).resolve() == path]
    assert isinstance(row, dict)
    return row


def taken(row: Row, pids: List[int]) -> Dict[str, int]:
    """What these processes accepted, those which accepted something."""
    return {pid: n for pid, n in row["accepted_by"].items() if n and int(pid) in pids}


def assert_all_accounted(row: Row, requests: int) -> None:
    assert row["established"] == row["accepted"] == requests
    assert sum(row["accepted_by"].values()) == requests
    assert sum(row["accepted_by_thread"].values()) == requests
    assert row["wait_us"]["count"] == requests


# ------------------------------------------------------------ real pools


def test_gunicorn(gunicorn: Pool, tmp_path: Path) -> None:
    with tool.Attached(["--pid", str(gunicorn.pid)], tmp_path) as watched:
        answers = gunicorn.ask(REQUESTS)
    row = row_at(watched.report, gunicorn.path)
    assert_all_accounted(row, REQUESTS)
    assert taken(row, gunicorn.workers) == dict(answers)
    assert set(row["pids"]) == {gunicorn.pid, *gunicorn.workers}
    assert row["accepted_by"][str(gunicorn.pid)] == 0


def test_a_stopped_gunicorn_worker_accepts_nothing(gunicorn: Pool, tmp_path: Path) -> None:
    stopped = gunicorn.stop_one()
    with tool.Attached(["--pid", str(gunicorn.pid)], tmp_path) as watched:
        answers = gunicorn.ask(REQUESTS)
    row = row_at(watched.report, gunicorn.path)
    assert_all_accounted(row, REQUESTS)
    assert row["accepted_by"][str(stopped)] == 0
    assert taken(row, gunicorn.workers) == dict(answers)


def test_a_node_cluster(cluster: Pool, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Round robin: the primary accepts and hands on. Otherwise the workers do."""
    with tool.Attached(["--pid", str(cluster.pid)], tmp_path) as watched:
        answers = cluster.ask(REQUESTS)
    row = row_at(watched.report, cluster.path)
    assert_all_accounted(row, REQUESTS)
    assert sum(answers.values()) == REQUESTS
    if request.node.callspec.params["cluster"] == "rr":
        assert taken(row, [cluster.pid, *cluster.workers]) == {str(cluster.pid): REQUESTS}
    else:
        assert taken(row, cluster.workers) == dict(answers)


@pytest.mark.parametrize("cluster", ["none"], indirect=True)
def test_a_stopped_node_worker_accepts_nothing(cluster: Pool, tmp_path: Path) -> None:
    stopped = cluster.stop_one()
    with tool.Attached(["--pid", str(cluster.pid)], tmp_path) as watched:
        answers = cluster.ask(REQUESTS)
    row = row_at(watched.report, cluster.path)
    assert_all_accounted(row, REQUESTS)
    assert row["accepted_by"].get(str(stopped), 0) == 0
    assert taken(row, cluster.workers) == dict(answers)


# ------------------------------------------------------------ shared listeners


def test_forked_children_take_their_shares(folder: Path, tmp_path: Path) -> None:
    shares = [7, 0, 12, 1]
    with Actor() as server, Actor() as client:
        with tool.Attached(["--pid", str(server.pid)], tmp_path) as watched:
            heard = server.listen(unix(folder / "s"), 64)
            client.connect(unix(folder / "s"), sum(shares))
            listener = heard["listener"]
            pids = server.do("accept_by_children", listener=listener, shares=shares)["pids"]
            server.do("reap", pids=pids)
        row = row_of(watched.report, heard)
    assert_all_accounted(row, sum(shares))
    expected = {str(pid): share for pid, share in zip(pids, shares) if share}
    assert taken(row, [server.pid, *pids]) == expected


class AtOnce(NamedTuple):
    """Clients and workers on every CPU: the report, and what each of them knows."""

    report: tool.Report
    row: Row
    accepting: List[int]
    connected: List[Answer]
    took: List[Answer]


def all_at_once(
    folder: Path, tmp_path: Path, kind: str, clients: int, each: int, shares: List[int]
) -> AtOnce:
    with Actor() as server, Actor() as client:
        with tool.Attached(["--pid", str(server.pid)], tmp_path) as watched:
            address = tcp("127.0.0.1") if kind == "tcp" else unix(folder / "s", kind)
            heard = server.listen(address, 512)
            if kind == "tcp":
                address = tcp("127.0.0.1", heard["port"])
            listener = heard["listener"]
            accepting = server.do("accept_by_children", listener=listener, shares=shares)["pids"]
            arguments = {"address": address, "count": clients, "each": each}
            connecting = client.do("connect_by_children", **arguments)["pids"]
            connected = client.do("reap", pids=connecting)["answers"]
            took = server.do("reap", pids=accepting)["answers"]
        row = row_of(watched.report, heard)
    return AtOnce(watched.report, row, accepting, connected, took)


@pytest.mark.parametrize("kind", ["stream", "seqpacket", "tcp"])
def test_all_at_once(folder: Path, tmp_path: Path, kind: str) -> None:
    """Each connection is counted once, with its wait, where the kernel skipped no probe: that it
    may, when an interrupt meets one that runs, is told, and then it is all done again."""
    clients, each, workers = 4, 1000, 3
    shares = [clients * each // workers + (n < clients * each % workers) for n in range(workers)]
    for attempt in range(ATTEMPTS):
        place = folder / str(attempt)
        place.mkdir()
        report, row, accepting, connected, took = all_at_once(
            place, tmp_path, kind, clients, each, shares
        )
        if not report["probe"]["events_lost"]["missed"]:
            break
    assert report["probe"]["events_lost"]["missed"] == 0
    assert [answer["results"] for answer in connected] == [{"OK": each}] * clients
    assert_all_accounted(row, clients * each)
    assert row["accepted_early"] == 0
    assert taken(row, accepting) == {str(pid): n for pid, n in zip(accepting, shares)}
    assert sum(row["depth"]["histogram"].values()) == clients * each
    # TCP asks whether there is room before it adds, and other CPUs do so meanwhile
    # (net/ipv4/tcp_ipv4.c, tcp_v4_syn_recv_sock).
    beyond = (os.cpu_count() or 1) - 1 if kind == "tcp" else 0
    assert row["depth"]["max"] <= row["depth"]["limit"] + beyond
    least_ns = sum(a["before_ns"] for a in took) - sum(a["after_ns"] for a in connected)
    most_ns = sum(a["after_ns"] for a in took) - sum(a["before_ns"] for a in connected)
    total_us = row["wait_us"]["mean"] * row["wait_us"]["count"]
    assert least_ns / 1000 <= total_us <= most_ns / 1000


@pytest.mark.parametrize("watch", ["both", "giver", "taker"])
@pytest.mark.parametrize("place", ["unix", "tcp"])
def test_a_listener_that_was_handed_over(
    folder: Path, tmp_path: Path, watch: str, place: str
) -> None:
    """By SCM_RIGHTS. What a process accepts that is no target is seen in the depth only."""
    with Actor() as giver, Actor() as taker, Actor() as client:
        chosen = {"both": [giver, taker], "giver": [giver], "taker": [taker]}[watch]
        selectors = [word for actor in chosen for word in ("--pid", str(actor.pid))]
        address = unix(folder / "s") if place == "unix" else tcp("127.0.0.1")
        heard = giver.listen(address, 20)
        if place == "tcp":
            address = tcp("127.0.0.1", heard["port"])
        theirs = giver.hand_over(heard["listener"], taker)
        assert theirs["inode"] == heard["inode"]
        with tool.Attached(selectors, tmp_path) as watched:
            assert client.connect(address, 9)["results"] == {"OK": 9}
            taker.do("accept", listener=theirs["listener"], count=6)
            giver.do("accept", listener=heard["listener"], count=3)
        row = row_of(watched.report, heard)
    assert row["established"] == 9
    assert (row["depth"]["max"], row["depth"]["now"]) == (9, 0)
    by = {"both": {giver: 3, taker: 6}, "giver": {giver: 3}, "taker": {taker: 6}}[watch]
    assert taken(row, [giver.pid, taker.pid]) == {str(a.pid): count for a, count in by.items()}
    assert row["accepted"] == row["wait_us"]["count"] == sum(by.values())
    assert row["accepted_early"] == 0


def test_a_listener_handed_over_while_we_watch(folder: Path, tmp_path: Path) -> None:
    """Its new owner keeps it when the old one has closed it."""
    with Actor() as giver, Actor() as taker, Actor() as client:
        selectors = ["--pid", str(giver.pid), "--pid", str(taker.pid)]
        with tool.Attached(selectors, tmp_path) as watched:
            heard = giver.listen(unix(folder / "s"), 20)
            client.connect(unix(folder / "s"), 5)
            theirs = giver.hand_over(heard["listener"], taker)
            giver.do("close", listener=heard["listener"])
            client.connect(unix(folder / "s"), 5)
            taker.do("accept", listener=theirs["listener"], count=8)
        row = row_of(watched.report, heard)
    assert (row["state"], row["depth"]["now"], row["depth"]["max"]) == ("listening", 2, 10)
    assert row["pids"] == [taker.pid]
    assert (row["established"], row["accepted"]) == (10, 8)
    assert taken(row, [giver.pid, taker.pid]) == {str(taker.pid): 8}
