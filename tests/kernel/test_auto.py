"""Detail `auto`: light without a gap or a double count through windows, windows as `attach` is.

Windows come often here: what is under test is what happens at their edges.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import pytest

from tests.kernel import tool
from tests.kernel.actor import Caller
from tests.kernel.at_rest import wait_until_at_rest
from tests.kernel.cases import Case, command, read_truth
from tests.kernel.demo_server import REQUESTS, Demo
from tests.kernel.live import Live, answer
from tests.kernel.test_light import SEEN, Workload, bytes_reported, bytes_told
from tests.patience import PATIENCE_S
from tests.workloads.queue_process import Actor, unix
from udsprobe.auto import control, light_cost
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.selectors import Chosen
from udsprobe.model.report import Report
from udsprobe.observe.auto import AutoObserver, AutoOptions
from udsprobe.observe.live_observer import ObserverOptions
from udsprobe.recording.reader import open_recording
from udsprobe.recording.retention import Retention
from udsprobe.recording.writer import Recorder
from udsprobe.sample import Observation, Sample

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

AUTO = ("--detail", "auto")
OFTEN_S = 0.05
FORKS = """
import os, sys
for _ in sys.stdin:
    child = os.fork()
    if not child:
        sys.stdin.read()
        os._exit(0)
    print(child, flush=True)
"""

SENDS = """
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen(4)
print(flush=True)
connection, _ = listening.accept()
while connection.recv(1):
    for _ in range(4000):
        connection.sendall(b"." * 4096)
"""


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window follows the other, a twentieth of a second long, whatever the host is busy with."""
    monkeypatch.setattr(control, "PERIOD_S", OFTEN_S)
    monkeypatch.setattr(control, "SCHEDULED_SHARE", 1.0)
    monkeypatch.setattr(control, "VERDICT_S", 0.0)
    monkeypatch.setattr(control, "QUIET_S", -1.0)
    monkeypatch.setattr(control, "BURST_S", 0.0)
    monkeypatch.setattr("udsprobe.observe.auto.WINDOW_S", OFTEN_S)


class Windows:
    """The samples of each full window."""

    def __init__(self) -> None:
        self.found: List[List[Sample]] = []

    def take(self, _: Observation, sample: Sample) -> None:
        if sample.sequence == 0:
            self.found.append([])
        self.found[-1].append(sample)

    def pids(self, number: int) -> Set[int]:
        return {each.pid for each in self.found[number][-1].targets}

    def served(self) -> List[int]:
        """Requests between the first and the last sample of each."""
        ends = [(samples[0].served, samples[-1].served) for samples in self.found]
        return [last.count - first.count for first, last in ends if first and last]


def observer(
    pid: int,
    windows: Optional[Windows] = None,
    budget: float = 1.0,
    recorder: Optional[Recorder] = None,
    light_returns: bool = False,
    on_change: Callable[[Sample], object] = bool,
) -> AutoObserver:
    process = Procfs().process(pid)
    assert process is not None
    chosen = Chosen(pid, process.start_ticks, "selector", "test")
    options = AutoOptions(ObserverOptions(OFTEN_S, follow=True), budget, light_returns)
    told = (windows or Windows()).take
    return AutoObserver(
        [chosen], options, recorder=recorder, on_window_sample=told, on_change=on_change
    )


def served(report: Report) -> int:
    assert report.requests.served is not None
    return report.requests.served.count


