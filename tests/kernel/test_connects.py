"""connect() calls of the targets themselves: whereto, with what result, how long."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

from tests.kernel import tool
from tests.workloads.queue_process import (
    OWN_NETWORK,
    Actor,
    inside,
    tcp,
    unix,
    wait_until_asleep,
)

pytestmark = [pytest.mark.root]


@pytest.fixture
def folder(reachable: Path) -> Path:
    return reachable


def towards(report: tool.Report) -> Dict[Tuple[str, str], Dict[str, Any]]:
    """(transport, address) → row; every call has its latency."""
    rows = {(row["transport"], row["address"]): row for row in report["connects"]}
    assert len(rows) == len(report["connects"])
    assert all(row["latency_us"]["count"] == row["calls"] for row in rows.values())
    return rows


def results(row: Dict[str, Any]) -> Tuple[int, Dict[str, int]]:
    return row["calls"], row["errors"]


def test_unix_destinations(folder: Path, tmp_path: Path) -> None:
    here, gone, silent = folder / "here", folder / "gone", folder / "silent"
    with Actor() as server, Actor() as client:
        server.listen(unix(here), 4)
        server.do("close", listener=server.listen(unix(silent), 1)["listener"])
        with tool.Attached(["--pid", str(client.pid)], tmp_path) as watched:
            client.connect(unix(here), 5)
            client.connect(unix(here), 3, blocking=False)
            client.connect(unix(gone), 7)
            client.connect(unix(silent), 2)
            client.connect(unix(here, "seqpacket"), 1)
            client.connect(unix(b"\0udsprobe-no-such-name"), 4)
    rows = towards(watched.report)
    assert results(rows["unix", str(here)]) == (9, {"EAGAIN": 3, "EPROTOTYPE": 1})
    assert results(rows["unix", str(gone)]) == (7, {"ENOENT": 7})
    assert results(rows["unix", str(silent)]) == (2, {"ECONNREFUSED": 2})
    assert results(rows["unix", "@udsprobe-no-such-name"]) == (4, {"ECONNREFUSED": 4})
    assert len(rows) == 4


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_tcp_destinations(host: str, tmp_path: Path) -> None:
    shown = f"[{host}]" if ":" in host else host
    with Actor(*OWN_NETWORK) as server, Actor(*inside(server, "net")) as client:
        server.do("loopback_up")
        open_port = server.listen(tcp(host), 20)["port"]
        heard = server.listen(tcp(host), 1)
        closed_port = heard["port"]
        server.do("close", listener=heard["listener"])
        with tool.Attached(["--pid", str(client.pid)], tmp_path) as watched:
            assert client.connect(tcp(host, open_port), 6)["results"] == {"OK": 6}
            tried = client.connect(tcp(host, open_port), 2, blocking=False)
            assert tried["results"] == {"EINPROGRESS": 2}
            tried = client.connect(tcp(host, closed_port), 3)
            assert tried["results"] == {"ECONNREFUSED": 3}
            tried = client.connect(tcp(host, closed_port), 5, blocking=False)
            assert tried["results"] == {"EINPROGRESS": 5}
    rows = towards(watched.report)
    assert results(rows["tcp", f"{shown}:{open_port}"]) == (8, {"EINPROGRESS": 2})
    refused = rows["tcp", f"{shown}:{closed_port}"]
    assert results(refused) == (8, {"ECONNREFUSED": 3, "EINPROGRESS": 5})
    assert refused["failed_in_background"] == {"ECONNREFUSED": 5}
    taken = rows["tcp", f"{shown}:{open_port}"]
    assert (taken["failed_in_background"], taken["connected_later_us"]) == ({}, None)
    assert len(rows) == 2


def test_tcp_connects_that_a_full_queue_does_not_answer(tmp_path: Path) -> None:
    """Three whose client gives up, and two that connect when their SYN is sent again."""
    with Actor() as server, Actor() as client:
        heard = server.listen(tcp("127.0.0.1"), 1)
        place = tcp("127.0.0.1", heard["port"])
        with tool.Attached(["--pid", str(client.pid)], tmp_path) as watched:
            for count, is_kept in ((2, True), (3, False), (2, True)):
                tried = client.connect(place, count, blocking=False, keep=is_kept)
                assert tried["results"] == {"EINPROGRESS": count}
            server.do("accept", listener=heard["listener"], count=4)
    (row,) = towards(watched.report).values()
    assert results(row) == (7, {"EINPROGRESS": 7})
    assert row["failed_in_background"] == {"ECANCELED": 3}
    later = row["connected_later_us"]
    # TCP_TIMEOUT_INIT of include/net/tcp.h, by a timer whose slot may be some ms before.
    assert later["count"] == 2 and later["mean"] > 900_000
    (found,) = [each for each in watched.report["findings"] if each["severity"] == "critical"]
    assert (found["id"], found["subject"]) == ("accept-queue-full", f"tcp:{row['address']}")


def test_the_latency_is_the_calls_own(folder: Path, tmp_path: Path) -> None:
    """A target's blocked connect: at least as long as its server was busy, at most its own time."""
    held_ms = 200
    with Actor() as server, Actor() as client:
        heard = server.listen(unix(folder / "s"), 0)
        with tool.Attached(["--pid", str(client.pid)], tmp_path) as watched:
            fast = client.connect(unix(folder / "s"), 1)
            client.start("connect", address=unix(folder / "s"), count=1)
            wait_until_asleep([client.pid])
            server.do("accept", listener=heard["listener"], count=2, after_ms=held_ms)
            slow = client.finish()
    (row,) = towards(watched.report).values()
    assert results(row) == (2, {})
    own_us = [(each["after_ns"] - each["before_ns"]) / 1000 for each in (fast, slow)]
    total_us = row["latency_us"]["mean"] * 2
    assert held_ms * 1000 <= row["latency_us"]["max"] <= own_us[1]
    assert held_ms * 1000 <= total_us <= sum(own_us) + 0.001


def test_connects_of_others_are_not_the_targets(folder: Path, tmp_path: Path) -> None:
    with Actor() as server, Actor() as client:
        watched = tool.Attached(["--pid", str(server.pid)], tmp_path)
        with watched:
            server.listen(unix(folder / "s"), 4)
            client.connect(unix(folder / "s"), 5)
            client.connect(unix(folder / "other"), 5)
    assert watched.report["connects"] == []
