"""Recordings as files: read back equal, bounded, one's own, and refused when anything is wrong."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit import recordings, samples
from udsprobe.errors import RecordingError, UsageError
from udsprobe.recording import Recorder, Retention, open_recording
from udsprobe.recording.retention import Period
from udsprobe.reporting import Reporter
from udsprobe.sample import Sample
from udsprobe.views.documents.report_document import document

COUNT = 150  # a block, and a tail


def everything(path: Path) -> Tuple[List[Sample], object]:
    with open_recording(str(path)) as recording:
        taken = list(recording.samples())
        return taken, (recording.observation, recording.findings, document(recording.report()))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    taken = recordings.recorded(tmp_path / "a", COUNT)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a"]
    with open_recording(str(tmp_path / "a")) as recording:
        assert recording.observation == samples.observation()
        assert list(recording.samples()) == taken
        assert recording.sequences() == list(range(COUNT))
        assert recording.sample(119) == taken[119]
        start = recordings.START_UNIX_S
        between = recording.samples(start + 100, start + 130)
        assert list(between) == taken[100:131]
        assert [recording.at(start + at) for at in (-5, 7.5, 119.5, 1e9)] == [0, 7, 119, COUNT - 1]


def test_reports_are_those_of_the_live_observation(tmp_path: Path) -> None:
    taken = recordings.recorded(tmp_path / "a", 30)
    live = Reporter(samples.observation(), taken[0])
    for sample in taken[1:]:
        live.add(sample)
    with open_recording(str(tmp_path / "a")) as recording:
        assert recording.report() == live.window()
        assert list(recording.intervals()) == recordings.intervals(taken)
        part = recording.report(recordings.START_UNIX_S + 10, recordings.START_UNIX_S + 20)
        assert part.window.duration_s == 10.0
        with pytest.raises(RecordingError, match="fewer than two samples"):
            recording.report(recordings.START_UNIX_S + 20, recordings.START_UNIX_S + 20)


def test_a_recording_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    taken = list(recordings.service(COUNT))
    with recordings.record(tmp_path / "a", taken):
        assert everything(tmp_path / "a")[0] == taken


def test_while_a_block_is_made_its_samples_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block takes some of the next samples to be made: at each of them all can be read."""
    monkeypatch.setattr("udsprobe.recording.writer.SAMPLES_PER_BLOCK", 40)
    path, taken = tmp_path / "r", list(recordings.service(100))
    states = set()
    with Recorder(str(path)) as recorder:
        recorder.begin(samples.observation(), taken[0])
        for number, sample in enumerate(taken[1:], 2):
            recorder.add(sample, None)
            with closing(sqlite3.connect(path)) as store:
                counts = "SELECT (SELECT count(*) FROM block), count(*) FROM tail"
                states.add(store.execute(counts).fetchone())
            if number % 5 == 0:
                assert everything(path)[0] == taken[:number]
        assert recorder.failure is None
    # Before the first block, while it was made (41 and more), after it; the second one alike.
    assert {(0, 40), (0, 41), (1, 40), (1, 41), (2, 20)} <= states
    assert everything(path)[0] == taken


def test_sql_sees_intervals_findings_and_tables(tmp_path: Path) -> None:
    taken = recordings.recorded(tmp_path / "a", COUNT, findings=(5, 6, 9))
    with closing(sqlite3.connect(tmp_path / "a")) as store:
        requests = store.execute("SELECT sum(requests), count(*) FROM moments").fetchone()
        assert requests == (taken[-1].served.count - taken[0].served.count, COUNT - 1)  # type: ignore[union-attr]
        calls = store.execute("SELECT sum(calls) FROM calls WHERE name = 'read'").fetchone()
        assert calls == (COUNT - 1,)
        assert store.execute("SELECT DISTINCT peer FROM connections").fetchall() == [("nginx",)]
        found = store.execute("SELECT severity, first, last FROM findings").fetchall()
        assert [each[0] for each in found] == ["critical"] * 2 and found[0][1] < found[0][2]
        for view in ("listeners", "upstreams", "threads"):
            assert store.execute(f"SELECT count(*) FROM {view}").fetchone()[0] > 0


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_the_file_is_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        monkeypatch.setenv("SUDO_UID", "1234")
        monkeypatch.setenv("SUDO_GID", "1235")
    with recordings.record(tmp_path / "a", list(recordings.service(3))):
        seen = [each.stat() for each in tmp_path.iterdir()]
    assert len(seen) == 3
    for each in seen:
        assert stat.S_IMODE(each.st_mode) == 0o600
        if os.geteuid() == 0:
            assert (each.st_uid, each.st_gid) == (1234, 1235)


