"""A recording, read: its observation, its samples, and the reports between any two of them."""

from __future__ import annotations

import traceback
from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from udsprobe.errors import RecordingError
from udsprobe.model.counters import UnsoundError
from udsprobe.model.difference import report
from udsprobe.model.report import Report
from udsprobe.model.timeline import Timeline, timeline
from udsprobe.recording.autopsy import Autopsy, autopsies
from udsprobe.recording.bodies.body import begins_anew, is_block
from udsprobe.recording.bodies.leaves import UnknownFieldError
from udsprobe.recording.bodies.limits import SAMPLES_MAX
from udsprobe.recording.bodies.series import Series
from udsprobe.recording.layout import (
    checksum,
    finding_checksum,
    observation_checksum,
    observation_text,
)
from udsprobe.recording.plain import from_json
from udsprobe.recording.snapshot import Snapshot, damaged, empty, has_windows, newer
from udsprobe.recording.window_reader import WindowTime, window_times
from udsprobe.reporting import Reporter, judged_parts
from udsprobe.rules import judged, over_parts
from udsprobe.sample import Moment, Observation, Sample
from udsprobe.window_parts import part_places

_REASON_MAX = 200
_SAMPLES_MAX = 1 << 24
"""In all: half a year of one a second."""

_UNIX_S_MAX = 32_503_680_000.0
"""The year 3000: `datetime` knows no more than 9999."""

_BLOCKS_KEPT = 3
"""Blocks kept unpacked: stepping back and forth over a border is common."""


class _Stored(NamedTuple):
    """Where some consecutive samples are; `is_first`: they need none before them."""

    table: str
    first_sequence: int
    last_sequence: int
    first_unix_s: float
    last_unix_s: float
    checksum: int
    is_first: bool


class RecordedFinding(NamedTuple):
    """A finding as it was made while recording: from the first sample with it to the last."""

    first_sequence: int
    last_sequence: int
    first_unix_s: float
    last_unix_s: float
    id: str
    severity: str
    subject: Optional[str]
    summary: str