def until_open(observing: AutoObserver, is_open: bool) -> Report:
    """The report of the interval after which a window is open, or none is."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        report = observing.interval()
        if observing.control.is_open == is_open:
            return report
        assert time.monotonic() < give_up_at


# what light tells is whole


@pytest.mark.parametrize("case", SEEN[:4], ids=str)
def test_bytes_are_those_that_were_moved(case: Case, workload: Workload, tmp_path: Path) -> None:
    told = tmp_path / "truth.json"
    argv = command(workload(64), case, told)
    report = tool.run(argv, tmp_path / "report.json", options=AUTO)
    truth = read_truth(told)
    assert bytes_reported(report) == bytes_told(truth)
    assert report["probe"]["detail"] == "auto"


@pytest.mark.usefixtures("often")
def test_no_request_is_lost_or_counted_twice_through_windows() -> None:
    windows = Windows()
    with Demo() as demo, observer(demo.pid, windows) as observing:
        intervals = 0
        with demo.loaded():
            while len(windows.found) < 4:
                intervals += served(observing.interval())
        wait_until_at_rest([demo.pid])
        intervals += served(observing.interval())
        whole = served(observing.finish())
        truth = demo.truth()["requests"]
    assert whole == intervals == truth
    assert 0 < sum(windows.served()) <= truth


# a window is an observation


def test_a_window_tells_what_an_attach_tells() -> None:
    """All requests fall into the first window, which ends with the observation."""
    windows = Windows()
    with Demo() as demo, observer(demo.pid, windows) as observing:
        demo.load()
        report = observing.finish()
        truth = demo.truth()
    assert windows.served() == [REQUESTS]
    moved = {"bytes_in": ("recv", "read"), "bytes_out": ("send", "write")}
    for name, calls in moved.items():
        rows = [row for row in report.syscalls or () if row.transport == "unix"]
        assert sum(row.bytes for row in rows if row.name.startswith(calls)) == truth[name]
    found = report.requests.served
    assert found is not None
    assert found.stages_us.app is not None
    assert found.stages_us.app.count == found.count == REQUESTS == truth["requests"]
    assert sum(row.accepted or 0 for row in report.listeners or ()) == truth["accepted"]


@pytest.mark.usefixtures("often")
def test_a_window_has_the_calls_that_fell_into_it_and_no_others() -> None:
    """One after the other with the same programs, and as many calls in the gaps."""
    windows, sent = Windows(), []
    with Caller() as caller, observer(caller.pid, windows) as observing:
        for number in range(5):
            until_open(observing, True)
            sent.append(caller.does("call", 10 + number) + caller.does("thread", number))
            wait_until_at_rest([caller.pid])
            report = until_open(observing, False)
            assert report.probe.maps_bytes == kept_bytes(observing)
            caller.does("call", 100)
            caller.does("thread", 7)
            wait_until_at_rest([caller.pid])
    assert [calls(samples[-1], "sendto") for samples in windows.found[:5]] == sent


def kept_bytes(observing: AutoObserver) -> int:
    """Of light's maps, and of those of full detail that wait for the next window."""
    light, kept = observing.last.probe.maps_bytes, observing._kept.maps_bytes
    assert light and kept
    return light + kept


def calls(sample: Sample, name: str) -> int:
    return sum(row.calls for row in sample.calls or () if row.name == name)


@pytest.mark.usefixtures("often")
def test_windows_behind_the_first_load_nothing() -> None:
    """What they cost is expected to be less than what the first did."""
    with Caller() as caller, observer(caller.pid) as observing:
        first_s = observing.control.used()[1]
        for _ in range(4):
            until_open(observing, True)
            full = observing._full
            assert full is not None
            loading_s = full.loading_s
            until_open(observing, False)
        assert loading_s == 0
        expected = observing._costs.opening_s
    assert expected < first_s


@pytest.mark.usefixtures("often")
def test_targets_that_fork_or_exit_between_windows() -> None:
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
        assert windows.pids(0) == {parent.pid}
        assert windows.pids(-1) == {parent.pid, child}
        parent.stdin.close()
        parent.wait(PATIENCE_S)
        while observing.targets_alive():
            observing.interval()
        count = len(windows.found)
        observing.interval()
        observing.interval()
        # Nobody is there to be looked at.
        assert len(windows.found) == count


# an incident


