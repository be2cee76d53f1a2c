"""Detail `auto` where there is no light: full windows, and nothing with a probe between them.

This kernel has the tracepoints of light. That it has them is not told to udsprobe here: all else
is as on a kernel before Linux 6.3, but that full windows see more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator, List

import jsonschema
import pytest

from tests.kernel import exporting as export_module
from tests.kernel import live as live_module
from tests.kernel.at_rest import wait_until_at_rest
from tests.kernel.demo_server import REQUESTS, Demo
from tests.kernel.exporting import Exporting
from tests.kernel.live import Live, answer
from tests.kernel.test_auto import (
    FORKS,
    Windows,
    made_busy,
    observer,
    often,
    quiet_between,
    served,
    tracepoints,
    until_open,
    wait_for_no_window,
    window_since,
)
from tests.kernel.tool import REPOSITORY
from tests.patience import PATIENCE_S
from tests.workloads.queue_process import Actor, unix
from udsprobe.auto import control
from udsprobe.recording.reader import open_recording
from udsprobe.recording.retention import Retention
from udsprobe.recording.writer import Recorder
from udsprobe.views.documents.report_document import document

__all__ = ["often", "quiet_between"]
pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over", "no_light")]

AUTO = ("--detail", "auto", "--no-stacks")
SCHEMA = json.loads((REPOSITORY / "docs" / "report.schema.json").read_text())
WITHOUT_LIGHT = """
import udsprobe.kernel.tracer
udsprobe.kernel.tracer.has_light = lambda _: False
from udsprobe.cli import main
raise SystemExit(main())
"""


@pytest.fixture
def no_light(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, and in those that tests start as `udsprobe`."""
    monkeypatch.setattr("udsprobe.kernel.tracer.has_light", lambda _: False)
    argv = [sys.executable, "-c", WITHOUT_LIGHT]
    for module in (live_module, export_module):
        monkeypatch.setattr(module, "UDSPROBE", argv)


@pytest.fixture
def demo() -> Iterator[Demo]:
    with Demo() as started:
        yield started


def test_a_window_tells_all_and_says_of_which_seconds(demo: Demo) -> None:
    """All requests fall into the first window, which ends with the observation."""
    with observer(demo.pid) as observing:
        assert not observing.has_light
        demo.load()
        report = observing.finish()
    truth = demo.truth()
    found = report.requests.served
    assert found is not None and found.count == REQUESTS == truth["requests"]
    assert sum(row.accepted or 0 for row in report.listeners or ()) == truth["accepted"]
    told = {each.name: each for each in report.probe.measurements}
    for name in ("served_requests", "accept_queue", "connections", "syscalls"):
        coverage = told[name].coverage
        assert coverage is not None
        assert 0 < coverage.observed_s <= report.window.duration_s
    assert told["listeners"].coverage is None
    assert report.probe.strategy != "none"
    jsonschema.validate(document(report), SCHEMA)


@pytest.mark.usefixtures("often")
def test_requests_between_windows_are_in_no_figure(demo: Demo) -> None:
    windows = Windows()
    with observer(demo.pid, windows) as observing, demo.loaded():
        while len(windows.found) < 4:
            report = observing.interval()
        until_open(observing, False)
        between = observing.interval()
        report = observing.finish()
    assert report.traffic is None
    assert served(report) == windows.served()[-1]
    assert served(between) in windows.served()
    assert 0 < sum(windows.served()) <= demo.truth()["requests"]


@pytest.mark.usefixtures("quiet_between")
def test_between_windows_udsprobe_has_no_probe(folder: Path) -> None:
    with Actor() as server:
        argv = ["attach", "--pid", str(server.pid), *AUTO, "--interval", "0.1", "--json"]
        with Live(argv, folder) as live:
            wait_for_no_window(live.pid)
            wait_until_no_probe(live.pid)
            assert live.end().code == 0


def wait_until_no_probe(pid: int) -> None:
    """They are taken away one after the other."""
    give_up_at = time.monotonic() + PATIENCE_S
    while "tp_name" in tracepoints(pid):
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@pytest.mark.usefixtures("quiet_between")
def test_a_queue_that_fills_opens_a_window_at_the_next_sample(folder: Path) -> None:
    path = unix(folder / "full.sock")
    with Actor() as server, Actor() as client, observer(server.pid) as observing:
        until_open(observing, False)
        server.listen(path, 7)
        observing.interval()
        assert not observing.control.is_open
        client.connect(path, 8)
        observing.interval()
        assert observing.control.is_open
        assert observing.control.cause == control.PRESSURE
        assert client.connect(path, 23, blocking=False)["results"] == {"EAGAIN": 23}
        report = observing.interval()
    (row,) = report.listeners or ()
    assert (row.refused, row.depth.now) == ({"EAGAIN": 23}, 8)
    assert report.verdict is not None
    assert report.verdict.cause == "accept-starved"