@pytest.mark.parametrize("how", ["file", "link", "dangling"])
def test_what_is_there_is_left_alone(tmp_path: Path, how: str) -> None:
    there, path = tmp_path / "there", tmp_path / "a"
    there.write_text("precious")
    if how == "file":
        path = there
    else:
        path.symlink_to(there if how == "link" else tmp_path / "nowhere")
    with pytest.raises(UsageError) as caught:
        Recorder(str(path))
    assert caught.value.slug == "recording-exists"
    assert there.read_text() == "precious" and not (tmp_path / "nowhere").exists()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Recorder(str(tmp_path / "no" / "a"))
    assert caught.value.slug == "recording-not-writable"


def test_a_file_put_in_its_place_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def swapped(path: str, **options: object) -> sqlite3.Connection:
        os.rename(path, path + ".ours")
        (tmp_path / "victim").write_bytes(b"")
        os.symlink(tmp_path / "victim", path)
        return connect(path, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(sqlite3, "connect", swapped)
    with pytest.raises(UsageError, match="another file was put in its place"):
        Recorder(str(tmp_path / "a"))
    assert (tmp_path / "victim").read_bytes() == b""


def test_nothing_recorded_leaves_nothing(tmp_path: Path) -> None:
    with Recorder(str(tmp_path / "a")):
        pass
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit import recordings
recordings.record(Path(sys.argv[1]), list(recordings.service(int(sys.argv[2]))))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("count", [1, 20, COUNT])
def test_after_a_kill_everything_is_there(tmp_path: Path, count: int) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "a"), str(count)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "a-wal").stat().st_size > 0
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with open_recording(str(tmp_path / "a")) as recording:
        assert list(recording.samples()) == list(recordings.service(count))
    assert (tmp_path / "a").read_bytes() == before["a"]
    assert (tmp_path / "a-wal").read_bytes() == before["a-wal"]


KILLED_AT_ONCE = """
import os, signal, sys
from udsprobe.recording import Recorder
recorder = Recorder(sys.argv[1])
if sys.argv[2] == "observed":
    from tests.unit import recordings, samples
    recorder.add = lambda *_: None
    recorder.begin(samples.observation(), next(recordings.service(1)))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["made", "observed"])
@pytest.mark.parametrize("log", ["with its log", "without its log"])
def test_killed_before_the_first_sample_it_says_that_it_holds_nothing(
    tmp_path: Path, when: str, log: str
) -> None:
    path = tmp_path / "a"
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_ONCE, str(path), when], cwd=Path(__file__).parents[2]
    )
    assert done.returncode == -signal.SIGKILL
    if log == "without its log":
        (tmp_path / "a-wal").unlink()
    with pytest.raises(RecordingError, match="has no samples") as caught:
        open_recording(str(path))
    assert caught.value.slug == "recording-empty"


KILLED_WITHIN = """
import os, signal, sqlite3, sys
from udsprobe.recording import Recorder

class Killing(sqlite3.Connection):
    left = int(sys.argv[2])
    def execute(self, *given):
        if not Killing.left:
            os.kill(os.getpid(), signal.SIGKILL)
        Killing.left -= 1
        return super().execute(*given)