@pytest.fixture
def quiet_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first, windows are opened by pressure alone."""
    monkeypatch.setattr(control, "PERIOD_S", 3600.0)
    monkeypatch.setattr("udsprobe.observe.auto.WINDOW_S", OFTEN_S)


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
        window = observing.finish()
    assert report.verdict is not None and window.verdict is not None
    assert report.verdict.cause == window.verdict.cause == "accept-starved"
    (row,) = window.listeners or ()
    assert row.refused == {"EAGAIN": 23}
    told = {each.name: each.coverage for each in window.probe.measurements}
    assert told["verdict"] is not None
    assert told["refused_connects"] is not None
    assert told["accept_queue"] is None


@contextmanager
def made_busy() -> Iterator[Tuple[int, AutoObserver]]:
    """A process that is idle, then busy until a window is open: its PID, and the observer."""
    program = "import sys\nsys.stdin.readline()\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, text=True)
    try:
        assert busy.stdin is not None
        with observer(busy.pid) as observing:
            until_open(observing, False)
            busy.stdin.write("\n")
            busy.stdin.flush()
            give_up_at = time.monotonic() + PATIENCE_S
            while not observing.control.is_open:
                # Clock ticks are 10 ms: an interval has many.
                time.sleep(0.5)
                observing.interval()
                assert time.monotonic() < give_up_at
            yield busy.pid, observing
    finally:
        busy.kill()
        busy.wait()


@pytest.mark.usefixtures("quiet_between")
def test_a_busy_process_opens_a_window() -> None:
    with made_busy() as (pid, observing):
        report = observing.finish()
    assert report.time is not None and report.time.busiest is not None
    assert report.time.busiest.pid == pid


@pytest.mark.usefixtures("quiet_between")
def test_a_reader_that_stops_opens_a_window(folder: Path) -> None:
    """This process asks, and never reads the reply."""
    path = str(folder / "reader.sock")
    argv = [sys.executable, "-c", SENDS, path]
    sender = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert sender.stdout is not None
        sender.stdout.readline()
        with socket.socket(socket.AF_UNIX) as client, observer(sender.pid) as observing:
            until_open(observing, False)
            client.connect(path)
            client.send(b"?")
            until_open(observing, True)
            report = observing.interval()
            window = observing.finish()
        for each in (report, window):
            assert each.verdict is not None
            assert each.verdict.cause == "send-blocked"
    finally:
        sender.kill()
        sender.communicate()


def test_a_spent_budget_opens_none() -> None:
    with Demo() as demo, observer(demo.pid, budget=1e-9) as observing:
        until_open(observing, False)
        assert observing.control.used()[1] > 0
        for _ in range(3):
            observing.interval()
            assert not observing.control.is_open
        report = observing.finish()
    assert report.probe.detail == "auto"


# light that costs too much


@pytest.fixture
def dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Light may cost nothing: the first requests are too much."""
    monkeypatch.setattr(light_cost, "OVER_S", OFTEN_S)
    monkeypatch.setattr(light_cost, "SHARE_MAX", 1e-9)


def until_without_light(observing: AutoObserver) -> Report:
    give_up_at = time.monotonic() + PATIENCE_S
    while observing.has_light:
        report = observing.interval()
        assert time.monotonic() < give_up_at
    return report


@pytest.mark.usefixtures("often", "dear")
def test_light_that_costs_more_than_the_budget_is_taken_off(folder: Path) -> None:
    windows, path = Windows(), str(folder / "auto.udsprobe")
    changes: List[Sample] = []
    with (
        Demo() as demo,
        Recorder(path, Retention(ring_s=600.0)) as recorder,
        observer(demo.pid, windows, recorder=recorder, on_change=changes.append) as observing,
        demo.loaded(),
    ):
        until_without_light(observing)
        assert "sock_send_length" not in tracepoints(os.getpid())
        count = len(windows.found)
        while len(windows.found) < count + 2:
            observing.interval()
        until_open(observing, False)
        last, report = windows.served()[-1], observing.finish()
    assert len(changes) == 1
    assert served(report) == last
    assert report.traffic is None
    told = {each.name: each for each in report.probe.measurements}
    assert told["served_requests"].coverage is not None
    assert (told["traffic"].state, told["traffic"].coverage) == ("off", None)
    assert report.targets[0].pid == demo.pid
    with open_recording(path) as recording:
        states = {each.name: each for each in recording.report().probe.measurements}
        assert recording.report().requests.served is None
        assert states["served_requests"].state == "degraded"
        assert (states["served_requests"].reason or "").startswith("until ")
        assert list(recording.windows())


@pytest.mark.usefixtures("often", "dear")
def test_light_comes_back_when_there_is_less_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(light_cost, "AWAY_S", 0.0)
    changes: List[Sample] = []
    with (
        Demo() as demo,
        observer(demo.pid, light_returns=True, on_change=changes.append) as observing,
    ):
        with demo.loaded():
            until_without_light(observing)
        give_up_at = time.monotonic() + PATIENCE_S
        while not observing.has_light:
            observing.interval()
            assert time.monotonic() < give_up_at
        assert "sock_send_length" in tracepoints(os.getpid())
        assert changes[-1] is observing.first
        assert served(observing.window()) == 0
        demo.load()
        assert served(observing.finish()) == REQUESTS


# recordings


