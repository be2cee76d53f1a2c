"""The recording's tables, and the numbers that tell such a file from others.

`docs/recording.md` describes every table and column for those who query them.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any, Optional, Sequence, Union

APPLICATION_ID = 0x75647362
"""`udsb`; in the file's header, byte 68."""

SCHEMA_VERSION = 4
"""In the file's header (user_version)."""

READABLE_VERSIONS = (2, 3, SCHEMA_VERSION)
"""A reader refuses any other. 3 has calls of kept requests by the time since the request arrived,
and observations of full windows as text; 2 former bodies besides. The tables are the same."""

_OBSERVATION_BYTES_MAX = 1 << 20

SAMPLES_PER_BLOCK = 600
"""Of a recording that keeps everything; long blocks are smaller."""

SAMPLES_PER_SPAN = 120
"""A row in each table of spans tells of so many samples, fewer at the end of a block."""

PAGE_BYTES = 4096

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE ledger (one INTEGER PRIMARY KEY CHECK (one = 1), bodies INTEGER, checksum INTEGER);
CREATE TABLE observation (one INTEGER PRIMARY KEY CHECK (one = 1), checksum INTEGER, slo_us REAL,
  body TEXT);
CREATE TABLE block (
  first_sequence INTEGER PRIMARY KEY, last_sequence INTEGER, first_unix_s REAL,
  last_unix_s REAL, checksum INTEGER, body BLOB);
CREATE TABLE tail (
  first_sequence INTEGER PRIMARY KEY, last_sequence INTEGER, first_unix_s REAL,
  last_unix_s REAL, checksum INTEGER, body BLOB);
CREATE TABLE moment (
  sequence INTEGER PRIMARY KEY, unix_ms INTEGER, duration_ms INTEGER, requests INTEGER,
  mean_us INTEGER, p50_us INTEGER, p99_us INTEGER, max_us INTEGER, calls INTEGER,
  failed_calls INTEGER, queue_max INTEGER, refused INTEGER, dropped INTEGER,
  connections INTEGER, busiest_tid INTEGER, busy_pct INTEGER, lost INTEGER,
  cause TEXT);
CREATE TABLE finding (
  number INTEGER PRIMARY KEY, first_sequence INTEGER, last_sequence INTEGER,
  first_unix_ms INTEGER, last_unix_ms INTEGER, id TEXT, severity TEXT, subject TEXT,
  summary TEXT, checksum INTEGER);
CREATE TABLE span (
  first_sequence INTEGER PRIMARY KEY, last_sequence INTEGER, first_unix_ms INTEGER,
  last_unix_ms INTEGER);
CREATE TABLE name (number INTEGER PRIMARY KEY, text TEXT UNIQUE);
CREATE TABLE span_call (
  span INTEGER, name INTEGER, transport INTEGER, calls INTEGER, failed INTEGER,
  bytes INTEGER, wall_us INTEGER, cpu_us INTEGER, p50_us REAL, p99_us REAL, max_us REAL);
CREATE TABLE span_listener (
  span INTEGER, address INTEGER, transport INTEGER, queue_max INTEGER, queue_limit INTEGER,
  established INTEGER, accepted INTEGER, refused INTEGER, dropped INTEGER, wait_p99_us REAL);
CREATE TABLE span_upstream (
  span INTEGER, address INTEGER, transport INTEGER, requests INTEGER, p50_us REAL,
  p99_us REAL, max_us REAL);
CREATE TABLE span_connection (
  span INTEGER, local INTEGER, peer INTEGER, role INTEGER, requests INTEGER,
  bytes_in INTEGER, bytes_out INTEGER, send_blocked INTEGER);
CREATE TABLE span_thread (
  span INTEGER, pid INTEGER, tid INTEGER, comm INTEGER, user_pct REAL, socket_pct REAL,
  runq_pct REAL, busy_pct REAL);
