"""Full windows of detail auto into a recording: each an observation of its own.

Every sample is on the disk when `add` returns, and the samples of a window become one block when
it ends. Windows outlive a ring as blocks do, where an autopsy is around them.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Callable, List, NamedTuple, Optional, Tuple

from udsprobe.model.report import Report, Verdict
from udsprobe.recording.autopsy import QUIET, Autopsies
from udsprobe.recording.bodies.body import Packing, pack
from udsprobe.recording.bodies.open_block import OpenBlock
from udsprobe.recording.layout import SAMPLES_PER_BLOCK, checksum, observation_checksum, small
from udsprobe.recording.plain import to_json
from udsprobe.recording.retention import Period, Retention
from udsprobe.sample import Observation, Sample

WINDOWS_MAX = 2_000
"""In a file: a day of one each 43 s."""

RING_PART = 4
"""Windows may have this part of a ring's bytes."""

Work = Callable[[sqlite3.Connection], None]


class _Kept(NamedTuple):
    number: int
    period: Period
    bytes: int


class WindowRecorder:
    """Writes one window; to an `Observer` it is its recorder.

    Args:
        in_one: does work on the store in one transaction.
        retention: of the recording.
        autopsies: that the recorder follows.
        tell: told the verdict of each interval, and None when the window ends.
    """

    def __init__(
        self,
        in_one: Callable[[Work], None],
        retention: Retention,
        autopsies: Autopsies,
        tell: Callable[[Optional[Verdict]], None],
    ) -> None:
        self._in_one, self._retention, self._autopsies = in_one, retention, autopsies
        self._tell = tell
        self._open = OpenBlock()
        self._number = 0
        self._last: Optional[Sample] = None

    def begin(
        self, observation: Observation, first: Sample, slo_us: Optional[float] = None
    ) -> None:
        """The window's first sample; arguments as of `Recorder.begin`."""
        body = to_json(observation)
        value = observation_checksum(body, slo_us)

        def work(store: sqlite3.Connection) -> None:
            row = (value, slo_us, small(body))
            made = store.execute("INSERT INTO full_window VALUES (NULL, ?, ?, ?, 0, 0)", row)
            self._number = int(made.lastrowid or 0)
            self._append(store, first)

        self._in_one(work)

    def add(self, sample: Sample, interval: Optional[Report]) -> None:
        """The next one; of a very long window the first samples are kept."""
        self._tell(None if interval is None else interval.verdict)
        if self._number and self._open.gathered.count < SAMPLES_PER_BLOCK:
            self._in_one(lambda store: self._append(store, sample))

    def end(self) -> None:
        """The window is closed: one block instead of its samples; what need not be kept goes."""
        self._tell(None)
        if self._number and self._last is not None:
            self._in_one(self._finish)

    def _append(self, store: sqlite3.Connection, sample: Sample) -> None:
        self._insert(store, sample, sample, pack(self._open.add(sample)))
        self._last = sample

    def _insert(self, store: sqlite3.Connection, first: Sample, last: Sample, body: bytes) -> None:
        where = (first.sequence, last.sequence, first.unix_s, last.unix_s)
        value = checksum(*where, body)
        row = (self._number, *where, value, body)
        store.execute("INSERT INTO full_sample VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        store.execute(
            "UPDATE full_window SET bodies = bodies + 1, checksums = checksums + ? "
            "WHERE number = ?",
            (value, self._number),
        )

    def _finish(self, store: sqlite3.Connection) -> None:
        first, last = self._open.first, self._last
        assert first is not None and last is not None
        body = Packing(self._open.columns()).finish()
        store.execute("DELETE FROM full_sample WHERE number = ?", (self._number,))
        account = "UPDATE full_window SET bodies = 0, checksums = 0 WHERE number = ?"
        store.execute(account, (self._number,))
        self._insert(store, first, last, body)
        for number in self._to_drop(_kept(store), last.unix_s):
            store.execute("DELETE FROM full_sample WHERE number = ?", (number,))
            store.execute("DELETE FROM full_window WHERE number = ?", (number,))

    def _to_drop(self, kept: List[_Kept], now: float) -> List[int]:
        around = self._autopsies.periods()
        past = [each for each in kept if self._retention.is_past_ring(each.period, now)]
        gone = [each for each in past if not _within(each.period, around)]
        left = [each for each in kept if each not in gone]
        # What no autopsy needs goes first, and then the oldest.
        left.sort(key=lambda each: (_within(each.period, around), each.number))
        while left and self._is_too_much(left):
            gone.append(left.pop(0))
        return [each.number for each in gone]

    def _is_too_much(self, kept: List[_Kept]) -> bool:
        bound = self._retention.bytes_max
        if len(kept) > WINDOWS_MAX:
            return True
        return bound is not None and sum(each.bytes for each in kept) > bound // RING_PART


def told_by_both(light: Report, of_window: Optional[Verdict]) -> Report:
    """Light's interval with the verdict of the open window, where that alone names a cause."""
    is_quiet = light.verdict is None or light.verdict.cause in QUIET
    if of_window is None or of_window.cause in QUIET or not is_quiet:
        return light
    return replace(light, verdict=of_window)


def _within(period: Period, around: List[Period]) -> bool:
    return any(one.start <= period.end and period.start <= one.end for one in around)


def _kept(store: sqlite3.Connection) -> List[_Kept]:
    rows: List[Tuple[int, float, float, int]] = store.execute(
        "SELECT number, min(first_unix_s), max(last_unix_s), sum(length(body)) FROM full_sample "
        "GROUP BY number ORDER BY number"
    ).fetchall()
    return [_Kept(number, Period(start, end), size) for number, start, end, size in rows]