@pytest.mark.usefixtures("often")
def test_windows_are_kept_beside_the_recording_of_light(folder: Path) -> None:
    """Each window is read back as it was, the samples of light are whole."""
    windows, path = Windows(), str(folder / "auto.udsprobe")
    with Demo() as demo, Recorder(path, Retention(ring_s=600.0)) as recorder:
        with observer(demo.pid, windows, recorder=recorder) as observing:
            with demo.loaded():
                while len(windows.found) < 3:
                    observing.interval()
            wait_until_at_rest([demo.pid])
            light = served(observing.finish())
        truth = demo.truth()["requests"]
    with open_recording(path) as recording:
        assert served(recording.report()) == light == truth
        found = [recording.window(each.number) for each in recording.windows()]
        assert [list(each.samples()) for each in found] == windows.found
        assert [served(each.report()) for each in found] == windows.served()
        assert all(each.report().syscalls for each in found)


def window_since(recording: str, unix_s: float) -> bool:
    """Whether a window that was opened since then has samples."""
    with open_recording(recording) as found:
        return any(each.first_unix_s > unix_s for each in found.windows())


def test_an_incident_is_in_the_autopsy_with_full_detail(folder: Path) -> None:
    path, recording = unix(folder / "full.sock"), str(folder / "night.udsprobe")
    with Actor() as server, Actor() as client:
        server.listen(path, 7)
        options = [*AUTO, "--interval", "0.2", "--ring", "1h", "--no-stacks"]
        argv = ["record", "-o", recording, "--pid", str(server.pid), *options]
        with Live(argv, folder) as live:
            wait_for_no_window(live.pid)
            began = time.time()
            client.connect(path, 8)
            give_up_at = time.monotonic() + PATIENCE_S
            while not window_since(recording, began):
                assert time.monotonic() < give_up_at
            client.connect(path, 5, blocking=False)
            assert live.end().code == 0
    listed = json.loads(answer(["autopsies", recording, "--json"]).out)["autopsies"]
    assert [each["detail"] for each in listed] == ["full"]
    assert listed[0]["verdict"]["class"] == "set-up"
    report = answer(["report", recording, "--autopsy", "1", "--json"]).report
    assert report["probe"]["detail"] == "full"
    assert report["listeners"][0]["refused"] == {"EAGAIN": 5}
    whole = answer(["report", recording, "--json"]).report
    assert whole["probe"]["detail"] == "light"
    replayed = answer(["replay", recording, "--autopsy", "1", "--json"]).report
    assert replayed["listeners"] == report["listeners"]


# privileges


@pytest.mark.parametrize("user", [None, (1234, 1235)], ids=["root", "sudo"])
def test_windows_open_without_root(
    user: Optional[Tuple[int, int]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in zip(("SUDO_UID", "SUDO_GID"), user or ()):
        monkeypatch.setenv(name, str(value))
    path = unix(folder / "full.sock")
    with Actor() as server, Actor() as client:
        server.listen(path, 7)
        options = [*AUTO, "--interval", "0.2", "--jsonl", "--no-stacks"]
        with Live(["attach", "--pid", str(server.pid), *options], folder) as live:
            wait_for_no_window(live.pid)
            began = time.time()
            client.connect(path, 8)
            while covered_from(json.loads(live.stdout().readline())) < began:
                pass
            client.connect(path, 5, blocking=False)
            report = json.loads(live.end().out.splitlines()[-1])
    assert covered_from(report) > began
    assert report["listeners"][0]["refused"] == {"EAGAIN": 5}


def covered_from(report: Dict[str, Any]) -> float:
    """When the window began that system calls are of, seconds since the epoch; 0: none yet."""
    told = {each["name"]: each["coverage"] for each in report["probe"]["measurements"]}
    coverage = told["syscalls"]
    return datetime.fromisoformat(coverage["from"]).timestamp() if coverage else 0.0


def wait_for_window(pid: int, is_open: bool = True) -> None:
    """By the programs on system calls that udsprobe holds."""
    give_up_at = time.monotonic() + PATIENCE_S
    while ("sys_enter" in tracepoints(pid)) != is_open:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def wait_for_no_window(pid: int) -> None:
    wait_for_window(pid, is_open=False)


def tracepoints(pid: int) -> str:
    found = []
    for each in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            found.append(each.read_text())
        except FileNotFoundError:
            continue
    return "".join(found)
