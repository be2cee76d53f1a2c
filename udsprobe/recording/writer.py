"""Samples into the file of a recording, one transaction each.

Every sample is on the disk when `add` returns: as a difference from the one
before it (`tail`). From time to time those become one block, which is much
smaller, and what need not be kept is dropped. Making a block small takes up to a
second of CPU time: a few milliseconds of it at each of the next samples.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Tuple

from udsprobe import __version__
from udsprobe.errors import UdsprobeError
from udsprobe.model.difference import report
from udsprobe.model.report import Finding, Report, Verdict
from udsprobe.recording.autopsy import Autopsies
from udsprobe.recording.bodies.body import Packing, pack
from udsprobe.recording.bodies.columns import Columns
from udsprobe.recording.bodies.open_block import OpenBlock
from udsprobe.recording.layout import (
    APPLICATION_ID,
    PAGE_BYTES,
    SAMPLES_PER_BLOCK,
    SAMPLES_PER_SPAN,
    SCHEMA_VERSION,
    SPAN_TABLES,
    TABLES,
    VIEWS,
    WINDOW_TABLES,
    checksum,
    finding_checksum,
    observation_checksum,
)
from udsprobe.recording.place import OwnFile
from udsprobe.recording.plain import to_json
from udsprobe.recording.retention import Period, Retention
from udsprobe.recording.summary import moment, span_rows
from udsprobe.recording.window_writer import WindowRecorder, told_by_both
from udsprobe.sample import Observation, Sample

_FindingKey = Tuple[str, str, Optional[str]]
_WAL_PAGES = 256
_NAMES_MAX = 20_000
# What is gathered of a block is in memory, about 40 bytes a change.
_CHANGES_PER_BLOCK = 800_000
_SETTINGS = (
    f"PRAGMA page_size = {PAGE_BYTES}",
    "PRAGMA auto_vacuum = INCREMENTAL",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}",
    f"PRAGMA journal_size_limit = {_WAL_PAGES * PAGE_BYTES}",
)
# With the tables or not at all, so that one that was killed in between is told from a foreign file.
_OURS = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


class RecordingFailedError(UdsprobeError):
    """The recording could not be written on; what it has is readable."""


class Recorder:
    """Writes one recording.

    Args:
        path: a file that is not there yet.
        retention: what to keep.

    Attributes:
        failure: why nothing is written any more; None while all is well.
        samples: how many the file holds.

    Raises:
        UsageError: `recording-exists`, `recording-not-writable`.
    """

    def __init__(self, path: str, retention: Optional[Retention] = None) -> None:
        self.path = path
        self.failure: Optional[RecordingFailedError] = None
        self.samples = 0
        self._retention = retention or Retention()
        self._file = OwnFile(path)
        self._observation: Optional[Observation] = None
        self._oldest_unix_s = 0.0
        self._last: Optional[Sample] = None
        self._base: Optional[Sample] = None
        self._bodies, self._checksum = 0, 0
        self._names: Dict[str, int] = {}
        self._open_findings: Dict[_FindingKey, int] = {}
        self._causes: List[Period] = []
        self._autopsies = Autopsies()
        self._window_verdict: Optional[Verdict] = None
        self._open = OpenBlock()
        self._closing: Optional[_ClosingBlock] = None
        self._span_first: Optional[Sample] = None
        try:
            # The dashboard takes samples in a thread of its own.
            self._store = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._file.check_opened()
        except BaseException:
            self._file.remove()
            raise
        # Before the probes are loaded, so that a kill meanwhile leaves a recording.
        with suppress(_Failed):
            self._attempt(self._make_tables)

    @property
    def recorded_s(self) -> float:
        """Seconds from the oldest sample that is kept to the newest."""
        return 0.0 if self._last is None else self._last.unix_s - self._oldest_unix_s

    def begin(
        self, observation: Observation, first: Sample, slo_us: Optional[float] = None
    ) -> None:
        """Write what does not change, and the first sample.

        Args:
            slo_us: that verdicts are judged by.
        """
        self._observation = observation
        self._base, self._oldest_unix_s = first, first.unix_s
        body = to_json(observation)
        self._bodies, self._checksum = 1, observation_checksum(body, slo_us)
        with suppress(_Failed):
            if self.failure is None:
                self._attempt(lambda: self._put_observation(body, slo_us))
        self.add(first, None)

    def add(self, sample: Sample, interval: Optional[Report]) -> None:
        """Write the next sample; does nothing once something failed.

        Args:
            interval: the report of the time since the last one.
        """
        if self.failure is not None:
            return
        with suppress(_Failed):
            self._attempt(lambda: self._in_one(sample, interval))

    def amend(self, observation: Observation, slo_us: Optional[float] = None) -> None:
        """What is said of all samples from now on: some of it is not measured any more.

        Args:
            slo_us: as `begin` was given it.
        """
        assert self._observation is not None
        before = observation_checksum(to_json(self._observation), slo_us)
        body = to_json(observation)
        value = observation_checksum(body, slo_us)

        def work() -> None:
            self._store.execute("BEGIN IMMEDIATE")
            self._store.execute("UPDATE observation SET checksum = ?, body = ?", (value, body))
            self._checksum += value - before
            self._commit()

        self._observation = observation
        with suppress(_Failed):
            if self.failure is None:
                self._attempt(work)

    def full_window(self) -> WindowRecorder:
        """For the samples of one full window of detail auto, which are kept by themselves."""
        return WindowRecorder(
            self._window_store, self._retention, self._autopsies, self._hear_window
        )

    def _hear_window(self, verdict: Optional[Verdict]) -> None:
        self._window_verdict = verdict

    def _window_store(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """In one transaction; does nothing once something failed."""
        if self.failure is not None:
            return

        def in_one() -> None:
            self._store.execute("BEGIN IMMEDIATE")
            work(self._store)
            self._store.execute("COMMIT")

        with suppress(_Failed):
            self._attempt(in_one)

    def close(self) -> None:
        """Make one file of it; one in which nothing was recorded goes."""
        if self._observation is None:
            self._store.close()
            self._file.remove()
            return
        with suppress(_Failed):
            if self.failure is None:
                self._attempt(self._finish)
        # A full disk may not take the rest of the log: then it stays beside the file.
        with suppress(sqlite3.Error):
            self._store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._store.execute("PRAGMA journal_mode = DELETE")
        with suppress(sqlite3.Error):
            self._store.close()
        self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attempt(self, work: Any) -> None:
        try:
            work()
        # OverflowError: a number of more than 64 bits, which no counter has.
        except (sqlite3.Error, OSError, OverflowError) as error:
            with suppress(sqlite3.Error):
                if self._store.in_transaction:
                    self._store.execute("ROLLBACK")
            self.failure = RecordingFailedError(
                "recording-failed",
                f"writing the recording {self.path!r} failed: {error}",
                "it is complete up to then; free space there, or record elsewhere",
            )
            raise _Failed from error

    def _make_tables(self) -> None:
        store = self._store
        for setting in _SETTINGS:
            store.execute(setting)
        store.execute("BEGIN IMMEDIATE")
        self._file.check_companions()
        for setting in _OURS:
            store.execute(setting)
        for statement in f"{TABLES}{WINDOW_TABLES}{VIEWS}".split(";"):
            if statement.strip():
                store.execute(statement)
        about = {"format": "udsprobe recording", "schema": SCHEMA_VERSION, "version": __version__}
        about["samples_per_block"] = SAMPLES_PER_BLOCK
        store.executemany("INSERT INTO meta VALUES (?, ?)", about.items())
        store.execute("INSERT INTO ledger VALUES (1, 0, 0)")
        store.execute("COMMIT")

    def _put_observation(self, body: str, slo_us: Optional[float]) -> None:
        self._store.execute("BEGIN IMMEDIATE")
        row = (self._checksum, slo_us, body)
        self._store.execute("INSERT INTO observation VALUES (1, ?, ?, ?)", row)
        self._commit()

    def _in_one(self, sample: Sample, interval: Optional[Report]) -> None:
        self._store.execute("BEGIN IMMEDIATE")
        self._append(sample)
        if interval is not None:
            interval = told_by_both(interval, self._window_verdict)
            row = moment(sample, interval)
            places = ",".join("?" * len(row))
            self._store.execute(f"INSERT INTO moment VALUES ({places})", row)
            self._note(interval.findings or [], sample)
            if interval.verdict is not None:
                self._autopsies.add(sample.sequence, sample.unix_s, interval.verdict.cause)
        self._last = sample
        self.samples += 1
        self._span_first = self._span_first or sample
        if self._closing is not None and self._closing.is_made():
            self._put_block()
        if self._is_block_full(sample):
            self._begin_to_close_block()
        elif sample.sequence - self._span_first.sequence + 1 >= SAMPLES_PER_SPAN:
            self._close_span()
        self._commit()

    def _finish(self) -> None:
        self._store.execute("BEGIN IMMEDIATE")
        if self._open.first is not None:
            self._begin_to_close_block()
        self._put_block()
        self._commit()
        # `execute` would free one page and not ask for the next.
        self._store.executescript("PRAGMA incremental_vacuum")

    def _commit(self) -> None:
        row = (self._bodies, self._checksum)
        self._store.execute("UPDATE ledger SET bodies = ?, checksum = ?", row)
        self._store.execute("COMMIT")

    def _append(self, sample: Sample) -> None:
        change = self._open.add(sample)
        self._open.tail_bytes += self._insert("tail", sample, sample, pack(change))

    def _insert(self, table: str, first: Sample, last: Sample, body: bytes) -> int:
        where = (first.sequence, last.sequence, first.unix_s, last.unix_s)
        value = checksum(*where, body)
        self._store.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?)", (*where, value, body))
        self._bodies += 1
        self._checksum += value
        return len(body)

    def _is_block_full(self, newest: Sample) -> bool:
        first, bound = self._open.first or newest, self._retention.bytes_max
        return (
            self._open.gathered.count >= SAMPLES_PER_BLOCK
            or self._open.gathered.changes >= _CHANGES_PER_BLOCK
            or newest.unix_s - first.unix_s >= self._retention.block_s
            or (bound is not None and self._open.tail_bytes > bound // 16)
        )

    def _begin_to_close_block(self) -> None:
        self._put_block()
        first, last = self._open.first, self._last
        assert first is not None and last is not None
        self._closing = _ClosingBlock(first, last, self._open.columns())
        self._close_span()
        self._open = OpenBlock()

    def _put_block(self) -> None:
        """In the place of its samples, which were in the file one by one until now."""
        if self._closing is None:
            return
        first, last = self._closing.first, self._closing.last
        body = self._closing.packing.finish()
        within = "first_sequence BETWEEN ? AND ?"
        self._forget("tail", within, (first.sequence, last.sequence))
        self._insert("block", first, last, body)
        self._drop((self._last or last).unix_s)
        self._closing = None

    def _close_span(self) -> None:
        first, last = self._span_first, self._last
        if first is not None and last is not None:
            self._write_span(first, last)
            self._base, self._span_first = last, None

    def _forget(self, table: str, which: str, values: Tuple[Any, ...]) -> None:
        chosen = f"FROM {table} WHERE {which}"
        count, total = self._store.execute(
            f"SELECT count(*), total(checksum) {chosen}", values
        ).fetchone()
        self._bodies -= count
        self._checksum -= int(total)
        self._store.execute(f"DELETE {chosen}", values)

    def _write_span(self, first: Sample, last: Sample) -> None:
        assert self._observation is not None and self._base is not None
        whole = report(self._observation, self._base, last)
        began_ms, ended_ms = round(self._base.unix_s * 1000), round(last.unix_s * 1000)
        self._store.execute(
            "INSERT INTO span VALUES (?, ?, ?, ?)",
            (first.sequence, last.sequence, began_ms, ended_ms),
        )
        for table, rows in span_rows(whole, first.sequence, self._number).items():
            if rows:
                places = ",".join("?" * len(rows[0]))
                self._store.executemany(f"INSERT INTO {table} VALUES ({places})", rows)

    def _number(self, text: Optional[str]) -> Optional[int]:
        if text is None:
            return None
        number = self._names.get(text)
        if number is None:
            stored = text.encode("utf-8", "backslashreplace").decode()
            self._store.execute("INSERT OR IGNORE INTO name (text) VALUES (?)", (stored,))
            found = self._store.execute("SELECT number FROM name WHERE text = ?", (stored,))
            number = self._names[text] = int(found.fetchone()[0])
        return number

    def _note(self, findings: List[Finding], sample: Sample) -> None:
        """A finding that stays is one row, and one cause to keep samples around."""
        still: Dict[_FindingKey, int] = {}
        for each in findings:
            key = (each.id, each.severity, each.subject)
            still[key] = self._put_finding(self._open_findings.get(key), each, sample)
        self._open_findings = still
        if any(self._retention.is_cause(each.severity) for each in findings):
            self._add_cause(sample.unix_s)

    def _put_finding(self, number: Optional[int], finding: Finding, sample: Sample) -> int:
        """The number of its row, which is new or ends later than it did."""
        began: Tuple[int, int] = (sample.sequence, round(sample.unix_s * 1000))
        if number is not None:
            found = "SELECT first_sequence, first_unix_ms FROM finding WHERE number = ?"
            began = self._store.execute(found, (number,)).fetchone()
            self._forget("finding", "number = ?", (number,))
        texts = map(_storable, (finding.id, finding.severity, finding.subject, finding.summary))
        unix_ms = round(sample.unix_s * 1000)
        row = (began[0], sample.sequence, began[1], unix_ms, *texts)
        value = finding_checksum(row)
        made = self._store.execute(
            "INSERT INTO finding VALUES (?,?,?,?,?,?,?,?,?,?)", (number, *row, value)
        )
        self._bodies += 1
        self._checksum += value
        return int(made.lastrowid or 0)

    def _add_cause(self, now: float) -> None:
        if self._causes and now - self._causes[-1].end <= 2 * self._retention.around_s:
            self._causes[-1] = Period(self._causes[-1].start, now)
        else:
            self._causes.append(Period(now, now))

    def _drop(self, now: float) -> None:
        found = self._store.execute(
            "SELECT first_sequence, last_sequence, first_unix_s, last_unix_s FROM block "
            "ORDER BY first_sequence"
        ).fetchall()
        outliving = self._autopsies.periods()
        past: List[Tuple[int, int]] = []
        kept: List[Tuple[int, int, float]] = []
        for first, last, start, end in found:
            period = Period(start, end)
            if self._retention.drops(period, now, self._causes, outliving):
                self._drop_block(first, last)
            elif self._retention.is_past_ring(period, now):
                past.append((first, last))
            else:
                kept.append((first, last, start))
        self._shrink(past, kept)
        self._oldest_unix_s = kept[0][2]
        if len(self._names) > _NAMES_MAX:
            self._drop_names()

    def _shrink(self, past: List[Tuple[int, int]], kept: List[Tuple[int, int, float]]) -> None:
        """To the bound of its size: autopsies may have half of it, the ring the rest."""
        while self._is_too_large():
            if len(past) > len(kept) or (past and len(kept) == 1):
                self._drop_block(*past.pop(0))
            elif len(kept) > 1:
                self._drop_block(*kept.pop(0)[:2])
            else:
                return

    def _drop_block(self, first: int, last: int) -> None:
        self._forget("block", "first_sequence = ?", (first,))
        self.samples -= last - first + 1
        store = self._store
        store.execute("DELETE FROM moment WHERE sequence BETWEEN ? AND ?", (first, last))
        store.execute("DELETE FROM span WHERE first_sequence BETWEEN ? AND ?", (first, last))
        for table in SPAN_TABLES:
            store.execute(f"DELETE FROM {table} WHERE span BETWEEN ? AND ?", (first, last))
        if self._retention.ring_s is not None:
            self._forget("finding", "last_sequence BETWEEN ? AND ?", (first, last))

    def _is_too_large(self) -> bool:
        bound = self._retention.bytes_max
        if bound is None:
            return False
        pages, free = (
            self._store.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count")
        )
        return bool((pages - free) * PAGE_BYTES > bound * 3 // 4)

    def _drop_names(self) -> None:
        used = " UNION ".join(
            f"SELECT {column} FROM {table}"
            for table, columns in (
                ("span_call", ("name", "transport")),
                ("span_listener", ("address", "transport")),
                ("span_upstream", ("address", "transport")),
                ("span_connection", ("local", "peer", "role")),
                ("span_thread", ("comm",)),
            )
            for column in columns
        )
        self._store.execute(f"DELETE FROM name WHERE number NOT IN ({used} UNION SELECT 0)")
        self._names.clear()


class _Failed(Exception):
    pass


class _ClosingBlock:
    """Samples that are about to be one block."""

    def __init__(self, first: Sample, last: Sample, columns: Columns) -> None:
        self.first, self.last = first, last
        self.packing = Packing(columns)
        # Done long before the next block is full, however short they are.
        self._steps = -(-self.packing.steps // max(1, columns.samples // 4))

    def is_made(self) -> bool:
        """After a part of the work."""
        return self.packing.advance(self._steps)


def _storable(text: Optional[str]) -> Optional[str]:
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()
