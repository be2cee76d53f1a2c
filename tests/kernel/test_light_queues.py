"""Detail `light` at accept queues, of Unix and TCP: depth, limit, drops and who waits, exactly.

Nobody sees accept() and connect() then: what left a queue is what came and is not in it, and
what was refused is not measured.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.kernel import tool
from tests.kernel.live import Live
from tests.kernel.test_accept_queue import (
    KINDS,
    UNIX_KINDS,
    Places,
)
from tests.kernel.tool import row_of
from tests.patience import PATIENCE_S
from tests.workloads.queue_process import Actor, wait_until_asleep
from udsprobe.kernel.programs.loader import MAP_BOUNDS
from udsprobe.observe.collector import SWEEP_EVERY_SAMPLES

pytestmark = [pytest.mark.root]


@pytest.fixture(params=KINDS)
def places(request: pytest.FixtureRequest, reachable: Path) -> Places:
    return Places(request.param, reachable)


@pytest.fixture(params=UNIX_KINDS)
def unix_places(request: pytest.FixtureRequest, reachable: Path) -> Places:
    return Places(request.param, reachable)


def attached(server: Actor, folder: Path) -> tool.Attached:
    return tool.Attached(["--pid", str(server.pid), "--detail", "light"], folder)


def test_a_queue_filled_to_its_limit(places: Places, tmp_path: Path) -> None:
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = places.listen(server, 7)
            assert client.connect(place, 8)["results"] == {"OK": 8}
        row = row_of(watched.report, heard)
        assert row["depth"]["max"] == row["depth"]["limit"] == 8
        assert row["depth"]["now"] == row["established"] == 8
        assert row["accepted"] == 0
        assert row["backlog"] == {
            "requested": None,
            "effective": 7,
            "clamped_by": None,
            "equals_somaxconn": False,
        }


def test_what_calls_returned_is_not_measured(places: Places, tmp_path: Path) -> None:
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = places.listen(server, 4)
            client.connect(place, 3)
            server.do("accept", listener=heard["listener"], count=3)
        row = row_of(watched.report, heard)
        for name in ("accepted_by", "accepted_by_thread", "wait_us", "refused"):
            assert row[name] is None, name
        states = {each["name"]: each for each in watched.report["probe"]["measurements"]}
        for name in ("accept_wait", "refused_connects", "connects", "syscalls", "thread_time"):
            assert states[name]["state"] == "off"
            assert states[name]["reason"].startswith("detail is light: ")
        assert watched.report["syscalls"] is None
        assert watched.report["time"] is None
        assert watched.report["connects"] is None
        assert watched.report["requests"]["syscalls_per_request"] is None


def test_every_depth_on_the_way_is_in_the_histogram(places: Places, tmp_path: Path) -> None:
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = places.listen(server, 64)
            client.connect(place, 20)
            server.do("accept", listener=heard["listener"], count=15)
            client.connect(place, 25)
        row = row_of(watched.report, heard)
        seen = [*range(1, 21), *range(6, 31)]
        assert row["depth"]["histogram"] == {str(d): seen.count(d) for d in sorted(set(seen))}
        assert (row["depth"]["max"], row["depth"]["now"]) == (30, 30)
        assert (row["established"], row["accepted"]) == (45, 15)


def test_connections_queued_before_us(places: Places, tmp_path: Path) -> None:
    early, late = 6, 4
    with Actor() as server, Actor() as client:
        place, heard = places.listen(server, 20)
        client.connect(place, early)
        with attached(server, tmp_path) as watched:
            client.connect(place, late)
            server.do("accept", listener=heard["listener"], count=early + late)
        row = row_of(watched.report, heard)
        assert (row["accepted"], row["accepted_early"], row["established"]) == (10, early, late)
        assert row["depth"]["max"] == early + late
        assert row["depth"]["histogram"] == {str(depth): 1 for depth in range(7, 11)}


def test_clients_that_wait_are_told_and_the_verdict_says_stuck(
    unix_places: Places, tmp_path: Path
) -> None:
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = unix_places.listen(server, 0)
            client.connect(place, 1)
            pids = client.do("connect_by_children", address=place, count=4)["pids"]
            wait_until_asleep(pids)
        row = row_of(watched.report, heard)
        assert row["blocked_connects"] == {"count": None, "wait_us": None, "waiting_now": 4}
        assert watched.report["verdict"]["harm"]["kind"] == "stuck"
        server.do("accept", listener=heard["listener"], count=5)
        client.do("reap", pids=pids)


def test_a_queue_at_its_limit_is_a_finding_though_refusals_are_unseen(
    unix_places: Places, tmp_path: Path
) -> None:
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = unix_places.listen(server, 3)
            client.connect(place, 4)
            assert client.connect(place, 5, blocking=False)["results"] == {"EAGAIN": 5}
            server.do("accept", listener=heard["listener"], count=4)
        row = row_of(watched.report, heard)
        assert row["refused"] is None
        assert row["depth"]["max"] == row["depth"]["limit"] == 4
        (finding,) = watched.report["findings"]
        assert finding["id"] == "accept-queue-full"
        assert "--detail full tells" in finding["summary"]
        assert watched.report["verdict"]["cause"] == "unknown"
        assert "--detail full" in watched.report["verdict"]["summary"]


def test_connections_closed_unused_make_room(unix_places: Places, tmp_path: Path) -> None:
    """Nobody sees the accept() and the end of a connection on which nothing was sent."""
    batch, room = 40, 100
    documents = tmp_path / "lines"
    arguments = ["attach", "--detail", "light", "--interval", "0.1", "--jsonl"]
    bounds = {MAP_BOUNDS: f"connections={room}"}
    with Actor() as server, Actor() as client:
        arguments += ["--pid", str(server.pid), "--output", str(documents)]
        with Live(arguments, tmp_path, environment=bounds) as live:
            place, heard = unix_places.listen(server, batch)
            for _ in range(5):
                client.connect(place, batch, keep=False)
                server.do("accept", listener=heard["listener"], count=batch)
                # The second of these sweeps had begun after all of them were closed.
                wait_for_samples(documents, sample_count(documents) + 2 * SWEEP_EVERY_SAMPLES)
            assert live.end().code == 0
        told = [json.loads(line) for line in documents.read_text().splitlines()]
        assert sum(each["probe"]["turned_away"] for each in told) == 0
        rows = [row_of(each, heard) for each in told if each["listeners"]]
        assert sum(row["established"] for row in rows) == 5 * batch > room


def sample_count(documents: Path) -> int:
    return documents.read_text().count("\n") if documents.exists() else 0


def wait_for_samples(documents: Path, count: int) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while sample_count(documents) < count:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