CREATE INDEX span_call_span ON span_call (span);
CREATE INDEX span_listener_span ON span_listener (span);
CREATE INDEX span_upstream_span ON span_upstream (span);
CREATE INDEX span_connection_span ON span_connection (span);
CREATE INDEX span_thread_span ON span_thread (span);
"""

WINDOW_TABLES = """
CREATE TABLE full_window (
  number INTEGER PRIMARY KEY, checksum INTEGER, slo_us REAL, body TEXT, bodies INTEGER,
  checksums INTEGER);
CREATE TABLE full_sample (
  number INTEGER, first_sequence INTEGER, last_sequence INTEGER, first_unix_s REAL,
  last_unix_s REAL, checksum INTEGER, body BLOB, PRIMARY KEY (number, first_sequence));
"""
"""Full windows of detail auto, each with an account of its own: recordings without them, and
versions of udsprobe that do not know them, are none the worse."""

SPAN_TABLES = ("span_call", "span_listener", "span_upstream", "span_connection", "span_thread")

_TIMES = (
    "strftime('%Y-%m-%dT%H:%M:%SZ', span.first_unix_ms / 1000, 'unixepoch') AS start, "
    "(span.last_unix_ms - span.first_unix_ms) / 1000.0 AS duration_s"
)


def _view(name: str, table: str, named: str, rest: str) -> str:
    texts = ", ".join(
        f"(SELECT text FROM name WHERE number = {table}.{each}) AS {each}" for each in named.split()
    )
    return (
        f"CREATE VIEW {name} AS SELECT {_TIMES}, {texts}, {rest} "
        f"FROM {table} JOIN span ON span.first_sequence = {table}.span;"
    )


VIEWS = "\n".join(
    (
        "CREATE VIEW moments AS SELECT "
        "strftime('%Y-%m-%dT%H:%M:%fZ', unix_ms / 1000.0, 'unixepoch') AS time, * FROM moment;",
        "CREATE VIEW findings AS SELECT "
        "strftime('%Y-%m-%dT%H:%M:%SZ', first_unix_ms / 1000, 'unixepoch') AS first, "
        "strftime('%Y-%m-%dT%H:%M:%SZ', last_unix_ms / 1000, 'unixepoch') AS last, "
        "id, severity, subject, summary FROM finding;",
        _view(
            "calls",
            "span_call",
            "name transport",
            "calls, failed, bytes, wall_us, cpu_us, p50_us, p99_us, max_us",
        ),
        _view(
            "listeners",
            "span_listener",
            "address transport",
            "queue_max, queue_limit, established, accepted, refused, dropped, wait_p99_us",
        ),
        _view(
            "upstreams",
            "span_upstream",
            "address transport",
            "requests, p50_us, p99_us, max_us",
        ),
        _view(
            "connections",
            "span_connection",
            "local peer role",
            "requests, bytes_in, bytes_out, send_blocked",
        ),
        _view(
            "threads",
            "span_thread",
            "comm",
            "pid, tid, user_pct, socket_pct, runq_pct, busy_pct",
        ),
    )
)


_KEY = struct.Struct("<qqdd")


def checksum(first: int, last: int, first_unix_s: float, last_unix_s: float, body: bytes) -> int:
    """CRC-32 of a stored body with the columns it is found by."""
    return zlib.crc32(body, zlib.crc32(_KEY.pack(first, last, first_unix_s, last_unix_s)))


def observation_checksum(body: str, slo_us: Optional[float]) -> int:
    """The same of the observation."""
    return checksum(0, 0, -1.0 if slo_us is None else slo_us, 0.0, body.encode())


def small(observation: str) -> bytes:
    """Of a full window, which has little else."""
    return zlib.compress(observation.encode(), 9)


def observation_text(body: Union[str, bytes]) -> str:
    """What `small` was given; a text is one already.

    Raises:
        ValueError, zlib.error: these are not the bytes that `small` made.
    """
    if isinstance(body, str):
        return body
    opened = zlib.decompressobj()
    text = opened.decompress(body, _OBSERVATION_BYTES_MAX)
    if not opened.eof:
        raise ValueError("an observation without an end")
    return text.decode()


def finding_checksum(row: Sequence[Any]) -> int:
    """The same of a row of `finding`, without its number and checksum."""
    return zlib.crc32(json.dumps(list(row)).encode())
