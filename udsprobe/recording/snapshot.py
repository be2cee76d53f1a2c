"""A recording's file as it is at one moment, opened for reading only.

One that is being written, or whose writer was killed, has its newest samples
in a log beside it (`FILE-wal`): both are copied first, by SQLite where it can.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from typing import Dict, Optional
from urllib.parse import quote

from udsprobe.errors import RecordingError
from udsprobe.recording.layout import APPLICATION_ID, READABLE_VERSIONS, TABLES, WINDOW_TABLES

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_WINDOW_TABLES = frozenset({"full_window", "full_sample"})
_TABLES = frozenset({"meta", "ledger", "observation", "block", "tail", "finding", "moment"})


class Snapshot:
    """An open database of our schema.

    Attributes:
        store: to query.

    Raises:
        RecordingError: `recording-unreadable`, `recording-foreign`,
            `recording-newer`, `recording-damaged`, `recording-empty`.
    """

    def __init__(self, path: str) -> None:
        self._copy: Optional[tempfile.TemporaryDirectory[str]] = None
        _check_header(path)
        try:
            self.store = self._opened(path)
            _check_tables(self.store, path)
        # UnicodeDecodeError: Python could not read the words of SQLite's error.
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self.close()
            raise damaged(path, str(error)) from error
        except OSError as error:
            self.close()
            raise _unreadable(path, error.strerror or str(error)) from error

    def close(self) -> None:
        """Give it back, and the copy."""
        store: Optional[sqlite3.Connection] = getattr(self, "store", None)
        if store is not None:
            store.close()
        if self._copy is not None:
            self._copy.cleanup()

    def _opened(self, path: str) -> sqlite3.Connection:
        if not _has_log(path):
            return _connect(path, "mode=ro&immutable=1")
        self._copy = tempfile.TemporaryDirectory(prefix="udsprobe-")
        copy = os.path.join(self._copy.name, "recording")
        try:
            with closing(_connect(path, "mode=ro")) as live, closing(sqlite3.connect(copy)) as here:
                live.backup(here)
        except sqlite3.OperationalError:
            # Nobody writes it, and its directory is not ours to write to.
            for ending in ("", "-wal"):
                shutil.copyfile(path + ending, copy + ending)
        return _connect(copy, "mode=rw")


def has_windows(store: sqlite3.Connection) -> bool:
    """Whether there is room for full windows; recordings of earlier versions have none."""
    return set(_definitions(store)) >= _WINDOW_TABLES


def damaged(path: str, why: str, detail: str = "") -> RecordingError:
    """The error for content that is not as it was written."""
    return RecordingError(
        "recording-damaged",
        f"the recording {path!r} is damaged: {why}",
        "copy it again; its content cannot be trusted",
        detail=detail,
    )


def empty(path: str) -> RecordingError:
    """The error for what a recorder leaves that was ended before its first sample."""
    return RecordingError(
        "recording-empty",
        f"the recording {path!r} has no samples: it ended before the first one",
        f"record for longer; if {os.path.basename(path)}-wal was beside it, keep both together",
    )


def _has_log(path: str) -> bool:
    try:
        return os.stat(f"{path}-wal").st_size > 0
    except OSError:
        return False


def _connect(path: str, how: str) -> sqlite3.Connection:
    where = quote(os.path.abspath(path))
    store = sqlite3.connect(
        f"file:{where}?{how}", uri=True, isolation_level=None, check_same_thread=False
    )
    store.execute("PRAGMA trusted_schema = OFF")
    store.execute("PRAGMA cell_size_check = ON")
    return store


def _check_header(path: str) -> None:
    try:
        with open(path, "rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the name
        raise _unreadable(path, str(error)) from error
    if header.startswith(_MAGIC) and len(header) == _HEADER_BYTES:
        return
    if header:
        raise _foreign(path)
    # SQLite writes the header with the first checkpoint.
    if not _has_log(path):
        raise empty(path)


def _check_tables(store: sqlite3.Connection, path: str) -> None:
    if store.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        # The log with the first commit was never written, or not copied.
        raise _foreign(path) if _definitions(store) else empty(path)
    version = store.execute("PRAGMA user_version").fetchone()[0]
    if version not in READABLE_VERSIONS:
        raise newer(path, f"schema {version}")
    found = _definitions(store)
    with closing(sqlite3.connect(":memory:")) as made:
        made.executescript(TABLES + WINDOW_TABLES)
        ours = _definitions(made)
    # Our own statements only: SQL of strangers could compute without an end.
    known = _TABLES | (_WINDOW_TABLES & set(found))
    wrong = {name for name in known if found.get(name) != ours[name]}
    if wrong:
        raise damaged(path, f"its table {min(wrong)} is missing, or another one")


def _definitions(store: sqlite3.Connection) -> Dict[str, str]:
    return dict(store.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))


def newer(path: str, what: str) -> RecordingError:
    """The error for what this version does not know."""
    return RecordingError(
        "recording-newer",
        f"the recording {path!r} has {what}, which this version cannot read",
        "read it with the udsprobe that wrote it, or a later one",
    )


def _unreadable(path: str, why: str) -> RecordingError:
    return RecordingError(
        "recording-unreadable",
        f"cannot read the recording {path!r}: {why}",
        "check the name and the owner: only its owner can read a recording",
    )


def _foreign(path: str) -> RecordingError:
    return RecordingError(
        "recording-foreign",
        f"{path!r} is not a udsprobe recording",
        "give a file made by attach --record, run --record or record -o",
    )
