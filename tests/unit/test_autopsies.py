"""What a ring keeps beyond its age: the times in which the verdict named a cause."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Iterator, List, Optional

import pytest

from tests.unit import samples
from udsprobe.cli import main
from udsprobe.commands.live.player import RecordingPlayer
from udsprobe.recording import Recorder, Retention, open_recording
from udsprobe.recording.autopsy import BEFORE_S, KEPT_MAX, KEPT_S_MAX, QUIET_S, autopsies
from udsprobe.recording.retention import Period
from udsprobe.reporting import Reporter
from udsprobe.sample import Sample

RING_S = 600.0
BEGAN, ENDED, SAMPLES = 900, 920, 2400


def ill_from_to(began: int, ended: int, count: int) -> Iterator[Sample]:
    """A queue that turns clients away for a while, a sample a second."""
    for number in range(count):
        refused = 7 * max(0, min(number, ended) - began)
        queue = replace(samples.queue(), refused={"EAGAIN": refused} if refused else {})
        listener = samples.listener(queue=queue, depth_now=0)
        yield samples.sample(float(number), sequence=number, listeners=(listener,))


def record(path: Path, taken: Iterator[Sample], retention: Retention) -> None:
    first = next(taken)
    reporter = Reporter(samples.observation(), first)
    with Recorder(str(path), retention) as recorder:
        recorder.begin(samples.observation(), first)
        for sample in taken:
            recorder.add(sample, reporter.interval(sample))
        assert recorder.failure is None


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ring") / "a.udsprobe"
    record(path, ill_from_to(BEGAN, ENDED, SAMPLES), Retention(ring_s=RING_S))
    return path


def found(*causes: Optional[str]) -> List[tuple]:
    told = autopsies((at, float(at), cause) for at, cause in enumerate(causes))
    return [(each.first_sequence, each.last_sequence, each.causes) for each in told]


def test_quiet_verdicts_are_none() -> None:
    assert found(None, "healthy", "unknown") == []


def test_a_cause_is_one_until_it_is_quiet_for_long() -> None:
    quiet: List[Optional[str]] = ["healthy"] * int(QUIET_S)
    assert found("healthy", "app-cpu", "healthy", "app-cpu", "healthy") == [(1, 3, ("app-cpu",))]
    assert found("app-cpu", *quiet, "app-cpu") == [
        (0, 0, ("app-cpu",)),
        (int(QUIET_S) + 1, int(QUIET_S) + 1, ("app-cpu",)),
    ]


def test_causes_that_follow_each_other_are_one_in_their_order() -> None:
    told = found("accept-queue-full", "app-cpu", "accept-queue-full")
    assert told == [(0, 2, ("accept-queue-full", "app-cpu"))]


def test_what_is_kept_is_bounded() -> None:
    (lasting,) = autopsies((at, float(at), "app-cpu") for at in range(2 * int(KEPT_S_MAX)))
    assert lasting.kept == Period(-BEFORE_S, KEPT_S_MAX)
    many = autopsies((at, 60.0 * at, "app-cpu") for at in range(3 * KEPT_MAX))
    assert len(many) == KEPT_MAX
    assert many[-1].first_sequence == 3 * KEPT_MAX - 1


def test_a_ring_drops_what_no_autopsy_needs() -> None:
    retention = Retention(ring_s=100.0)
    needed = [Period(50.0, 70.0)]
    assert retention.drops(Period(0, 49), 1000.0, [], needed)
    assert not retention.drops(Period(0, 50), 1000.0, [], needed)
    assert not retention.drops(Period(70, 90), 1000.0, [], needed)
    assert retention.drops(Period(71, 90), 1000.0, [], needed)


def test_the_surroundings_outlive_the_ring(ring: Path) -> None:
    with open_recording(str(ring)) as recording:
        kept = set(recording.sequences())
        assert set(range(BEGAN - int(BEFORE_S), ENDED + int(QUIET_S))) <= kept
        assert set(range(SAMPLES - int(RING_S), SAMPLES)) <= kept
        assert not kept & set(range(BEGAN - 200))
        assert not kept & set(range(ENDED + 100, SAMPLES - int(RING_S) - 100))
        taken = {each.sequence: each for each in ill_from_to(BEGAN, ENDED, SAMPLES)}
        assert recording.sample(BEGAN + 3) == taken[BEGAN + 3]
        assert [each.id for each in recording.findings] == ["accept-queue-full"]


def test_autopsies_are_listed_with_their_verdict(
    ring: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["autopsies", str(ring), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["autopsies"]
    assert row["causes"] == ["accept-queue-full"]
    assert row["verdict"]["cause"] == "accept-queue-full"
    # The verdict is of the last ten seconds.
    assert ENDED - BEGAN - 1 <= row["duration_s"] <= ENDED - BEGAN + QUIET_S
    assert main(["autopsies", str(ring)]) == 0
    assert "accept-queue-full" in capsys.readouterr().out


def test_report_and_replay_open_there(ring: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(ring), "--autopsy", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"]["cause"] == "accept-queue-full"
    assert report["listeners"][0]["refused"] == {"EAGAIN": 7 * (ENDED - BEGAN)}
    with open_recording(str(ring)) as recording:
        (one,) = recording.autopsies()
        player = RecordingPlayer(recording, begins_unix_s=one.first_unix_s)
        frame = player.next()
        assert frame is not None and frame.moment is not None
        assert frame.moment.at == one.first_unix_s
        assert not frame.moment.playing


@pytest.mark.parametrize("words", [["--autopsy", "2"], ["--autopsy", "1", "--from", "+1"]])
def test_what_is_not_there_is_said(
    words: List[str], ring: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(ring), *words]) == 2
    assert "error[usage]" in capsys.readouterr().err


def test_a_quiet_recording_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "quiet.udsprobe"
    record(path, ill_from_to(99, 99, 30), Retention(ring_s=RING_S))
    assert main(["autopsies", str(path)]) == 0
    assert "named no cause" in capsys.readouterr().out


def test_autopsies_leave_the_ring_its_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Always another illness, in a file that is too small for all of them."""
    monkeypatch.setattr("udsprobe.recording.retention.RING_BYTES_MIN", 1 << 18)
    monkeypatch.setattr("udsprobe.recording.retention.RING_BYTES_PER_S", 1)
    path = tmp_path / "small.udsprobe"
    record(path, restless(1200), Retention(ring_s=300.0))
    assert path.stat().st_size < 1 << 18
    with open_recording(str(path)) as recording:
        kept = recording.sequences()
        assert kept[-1] == 1199
        assert len([each for each in kept if each >= 900]) >= 50


def restless(count: int) -> Iterator[Sample]:
    """Refusals in one minute of two, and names that do not get smaller."""
    noise = random.Random(22)
    refused = 0
    for number in range(count):
        refused += 5 * (number // 60 % 2)
        queue = replace(samples.queue(), refused={"EAGAIN": refused} if refused else {})
        targets = tuple(
            samples.target(pid=pid, cmdline=noise.randbytes(24).hex()) for pid in range(20)
        )
        listener = samples.listener(queue=queue, depth_now=0)
        yield samples.sample(float(number), sequence=number, listeners=(listener,), targets=targets)