connect = sqlite3.connect
sqlite3.connect = lambda path, **how: connect(path, factory=Killing, **how)
Recorder(sys.argv[1])
"""


def test_killed_after_any_statement_of_its_making_it_says_that_it_holds_nothing(
    tmp_path: Path,
) -> None:
    statements, made = 0, False
    while not made:
        path = tmp_path / str(statements)
        done = subprocess.run(
            [sys.executable, "-c", KILLED_WITHIN, str(path), str(statements)],
            cwd=Path(__file__).parents[2],
        )
        made, statements = done.returncode == 0, statements + 1
        assert slug_of(path) == "recording-empty", statements
    assert statements > 10


def test_24_hours_through_a_ring_of_2(tmp_path: Path) -> None:
    every_s, ring_s = 60.0, 7200.0
    retention = Retention(ring_s=ring_s)
    sizes: List[int] = []
    with Recorder(str(tmp_path / "a"), retention) as recorder:
        recorder.begin(samples.observation(), busy(0, 0.0))
        for number in range(1, int(86_400 / every_s)):
            sample = busy(number, number * every_s)
            recorder.add(sample, None) if number % 60 else grows(recorder, sample, sizes)
        assert recorder.failure is None
    assert max(sizes) <= 1.05 * max(sizes[: len(sizes) // 3])
    assert retention.bytes_max is not None and max(sizes) < retention.bytes_max
    with open_recording(str(tmp_path / "a")) as recording:
        kept_s = recording.end_unix_s - recording.start_unix_s
        assert ring_s - every_s <= kept_s <= ring_s + ring_s / 12 + every_s
        kept = recording.sequences()
        assert kept[-1] == 1439 and kept == list(range(kept[0], 1440))
    with closing(sqlite3.connect(tmp_path / "a")) as store:
        for table in ("block", "span"):
            oldest = store.execute(f"SELECT min(first_sequence) FROM {table}").fetchone()
            assert oldest == (kept[0],)
        stored = store.execute("SELECT count(DISTINCT span) FROM span_call").fetchone()
        assert stored == store.execute("SELECT count(*) FROM span").fetchone()


def busy(number: int, at_s: float) -> Sample:
    """Fifty connections, each with counters of its own pace."""
    return samples.sample(
        at_s,
        sequence=number,
        calls=(samples.call("read", samples.UNIX, calls=number * 50, bytes=number * number),),
        connections=tuple(
            samples.connection(inode=one, turns=number * one, bytes_in=number * number * one)
            for one in range(1, 51)
        ),
    )


def grows(recorder: Recorder, sample: Sample, sizes: List[int]) -> None:
    recorder.add(sample, None)
    sizes.append(sum(os.path.getsize(recorder.path + end) for end in ("", "-wal")))


def noise(*numbers: int) -> str:
    """Text that no compressor makes smaller than half."""
    return hashlib.sha256(repr(numbers).encode()).hexdigest()


def test_a_ring_drops_earlier_rather_than_to_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("udsprobe.recording.retention.RING_BYTES_MIN", 1 << 18)
    monkeypatch.setattr("udsprobe.recording.retention.RING_BYTES_PER_S", 1)
    retention = Retention(ring_s=7200.0)
    taken = [
        samples.sample(
            at,
            targets=tuple(samples.target(pid=pid, cmdline=noise(at, pid)) for pid in range(99)),
        )
        for at in range(250)
    ]
    with recordings.record(tmp_path / "a", taken, retention) as recorder:
        assert recorder.failure is None
    assert (tmp_path / "a").stat().st_size < 1 << 18
    with open_recording(str(tmp_path / "a")) as recording:
        kept = recording.sequences()
        assert kept[-1] == 249 and 0 < len(kept) < 250
        assert list(recording.samples()) == taken[kept[0] :]


def test_only_what_is_around_a_finding_is_kept(tmp_path: Path) -> None:
    retention = Retention(severity="critical", around_s=20.0)
    taken = [replace(samples.sample(at), sequence=at) for at in range(700)]
    with recordings.record(tmp_path / "a", taken, retention, findings=(300, 301)) as recorder:
        assert recorder.failure is None
    with open_recording(str(tmp_path / "a")) as recording:
        kept = set(recording.sequences())
        assert set(range(280, 322)) <= kept
        assert set(range(680, 700)) <= kept
        assert len(kept) < 400 and not kept & set(range(240))
        assert [each.first_sequence for each in recording.findings] == [300]
        recording.report()


def test_a_lesser_finding_keeps_nothing(tmp_path: Path) -> None:
    retention = Retention(severity="critical", around_s=10.0)
    taken = [replace(samples.sample(at), sequence=at) for at in range(400)]
    with recordings.record(tmp_path / "a", taken, retention, findings=(5,), severity="warning"):
        pass
    with open_recording(str(tmp_path / "a")) as recording:
        assert recording.sequences()[0] >= 240


def test_retention_at_its_borders() -> None:
    ring = Retention(ring_s=100.0)
    assert not ring.drops(Period(0, 10), 110.0, [])
    assert ring.drops(Period(0, 10), 110.1, [])
    around = Retention(severity="warning", around_s=5.0)
    assert around.is_cause("critical") and around.is_cause("warning")
    assert not around.is_cause("info")
    assert not around.drops(Period(0, 10), 100.0, [Period(15, 15)])
    assert around.drops(Period(0, 10), 100.0, [Period(15.1, 16)])


def slug_of(path: Path) -> str:
    with pytest.raises(RecordingError) as caught, open_recording(str(path)) as recording:
        list(recording.samples())
    assert caught.value.exit_code == 6
    assert "\n" not in caught.value.line()
    return caught.value.slug


def test_what_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("{}" * 100)
    with closing(sqlite3.connect(tmp_path / "foreign")) as store:
        store.execute("CREATE TABLE block (a)")
    for name in ("text", "foreign"):
        assert slug_of(tmp_path / name) == "recording-foreign"
    assert slug_of(tmp_path / "empty") == "recording-empty"
    assert slug_of(tmp_path / "missing") == "recording-unreadable"
    assert slug_of(tmp_path) == "recording-unreadable"


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    recordings.recorded(tmp_path / "a", 3)
    with closing(sqlite3.connect(tmp_path / "a")) as store:
        # Of a version that does not know these calls of kept requests, 3 is the newest.
        assert store.execute("PRAGMA user_version").fetchone() == (4,)
        store.execute("PRAGMA user_version = 5")
    assert slug_of(tmp_path / "a") == "recording-newer"


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM block WHERE first_sequence = 0",
        "DELETE FROM finding",
        "UPDATE finding SET severity = 'info'",
        "UPDATE block SET first_unix_s = first_unix_s + 1",
        "UPDATE observation SET slo_us = 5",
        "UPDATE ledger SET bodies = bodies + 1",
        "DROP TABLE tail",
        "DELETE FROM observation",
        "UPDATE block SET body = 7",
    ],
)
def test_what_was_changed_is_refused(tmp_path: Path, change: str) -> None:
    recordings.recorded(tmp_path / "a", COUNT, findings=(3,))
    with closing(sqlite3.connect(tmp_path / "a")) as store:
        store.execute(change)
        store.commit()
    assert slug_of(tmp_path / "a") == "recording-damaged"


Original = Tuple[bytes, bytes, object]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> List[Original]:
    """A finished recording, and one whose writer was killed: file, log, and what is in it."""
    folder = tmp_path_factory.mktemp("originals")
    recordings.recorded(folder / "done", 130, findings=(3, 4))
    found = [((folder / "done").read_bytes(), b"", everything(folder / "done"))]
    with recordings.record(folder / "open", list(recordings.service(130))):
        parts = [(folder / name).read_bytes() for name in ("open", "open-wal")]
        found.append((parts[0], parts[1], everything(folder / "open")))
    return found


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(choose=st.data())
def test_damage_is_refused_or_harmless(
    choose: st.DataObject, originals: List[Original], tmp_path: Path
) -> None:
    file, log, content = choose.draw(st.sampled_from(originals))
    parts = {"a": bytearray(file), "a-wal": bytearray(log)}
    name = choose.draw(st.sampled_from([each for each in parts if parts[each]]))
    where = choose.draw(st.integers(0, len(parts[name]) - 1))
    if choose.draw(st.booleans()):
        parts[name][where] ^= 1 << choose.draw(st.integers(0, 7))
        may_end_early = name == "a-wal"
    else:
        del parts[name][where:]
        may_end_early = name == "a-wal"
    for each in tmp_path.iterdir():
        each.unlink()
    for each_name, body in parts.items():
        if body:
            (tmp_path / each_name).write_bytes(body)
    try:
        read = everything(tmp_path / "a")
    except RecordingError as error:
        assert "\n" not in error.line()
        return
    taken = content[0]  # type: ignore[index]
    # SQLite leaves out what its log no longer proves: the newest samples, and no others.
    assert read == content or (may_end_early and read[0] == taken[: len(read[0])])
