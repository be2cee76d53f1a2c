"""Full windows in a recording: read back as they were, kept as long as they are of use, bounded."""

from __future__ import annotations

import sqlite3
import zlib
from dataclasses import replace
from pathlib import Path
from typing import List

import pytest

from tests.unit import samples
from tests.unit.recordings import START_UNIX_S, record, service
from udsprobe.errors import RecordingError
from udsprobe.model.difference import report
from udsprobe.model.report import Report, Verdict
from udsprobe.recording import Recorder, Retention, open_recording
from udsprobe.recording.layout import SAMPLES_PER_BLOCK
from udsprobe.recording.window_reader import WindowTime, overlapping
from udsprobe.recording.window_writer import told_by_both
from udsprobe.sample import Sample

CULPRIT = Verdict("app-cpu", False, None, None, 0.9, "a thread computes", None)


def moved(taken: List[Sample], seconds: float) -> List[Sample]:
    return [replace(each, unix_s=each.unix_s + seconds) for each in taken]


def put(recorder: Recorder, taken: List[Sample], ends: bool = True) -> None:
    window = recorder.full_window()
    window.begin(samples.observation(), taken[0], 5_000.0)
    for each in taken[1:]:
        window.add(each, None)
    if ends:
        window.end()


@pytest.mark.parametrize("ends", [True, False], ids=["closed", "open"])
def test_what_is_read_is_what_was_written(tmp_path: Path, ends: bool) -> None:
    path, taken = tmp_path / "a", list(service(5))
    recorder = record(path, list(service(3)))
    put(recorder, taken[:2], ends)
    put(recorder, taken, ends)
    recorder.close()
    with open_recording(str(path)) as recording:
        assert len(list(recording.samples())) == 3
        first, second = recording.windows()
        found = recording.window(second.number)
        assert list(found.samples()) == taken
        assert list(recording.window(first.number).samples()) == taken[:2]
        assert found.slo_us == 5_000.0
        whole = report(samples.observation(), taken[0], taken[-1])
        assert found.report().syscalls == whole.syscalls
        assert found.windows() == found.autopsies() == ()
        assert len(list(found.intervals())) == 4


def test_a_window_of_one_sample_tells_nothing(tmp_path: Path) -> None:
    recorder = record(tmp_path / "a", list(service(2)))
    put(recorder, list(service(1)))
    recorder.close()
    with open_recording(str(tmp_path / "a")) as recording:
        assert recording.windows() == ()


def test_a_very_long_window_keeps_its_beginning(tmp_path: Path) -> None:
    one = next(iter(service(1)))
    taken = [
        replace(one, sequence=n, unix_s=one.unix_s + n, monotonic_ns=one.monotonic_ns + n)
        for n in range(SAMPLES_PER_BLOCK + 5)
    ]
    recorder = record(tmp_path / "a", list(service(2)))
    put(recorder, taken)
    recorder.close()
    with open_recording(str(tmp_path / "a")) as recording:
        (window,) = recording.windows()
        assert len(recording.window(window.number).sequences()) == SAMPLES_PER_BLOCK


def test_a_ring_drops_old_windows_but_those_of_autopsies(tmp_path: Path) -> None:
    path = tmp_path / "a"
    recorder = record(path, list(service(2)), Retention(ring_s=100.0))
    recorder._autopsies.add(0, START_UNIX_S + 30.0, "app-cpu")
    for seconds in (31.0, 150.0, 400.0):
        put(recorder, moved(list(service(2)), seconds))
    recorder.close()
    with open_recording(str(path)) as recording:
        starts = [each.first_unix_s - START_UNIX_S for each in recording.windows()]
    assert starts == [31.0, 400.0]


def test_windows_have_a_part_of_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    monkeypatch.setattr("udsprobe.recording.retention.RING_BYTES_MIN", 40_000)
    recorder = record(path, list(service(2)), Retention(ring_s=4.0))
    recorder._autopsies.add(0, START_UNIX_S, "app-cpu")
    for number in range(20):
        put(recorder, moved(list(service(5)), number / 100))
    recorder.close()
    with sqlite3.connect(str(path)) as store:
        (size,) = store.execute("SELECT sum(length(body)) FROM full_sample").fetchone()
        numbers = [row[0] for row in store.execute("SELECT number FROM full_window")]
    assert 0 < size <= 10_000
    assert numbers == list(range(21 - len(numbers), 21))


