"""`compare` on real runs: the same traffic seen twice is no difference, and stages add up."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.conftest import Require
from tests.kernel import live, servers
from tests.kernel.live import Live

pytestmark = pytest.mark.root

SCRIPT = Path(__file__).parents[1] / "workloads" / "http_server.js"
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
END_OF_REPLY = b"0\r\n\r\n"
CONNECTIONS = 3
INTERVALS = 8
# A window's mean is rounded to 0.001 µs, and five of them make the identity.
ROUNDING_US = 0.01

Document = Dict[str, Any]


def converse(address: servers.Address, until: list[Path]) -> int:
    """Requests, one at a time, until each file has INTERVALS lines; how many."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    asked = 0
    while True:
        for _ in range(CONNECTIONS):
            with socket.socket(family) as client:
                client.connect(address)
                for _ in range(100):
                    ask(client)
            asked += 100
        if all(path.read_bytes().count(b"\n") >= INTERVALS for path in until):
            return asked


def ask(client: socket.socket) -> None:
    client.sendall(REQUEST)
    reply = b""
    while not (reply.endswith(END_OF_REPLY) or b"\r\n\r\nhello\n" in reply):
        received = client.recv(65536)
        assert received, "the server hung up"
        reply += received


def observed(server: servers.Server, folder: Path, *names: str) -> int:
    """Write a file of intervals for each name, all of them about the same requests."""
    files = [folder / name for name in names]
    options = ["--pid", str(server.pid), "--jsonl", "--interval", "0.2"]
    observers = [
        Live(["attach", *options, "--output", str(file)], folder, f"{file.name}.ready")
        for file in files
    ]
    try:
        asked = converse(server.address, files)
        for observer in observers:
            ended = observer.end()
            assert ended.code == 0, ended.err
    finally:
        for observer in observers:
            observer.__exit__()
    return asked


def compared(a: Path, b: Path) -> Document:
    ended = live.answer(["compare", str(a), str(b), "--json"])
    assert (ended.code, ended.err) == (0, "")
    return ended.report


def named(found: Document, name: str) -> Document:
    rows: List[Document] = [*found["figures"], *found["stages"], *found["syscalls"]]
    return next(row for row in rows if row["name"] == name)


@pytest.fixture(scope="module")
def node(require: Require) -> str:
    return require("node")["node"]


def test_the_same_requests_seen_twice_are_no_difference(node: str, tmp_path: Path) -> None:
    with servers.node(node, SCRIPT, tmp_path) as server:
        asked = observed(server, tmp_path, "a", "b")
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found["a"]["requests"] == found["b"]["requests"] == asked
    assert found["different"] is False, found["summary"]
    assert named(found, "latency_mean")["exceeds_noise"] is False
    assert "difference" in found["summary"]
    for name in ("socket_bytes_per_request", "connections_per_request"):
        row = named(found, name)
        assert row["a"] == row["b"], name
    assert named(found, "connections_per_request")["a"] == pytest.approx(0.01)


def test_stages_of_tcp_against_unix_add_up(node: str, tmp_path: Path) -> None:
    asked = {}
    (tmp_path / "tcp").mkdir()
    with servers.node_on_tcp(node, SCRIPT, tmp_path / "tcp") as server:
        asked["a"] = observed(server, tmp_path, "a")
    with servers.node(node, SCRIPT, tmp_path) as server:
        asked["b"] = observed(server, tmp_path, "b")
    found = compared(tmp_path / "a", tmp_path / "b")
    assert {side: found[side]["requests"] for side in "ab"} == asked
    assert [found[side]["served_on"][0].split()[0] for side in "ab"] == ["tcp", "unix"]
    assert_stages_add_up(found)
    for side in "ab":
        assert_before_accept_is_accept_wait(tmp_path / side, named(found, "before_accept")[side])
    assert named(found, "socket_bytes_per_request")["exceeds_noise"] is False
    page = tmp_path / "page.html"
    ended = live.answer(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--html", str(page)])
    assert ended == (0, "", "")
    assert found["summary"].split(":")[0] in page.read_text()


def test_a_recording_is_compared_like_a_file_of_intervals(node: str, tmp_path: Path) -> None:
    recording = tmp_path / "a.recording"
    with servers.node(node, SCRIPT, tmp_path) as server:
        options = ["--pid", str(server.pid), "--interval", "0.2", "-o", str(recording)]
        with Live(["record", *options], tmp_path) as recorder:
            asked = observed(server, tmp_path, "b")
            assert recorder.end().code == 0
    found = compared(recording, tmp_path / "b")
    assert found["a"]["requests"] == found["b"]["requests"] == asked
    assert found["different"] is False, found["summary"]
    assert [found[side]["percentiles_from"] for side in "ab"] == ["intervals"] * 2
    assert found["a"]["intervals"] >= INTERVALS
    assert_stages_add_up(found)


def assert_stages_add_up(found: Document) -> None:
    mean = named(found, "latency_mean")
    for side in ("a", "b", "delta"):
        parts = sum(stage[side] for stage in found["stages"])
        assert parts == pytest.approx(mean[side], rel=1e-5, abs=ROUNDING_US), side
    shares = [stage["share_of_delta_pct"] for stage in found["stages"]]
    if mean["delta"]:
        apart = 100 * ROUNDING_US / abs(mean["delta"]) + 0.01
        assert sum(shares) == pytest.approx(100, abs=apart)


def assert_before_accept_is_accept_wait(file: Path, before_accept_us: float) -> None:
    """What is in no stage is waiting for accept(): never more than `accept_wait`, never less
    than nothing."""
    served = [json.loads(line)["requests"]["served"] for line in file.read_text().splitlines()]
    waits = [each["stages_us"]["accept_wait"] for each in served]
    waited_us = sum(each["count"] * (each["mean"] or 0) for each in waits)
    requests = sum(each["count"] for each in served)
    assert sum(each["count"] for each in waits) * 100 == requests
    assert -ROUNDING_US <= before_accept_us <= waited_us / requests + ROUNDING_US