class Recording:
    """One recording, checked as a whole when it is opened.

    Args:
        path: of the file.

    Attributes:
        path: as given.
        observation: what stays the same from the first sample to the last.
        slo_us: that verdicts are judged by; None is none.
        findings: of the intervals, in the order in which they began.

    Raises:
        RecordingError: `recording-unreadable`, `recording-foreign`,
            `recording-newer`, `recording-damaged`, `recording-empty`. Reading
            samples raises the same.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._snapshot = Snapshot(path)
        self.slo_us: Optional[float] = None
        self.findings: Tuple[RecordedFinding, ...] = ()
        self._unpacked: Dict[int, Series] = {}
        try:
            with self._trouble():
                self.observation = self._checked()
                self._groups = self._grouped()
            if not self._groups:
                raise empty(path)
        except BaseException:
            self.close()
            raise

    @property
    def start_unix_s(self) -> float:
        """Wall clock of the first sample."""
        return self._groups[0][0].first_unix_s

    @property
    def end_unix_s(self) -> float:
        """Wall clock of the last sample."""
        return self._groups[-1][-1].last_unix_s

    def samples(
        self, from_unix_s: Optional[float] = None, to_unix_s: Optional[float] = None
    ) -> Iterator[Sample]:
        """Samples in their order, those taken in the given time or all."""
        for number, group in enumerate(self._groups):
            if from_unix_s is not None and group[-1].last_unix_s < from_unix_s:
                continue
            if to_unix_s is not None and group[0].first_unix_s > to_unix_s:
                continue
            for sample in self._samples_of(number):
                if from_unix_s is not None and sample.unix_s < from_unix_s:
                    continue
                if to_unix_s is None or sample.unix_s <= to_unix_s:
                    yield sample

    def moments(self, first_sequence: int, last_sequence: int) -> Iterator[Moment]:
        """What a time line is made of, from one sample to another, both included."""
        for number, group in enumerate(self._groups):
            start = group[0].first_sequence
            first, last = (
                max(first_sequence - start, 0),
                min(last_sequence - start, _count(group) - 1),
            )
            if first > last:
                continue
            with self._trouble():
                series = self._series(number, Moment)
            for index in range(first, last + 1):
                with self._trouble():
                    moment: Moment = series[index]
                    _check_taken(moment, group, index)
                yield moment

    def sequences(self) -> List[int]:
        """Numbers of the samples that are there, ascending; some may have been dropped."""
        return [
            number
            for group in self._groups
            for stored in group
            for number in range(stored.first_sequence, stored.last_sequence + 1)
        ]

    def sample(self, sequence: int) -> Sample:
        """One sample by its number.

        Raises:
            KeyError: it is not there.
        """
        starts = [group[0].first_sequence for group in self._groups]
        number = bisect_right(starts, sequence) - 1
        if number >= 0:
            at = sequence - starts[number]
            if at < _count(self._groups[number]):
                return self._sample_in(number, at)
        raise KeyError(sequence)

    def at(self, unix_s: float) -> int:
        """Number of the newest sample taken until then; of the first when there is none."""
        ends = [group[-1].last_unix_s for group in self._groups]
        number = min(bisect_left(ends, unix_s), len(ends) - 1)
        first = self._groups[number][0].first_sequence
        for index in reversed(range(_count(self._groups[number]))):
            if self._sample_in(number, index).unix_s <= unix_s:
                return first + index
        return first if number == 0 else self._groups[number - 1][-1].last_sequence

    def report(
        self, from_unix_s: Optional[float] = None, to_unix_s: Optional[float] = None
    ) -> Report:
        """What happened between the newest samples at two moments; without them, all along.

        Raises:
            RecordingError: and `recording-empty` when there are not two samples.
        """
        return self.between(*self.ends(from_unix_s, to_unix_s))

    def ends(
        self, from_unix_s: Optional[float] = None, to_unix_s: Optional[float] = None
    ) -> Tuple[int, int]:
        """Numbers of the newest samples at two moments; without them, first and last.

        Raises:
            RecordingError: `recording-empty` when that is one sample.
        """
        sequences = self._groups[0][0].first_sequence, self._groups[-1][-1].last_sequence
        first = sequences[0] if from_unix_s is None else self.at(from_unix_s)
        last = sequences[1] if to_unix_s is None else self.at(to_unix_s)
        if first >= last and not (from_unix_s is None and to_unix_s is None):
            raise RecordingError(
                "recording-empty",
                f"the recording {self.path!r} has fewer than two samples in that time",
                "udsprobe report without --from and --to shows which time it covers",
            )
        return first, last

    def between(self, first_sequence: int, last_sequence: int) -> Report:
        """The report of the time between two samples, by their numbers.

        Raises:
            KeyError: one of them is not there. RecordingError.
        """
        first, last = self.sample(first_sequence), self.sample(last_sequence)
        with self._contradictions():
            whole = judged(report(self.observation, first, last), self.slo_us)
            return over_parts(whole, self._parts(first_sequence, last_sequence))

    def _parts(self, first_sequence: int, last_sequence: int) -> List[Report]:
        places = part_places(last_sequence - first_sequence + 1)
        samples = [self._sample_or_none(first_sequence + place) for place in places]
        there = [each for each in samples if each is not None]
        return judged_parts(self.observation, there, self.slo_us)

    def _sample_or_none(self, sequence: int) -> Optional[Sample]:
        """None where only what is around findings is kept, and this is not."""
        try:
            return self.sample(sequence)
        except KeyError:
            return None

    def timeline(self, first_sequence: int, last_sequence: int) -> Timeline:
        """The time between two samples, by their numbers, in a bounded number of intervals.

        Raises:
            KeyError: one of them is not there. RecordingError.
        """
        last = self.sample(last_sequence)
        with self._contradictions():
            return timeline(self.moments(first_sequence, last_sequence), last)

    def autopsies(self) -> Tuple[Autopsy, ...]:
        """Stretches of time in which the verdict named a cause, as it was while recording.

        Raises:
            RecordingError.
        """
        with self._trouble():
            rows = self._snapshot.store.execute(
                "SELECT sequence, unix_ms, cause FROM moment ORDER BY sequence"
            )
            return autopsies((int(at), unix_ms / 1000, cause) for at, unix_ms, cause in rows)

    def intervals(self) -> Iterator[Report]:
        """A report of each interval, as `attach --jsonl` writes them.

        Raises:
            RecordingError.
        """
        samples = self.samples()
        reporter = Reporter(self.observation, next(samples), self.slo_us)
        for sample in samples:
            with self._contradictions():
                interval = reporter.interval(sample)
            yield interval

    def windows(self) -> Tuple[WindowTime, ...]:
        """The full windows of detail auto that are kept, in their order.

        Raises:
            RecordingError.
        """
        if not has_windows(self._snapshot.store):
            return ()
        with self._trouble():
            return window_times(self._snapshot.store)

    def window(self, number: int) -> Recording:
        """A full window as a recording of its own; to be read while this one is open.

        Raises:
            RecordingError.
        """
        return _Window(self.path, self._snapshot, number)

    def close(self) -> None:
        """Give the file back."""
        self._snapshot.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except RecordingError:
            raise
        except UnknownFieldError as error:
            raise newer(self.path, str(error)) from error
        except MemoryError:
            raise
        except Exception as error:  # a file can be made to fail in any way
            raise self._damaged(error) from error

    @contextmanager
    def _contradictions(self) -> Iterator[None]:
        """Samples that could be read, and cannot be true together.

        Whatever else fails with them is a defect of udsprobe, and says so.
        """
        try:
            yield
        except UnsoundError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> RecordingError:
        what = f"{type(error).__name__}: {error}"
        return damaged(self.path, what[:_REASON_MAX], traceback.format_exc())

    def _checked(self) -> Observation:
        store = self._snapshot.store
        row = store.execute("SELECT checksum, slo_us, body FROM observation").fetchone()
        if row is None and store.execute("SELECT bodies FROM ledger").fetchone() == (0,):
            raise empty(self.path)
        value, slo_us, body = row
        if observation_checksum(body, slo_us) != value:
            raise damaged(self.path, "the checksum of its observation is wrong")
        self._stored: List[_Stored] = []
        for table in ("block", "tail"):
            rows = store.execute(
                "SELECT first_sequence, last_sequence, first_unix_s, last_unix_s, checksum, body "
                f"FROM {table} ORDER BY first_sequence"
            )
            for first, last, start, end, crc, packed in rows:
                is_first = table == "block" or begins_anew(packed)
                self._stored.append(_Stored(table, first, last, start, end, crc, is_first))
                self._check(self._stored[-1], packed)
                _check_row(self._stored[-1])
        checksums = [value, *(each.checksum for each in self._stored), *self._read_findings()]
        ledger = store.execute("SELECT bodies, checksum FROM ledger").fetchone()
        if ledger != (len(checksums), sum(checksums)):
            raise damaged(self.path, "some of its samples are missing")
        self.slo_us = slo_us
        return from_json(Observation, body)

    def _read_findings(self) -> List[int]:
        """Their checksums."""
        rows = self._snapshot.store.execute(
            "SELECT first_sequence, last_sequence, first_unix_ms, last_unix_ms, id, severity, "
            "subject, summary, checksum FROM finding ORDER BY first_sequence, number"
        ).fetchall()
        for row in rows:
            if finding_checksum(row[:-1]) != row[-1]:
                raise damaged(self.path, f"the checksum of finding {row[4]!r} is wrong")
        self.findings = tuple(
            RecordedFinding(first, last, start / 1000, end / 1000, *texts)
            for first, last, start, end, *texts, _ in rows
        )
        return [row[-1] for row in rows]

    def _check(self, stored: _Stored, body: bytes) -> None:
        if checksum(*stored[1:5], body) != stored.checksum:
            raise damaged(self.path, f"the checksum of sample {stored.first_sequence} is wrong")

    def _grouped(self) -> List[List[_Stored]]:
        """Each block by itself; of the tail, samples that follow from each other as one."""
        groups: List[List[_Stored]] = []
        for each in self._stored:
            if each.is_first or not groups or groups[-1][0].table == "block":
                groups.append([])
            groups[-1].append(each)
        if sum(map(_count, groups)) > _SAMPLES_MAX or any(_count(g) > SAMPLES_MAX for g in groups):
            raise ValueError("more samples than a recording has")
        return groups

    def _samples_of(self, number: int) -> Iterator[Sample]:
        for index in range(_count(self._groups[number])):
            yield self._sample_in(number, index)

    def _sample_in(self, number: int, index: int) -> Sample:
        with self._trouble():
            series = self._unpacked.pop(number, None) or self._series(number, Sample)
            self._unpacked[number] = series
            if len(self._unpacked) > _BLOCKS_KEPT:
                del self._unpacked[next(iter(self._unpacked))]
            sample: Sample = series[index]
            _check_taken(sample, self._groups[number], index)
            return sample

    def _series(self, number: int, kind: type) -> Series:
        group = self._groups[number]
        series = Series(kind, map(self._body, group), is_part=kind is not Sample)
        if len(series) != _count(group):
            raise ValueError(f"{len(series)} samples from {group[0].first_sequence} on")
        return series

    def _body(self, stored: _Stored) -> bytes:
        found = f"SELECT body FROM {stored.table} WHERE first_sequence = ?"
        row = self._snapshot.store.execute(found, (stored.first_sequence,)).fetchone()
        return bytes(row[0])


class _Window(Recording):
    """A window's samples, in the snapshot of the recording that it is in."""

    def __init__(self, path: str, snapshot: Snapshot, number: int) -> None:
        self.path, self._snapshot, self._number = path, snapshot, number
        self.slo_us: Optional[float] = None
        self.findings: Tuple[RecordedFinding, ...] = ()
        self._unpacked: Dict[int, Series] = {}
        with self._trouble():
            self.observation = self._checked()
            self._groups = self._grouped()

    def windows(self) -> Tuple[WindowTime, ...]:
        return ()

    def autopsies(self) -> Tuple[Autopsy, ...]:
        return ()

    def close(self) -> None:
        """The snapshot is another's."""

    def _checked(self) -> Observation:
        store = self._snapshot.store
        value, self.slo_us, packed, bodies, checksums = store.execute(
            "SELECT checksum, slo_us, body, bodies, checksums FROM full_window WHERE number = ?",
            (self._number,),
        ).fetchone()
        body = observation_text(packed)
        if observation_checksum(body, self.slo_us) != value:
            raise damaged(self.path, f"the checksum of full window {self._number} is wrong")
        self._stored = []
        for *where, crc, packed in store.execute(
            "SELECT first_sequence, last_sequence, first_unix_s, last_unix_s, checksum, body "
            "FROM full_sample WHERE number = ? ORDER BY first_sequence",
            (self._number,),
        ):
            table = "block" if is_block(packed) else "tail"
            first, last, start, end = where
            is_first = table == "block" or begins_anew(packed)
            self._stored.append(_Stored(table, first, last, start, end, crc, is_first))
            self._check(self._stored[-1], packed)
            _check_row(self._stored[-1])
        if (bodies, checksums) != (len(self._stored), sum(s.checksum for s in self._stored)):
            raise damaged(self.path, f"samples of full window {self._number} are missing")
        return from_json(Observation, body)

    def _body(self, stored: _Stored) -> bytes:
        found = "SELECT body FROM full_sample WHERE number = ? AND first_sequence = ?"
        where = (self._number, stored.first_sequence)
        return bytes(self._snapshot.store.execute(found, where).fetchone()[0])


def _count(group: Sequence[_Stored]) -> int:
    return group[-1].last_sequence - group[0].first_sequence + 1


def _check_row(stored: _Stored) -> None:
    if not 0 < stored.last_sequence - stored.first_sequence + 1 <= SAMPLES_MAX:
        raise ValueError(f"samples from {stored.first_sequence} to {stored.last_sequence}")
    _check_time(stored.first_unix_s, stored.last_unix_s)


def _check_taken(value: Union[Sample, Moment], group: Sequence[_Stored], index: int) -> None:
    _check_time(value.unix_s)
    if value.sequence != group[0].first_sequence + index:
        raise ValueError(f"sample {value.sequence} in a wrong place")


def _check_time(*unix_s: float) -> None:
    if not all(0 <= each < _UNIX_S_MAX for each in unix_s):
        raise ValueError(f"an invalid time: {unix_s}")


def open_recording(path: str) -> Recording:
    """The recording at `path`; close it, or use it in a `with`.

    Raises:
        RecordingError: exit code 6, see `Recording`.
    """
    return Recording(path)