def test_a_window_of_schema_3_has_its_observation_as_text(tmp_path: Path) -> None:
    path = tmp_path / "a"
    recorder = record(path, list(service(2)))
    put(recorder, list(service(3)))
    recorder.close()
    with open_recording(str(path)) as recording:
        written = recording.window(1).observation
    with sqlite3.connect(str(path)) as store:
        (packed,) = store.execute("SELECT body FROM full_window").fetchone()
        assert isinstance(packed, bytes)
        store.execute("UPDATE full_window SET body = ?", (zlib.decompress(packed).decode(),))
        store.execute("PRAGMA user_version = 3")
    store.close()
    with open_recording(str(path)) as recording:
        assert recording.window(1).observation == written


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE full_sample SET body = zeroblob(length(body))",
        "UPDATE full_sample SET last_unix_s = last_unix_s + 1",
        "UPDATE full_window SET bodies = 2",
        "UPDATE full_window SET body = zeroblob(length(body))",
        "UPDATE full_window SET body = substr(body, 1, length(body) - 9)",
        "UPDATE full_window SET slo_us = 5",
        "DELETE FROM full_window",
    ],
)
def test_what_was_changed_is_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a"
    recorder = record(path, list(service(2)))
    put(recorder, list(service(3)))
    recorder.close()
    with sqlite3.connect(str(path)) as store:
        store.execute(change)
    store.close()
    with open_recording(str(path)) as recording:
        (window,) = recording.windows()
        with pytest.raises(RecordingError) as raised:
            recording.window(window.number).report()
    assert raised.value.slug == "recording-damaged"


def test_a_view_in_place_of_the_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    record(path, list(service(2))).close()
    with sqlite3.connect(str(path)) as store:
        store.execute("DROP TABLE full_sample")
        store.execute("CREATE TABLE full_sample (number INTEGER)")
    store.close()
    with pytest.raises(RecordingError):
        open_recording(str(path))


def test_recordings_without_the_tables_have_no_windows(tmp_path: Path) -> None:
    path = tmp_path / "a"
    record(path, list(service(3))).close()
    with sqlite3.connect(str(path)) as store:
        store.execute("DROP TABLE full_sample")
        store.execute("DROP TABLE full_window")
    store.close()
    with open_recording(str(path)) as recording:
        assert recording.windows() == ()
        assert recording.report().syscalls


def test_the_window_with_most_of_a_time_is_taken() -> None:
    windows = (WindowTime(1, 0.0, 10.0), WindowTime(2, 20.0, 22.0), WindowTime(3, 25.0, 60.0))
    assert overlapping(windows, 4.0, 30.0) == windows[0]
    assert overlapping(windows, 21.0, 30.0) == windows[2]
    assert overlapping(windows, 11.0, 19.0) is None
    assert overlapping((), 0.0, 1.0) is None


def test_a_cause_that_only_the_window_names_is_an_autopsy_s(tmp_path: Path) -> None:
    path, taken = tmp_path / "a", list(service(4))
    recorder = record(path, taken[:1], Retention(ring_s=600.0))
    window = recorder.full_window()
    window.begin(samples.observation(), taken[0], None)
    interval = report(samples.observation(), taken[0], taken[1])
    window.add(taken[1], replace(interval, verdict=CULPRIT))
    recorder.add(taken[1], interval)
    window.end()
    recorder.add(taken[2], report(samples.observation(), taken[1], taken[2]))
    recorder.close()
    with open_recording(str(path)) as recording:
        (found,) = recording.autopsies()
    assert found.causes == ("app-cpu",)
    assert (found.first_sequence, found.last_sequence) == (1, 1)


def test_what_light_names_stays() -> None:
    first, last = samples.busy_pair()
    plain: Report = report(samples.observation(), first, last)
    named = replace(plain, verdict=replace(CULPRIT, cause="accept-queue-full"))
    assert told_by_both(named, CULPRIT) == named
    assert told_by_both(plain, CULPRIT).verdict == CULPRIT
    assert told_by_both(plain, None) == plain
    assert told_by_both(plain, replace(CULPRIT, cause="healthy")) == plain