@pytest.mark.usefixtures("quiet_between")
def test_a_busy_process_opens_a_window() -> None:
    with made_busy() as (_, observing):
        assert observing.control.is_open


@pytest.mark.usefixtures("often")
def test_children_are_targets_and_it_ends_with_the_last() -> None:
    windows = Windows()
    parent = subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin is not None and parent.stdout is not None
    with parent, observer(parent.pid, windows) as observing:
        until_open(observing, False)
        parent.stdin.write("\n")
        parent.stdin.flush()
        child = int(parent.stdout.readline())
        until_open(observing, True)
        until_open(observing, False)
        assert windows.pids(-1) == {parent.pid, child}
        give_up_at = time.monotonic() + PATIENCE_S
        while observing.alive_pids() != sorted([parent.pid, child]):
            observing.interval()
            assert time.monotonic() < give_up_at
        by_pid = {each.pid: each for each in observing.last.targets}
        assert [by_pid[pid].via for pid in (parent.pid, child)] == ["selector", "fork"]
        parent.stdin.close()
        parent.wait(PATIENCE_S)
        while observing.targets_alive():
            observing.interval()
        assert observing.interval().targets_exited == 2


@pytest.mark.usefixtures("often")
def test_windows_are_kept_beside_a_recording_of_what_is_seen_without(
    demo: Demo, folder: Path
) -> None:
    windows, path = Windows(), str(folder / "auto.udsprobe")
    with (
        Recorder(path, Retention(ring_s=600.0)) as recorder,
        observer(demo.pid, windows, recorder=recorder) as observing,
    ):
        with demo.loaded():
            while len(windows.found) < 3:
                observing.interval()
        wait_until_at_rest([demo.pid])
        observing.finish()
    with open_recording(path) as recording:
        whole = recording.report()
        assert whole.requests.served is None
        assert whole.probe.strategy == "none"
        assert [row.address for row in whole.listeners or ()] == [demo.socket]
        found = [recording.window(each.number) for each in recording.windows()]
        assert [list(each.samples()) for each in found] == windows.found
        assert [served(each.report()) for each in found] == windows.served()
    jsonschema.validate(document(whole), SCHEMA)


def autopsies(recording: str) -> List[Any]:
    found: List[Any] = answer(["autopsies", recording, "--json"]).report["autopsies"]
    return found


def test_an_incident_is_in_the_autopsy_with_full_detail(folder: Path) -> None:
    path, recording = unix(folder / "full.sock"), str(folder / "night.udsprobe")
    with Actor() as server, Actor() as client:
        server.listen(path, 7)
        options = [*AUTO, "--interval", "0.2", "--ring", "1h"]
        argv = ["record", "-o", recording, "--pid", str(server.pid), *options]
        with Live(argv, folder) as live:
            wait_for_no_window(live.pid)
            began = time.time()
            client.connect(path, 8)
            give_up_at = time.monotonic() + PATIENCE_S
            while not window_since(recording, began):
                assert time.monotonic() < give_up_at
            client.connect(path, 5, blocking=False)
            # Between windows nobody names a cause: the window has to have been read.
            while not autopsies(recording):
                assert time.monotonic() < give_up_at
            assert live.end().code == 0
    told = answer(["report", recording, "--autopsy", "1", "--json"])
    assert told.code == 0, told.err
    report = told.report
    assert report["probe"]["detail"] == "full"
    assert report["listeners"][0]["refused"] == {"EAGAIN": 5}


def test_exported_requests_are_of_the_seconds_that_are_told(demo: Demo) -> None:
    with Exporting(["--pid", str(demo.pid), *AUTO, "--interval", "0.2"]) as exporting:
        # The first window is open for a second.
        demo.load()
        wait_for_no_window(exporting.pid)
        exporting.wait_for_samples(2)
        found = exporting.series()
        assert exporting.end().code == 0
    truth = demo.truth()["requests"]
    counted: List[float] = [found.get(("udsprobe_served_requests_total", ()), 0.0)]
    observed = found["udsprobe_observed_seconds_total", (("measurement", "served_requests"),)]
    whole = found["udsprobe_observed_seconds_total", (("measurement", "listeners"),)]
    assert 0 <= counted[0] <= truth
    assert 0 < observed < whole
    depths = [value for (name, _), value in found.items() if name.endswith("queue_fill_ratio")]
    assert depths == [0.0]
