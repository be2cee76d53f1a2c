"""What was seen is counted or said to be lost, also where maps are full and calls are many."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.conftest import give_up
from tests.kernel.actor import Caller
from tests.kernel.live import Live
from tests.soak.soak import CALLS, adds_up
from tests.workloads.build import BuildError
from tests.workloads.queue_process import Actor, unix
from tests.workloads.stages_program import Program, program

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

BOUNDS = "UDSPROBE_TEST_MAP_BOUNDS"
CALLS_MIN = 300_000


@pytest.fixture
def load(folder: Path) -> Iterator[Program]:
    """As many calls as two CPUs make, whose number it knows."""
    try:
        program("full_load")
    except BuildError as error:
        give_up(str(error))
    with Program("full_load", str(folder / "socket"), "2") as started:
        assert started.line() == "ready"
        yield started


def total(report: Dict[str, Any], name: str) -> int:
    rows = report["syscalls"]
    return sum(r["calls"] for r in rows if (r["name"], r["transport"]) == (name, "unix"))


def test_the_account_adds_up_in_every_interval_and_with_the_truth(
    load: Program, tmp_path: Path
) -> None:
    """Under full load an interval's reading meets calls that are being counted."""
    output = tmp_path / "report.jsonl"
    command = ["attach", "--pid", str(load.pid), "--jsonl", "--interval", "0.1"]
    with Live([*command, "--output", str(output)], tmp_path) as live:
        load.go()
        while sum(total(report, "sendto") for report in documents(output)) < CALLS_MIN:
            time.sleep(0.05)  # the CPUs are the load's
        truth = load.end()
        assert live.end(None).code == 0
    reports = documents(output)
    assert len(reports) >= 3
    assert [report["probe"] for report in reports if not adds_up(report["probe"])] == []
    counted = {name: sum(total(report, name) for report in reports) for name in CALLS}
    assert counted == {name: truth[name] for name in CALLS}


def documents(path: Path) -> List[Dict[str, Any]]:
    """The complete lines so far."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def test_the_whole_window_s_account_is_the_table_s(load: Program, tmp_path: Path) -> None:
    with Live(["attach", "--pid", str(load.pid), "--json"], tmp_path) as live:
        load.go()
        load.end()
        report = live.end(None).report
    assert adds_up(report["probe"])
    rows = sum(row["calls"] for row in report["syscalls"])
    assert rows == report["probe"]["events_counted"] > 0


@pytest.mark.parametrize(("bound", "connections"), [(4, 20), (16, 64)])
def test_connections_beyond_the_map_are_told_and_their_calls_counted(
    folder: Path, tmp_path: Path, bound: int, connections: int
) -> None:
    place = unix(folder / "s")
    with Actor() as server, Actor() as client:
        server.listen(place, 128)
        command = ["attach", "--pid", str(server.pid), "--json"]
        with Live(command, tmp_path, environment={BOUNDS: f"connections={bound}"}) as live:
            client.connect(place, connections)
            server.do("accept", listener=0, count=connections, keep=True)
            report = live.end().report
    probe = report["probe"]
    assert total(report, "accept4") + total(report, "accept") == connections
    assert probe["turned_away_by_map"] == {"connections": connections - bound}
    assert probe["turned_away"] == connections - bound
    assert adds_up(probe)
    (finding,) = [each for each in report["findings"] if each["id"] == "measurement-incomplete"]
    assert finding["severity"] == "warning"
    assert f"(connections {connections - bound})" in finding["evidence"][0]["says"]


def test_listeners_beyond_the_map_are_told(folder: Path, tmp_path: Path) -> None:
    with Actor() as server:
        command = ["attach", "--pid", str(server.pid), "--json"]
        with Live(command, tmp_path, environment={BOUNDS: "listeners=3"}) as live:
            for number in range(8):
                server.listen(unix(folder / f"s{number}"), 5)
            report = live.end().report
    assert report["probe"]["turned_away_by_map"]["listeners"] >= 5
    # Without events they are still listed, by the kernel's own list.
    assert len(report["listeners"]) == 8
    assert sum(row["depth"]["max"] is not None for row in report["listeners"]) == 3


def test_processes_beyond_the_map_are_told_and_their_calls_counted(tmp_path: Path) -> None:
    with Caller() as caller:
        command = ["attach", "--pid", str(caller.pid), "--json"]
        with Live(command, tmp_path, environment={BOUNDS: "processes=1"}) as live:
            calls = caller.does("call", 5) + caller.does("fork", 10)
            report = live.end().report
    assert report["probe"]["turned_away_by_map"] == {"processes": 1}
    assert total(report, "sendto") == calls


def test_threads_beyond_the_room_are_told_and_the_others_counted(tmp_path: Path) -> None:
    """The first entry is nobody's: of two, one is left for the process itself."""
    with Caller() as caller:
        command = ["attach", "--pid", str(caller.pid), "--json"]
        with Live(command, tmp_path, environment={BOUNDS: "thread_states=2"}) as live:
            calls = caller.does("call", 5)
            caller.does("fork", 10)
            calls += caller.does("call", 5)
            report = live.end().report
    assert report["probe"]["turned_away_by_map"] == {"threads": 1}
    assert total(report, "sendto") == calls


def test_destinations_beyond_the_table_are_told(folder: Path, tmp_path: Path) -> None:
    """The table's own bound, 256: a request to each of 270 addresses, and who had no room."""
    with Actor() as server, Actor() as client:
        places = [unix(folder / f"s{number}") for number in range(270)]
        for place in places:
            server.listen(place, 5)
        with Live(["attach", "--pid", str(client.pid), "--json"], tmp_path) as live:
            for number, place in enumerate(places):
                client.connect(place)
                client.do("send", connection=number)
            report = live.end().report
    assert report["probe"]["turned_away_by_map"] == {"upstreams": 270 - 256}
    assert total(report, "connect") == 270
    assert adds_up(report["probe"])


def test_the_loss_is_said_in_plain_text(folder: Path, tmp_path: Path) -> None:
    place = unix(folder / "s")
    with Actor() as server, Actor() as client:
        server.listen(place, 128)
        command = ["attach", "--pid", str(server.pid), "--plain"]
        with Live(command, tmp_path, environment={BOUNDS: "connections=4"}) as live:
            client.connect(place, 20)
            server.do("accept", listener=0, count=20, keep=True)
            text = live.end().out
    assert "NO ROOM FOR 16 (connections 16)" in text
