"""The account of waits stays small, and none is counted twice or lost."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Iterator, Tuple

import pytest

from udsprobe.kernel.abilities import features
from udsprobe.kernel.abilities.syscall_table import syscall_tables
from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.tables import wakers
from udsprobe.kernel.tables.wakers import WaitTable
from udsprobe.kernel.tracer import Tracer
from udsprobe.model.threads.waits import _window
from udsprobe.sample import WaitCounts

pytestmark = [pytest.mark.root, pytest.mark.alone]

KEPT = 8
GONE_TID = 1 << 29


@pytest.fixture
def loaded() -> Iterator[ProbeObject]:
    tracer = Tracer()
    try:
        tracer.detach()
        yield tracer._object
    finally:
        tracer.close()


def put(
    loaded: ProbeObject, tid: int, waited_ns: int, author_tid: int = 0, comm: bytes = b""
) -> None:
    key: Any = loaded.btf.structure("wait_key")()
    counts: Any = loaded.btf.structure("wait_counts")()
    enums = loaded.btf.enum("doing"), loaded.btf.enum("author")
    key.tid, key.started_ns = tid, tid
    author = "AUTHOR_THREAD" if author_tid else "AUTHOR_UNKNOWN"
    key.doing, key.author = enums[0]["DOING_LOCK"], enums[1][author]
    key.author_tgid = key.author_tid = author_tid
    counts.count, counts.tgid = 1, os.getpid()
    counts.was_ns[enums[0]["DOING_CPU" if comm else "DOING_UNKNOWN"]] = waited_ns
    counts.comm = comm
    loaded.update("waits", bytes(key), bytes(counts))


def reader(loaded: ProbeObject) -> WaitTable:
    return WaitTable(loaded, syscall_tables(os.uname().machine), Procfs())


def totals(rows: Tuple[WaitCounts, ...]) -> Tuple[int, int]:
    return sum(row.count for row in rows), sum(p.total_ns for row in rows for p in row.parts)


def left(loaded: ProbeObject) -> int:
    sizes = (ctypes.sizeof(loaded.btf.structure(name)) for name in ("wait_key", "wait_counts"))
    return len(list(loaded.entries("waits", *sizes)))


def test_threads_that_ended_become_one_row(
    loaded: ProbeObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakers, "ROWS_KEPT_MAX", KEPT)
    table = reader(loaded)
    put(loaded, os.getpid(), 1000)
    for number in range(KEPT - 1):
        put(loaded, GONE_TID + number, 10)
    assert len(table.read()) == KEPT
    put(loaded, GONE_TID + KEPT, 10)
    rows = table.read()
    assert {row.tid for row in rows} == {os.getpid(), 0}
    assert totals(rows) == (KEPT + 1, 1000 + 10 * KEPT)
    assert left(loaded) == 1


def test_authors_that_ended_become_one_row(
    loaded: ProbeObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parent that waits for a child a second, for a day: the map would be full of them."""
    monkeypatch.setattr(wakers, "ROWS_KEPT_MAX", KEPT)
    table = reader(loaded)
    put(loaded, os.getpid(), 1000)
    put(loaded, os.getpid(), 100, author_tid=os.getpid())
    for number in range(KEPT - 2):
        put(loaded, os.getpid(), 10, author_tid=GONE_TID + number)
    before = table.read()
    assert len(before) == KEPT
    for number in range(KEPT):
        put(loaded, os.getpid(), 10, author_tid=GONE_TID + KEPT + number)
    after = table.read()
    assert totals(after) == (2 * KEPT, 1100 + 10 * (2 * KEPT - 2))
    assert sorted((row.author, row.count) for row in after) == [("thread", 1), ("unknown", 15)]
    assert {row.tid for row in after} == {os.getpid()}
    assert left(loaded) == 2
    added = list(_window(before, after))
    assert [(row.tid, row.author, row.count) for row in added] == [(os.getpid(), "unknown", KEPT)]
    assert totals(tuple(added)) == (KEPT, 10 * KEPT)


def test_of_authors_that_ended_the_program_stays(
    loaded: ProbeObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child for each request: which one it was is forgotten, what such children did is not."""
    monkeypatch.setattr(wakers, "ROWS_KEPT_MAX", KEPT)
    monkeypatch.setattr(wakers, "PROGRAMS_KEPT_MAX", 1)
    table = reader(loaded)
    for number in range(KEPT):
        put(loaded, os.getpid(), 10, GONE_TID + number, b"convert")
    before = table.read()
    for number in range(KEPT, 3 * KEPT):
        comm = b"convert" if number < 2 * KEPT else b"other"
        put(loaded, os.getpid(), 10, GONE_TID + number, comm)
    after = table.read()
    assert totals(after) == (3 * KEPT, 30 * KEPT)
    assert sorted((row.author, row.author_comm, row.count) for row in after) == [
        ("program", "convert", 2 * KEPT),
        ("unknown", None, KEPT),
    ]
    added = {row.author: row for row in _window(before, after)}
    assert {name: row.count for name, row in added.items()} == {"program": KEPT, "unknown": KEPT}
    assert [(part.was, part.total_ns) for part in added["program"].parts] == [("cpu", 10 * KEPT)]
    put(loaded, os.getpid(), 10, GONE_TID, b"convert")
    assert totals(table.read()) == (3 * KEPT + 1, 30 * KEPT + 10)


def test_names_are_given_once_and_kept(
    loaded: ProbeObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows beyond the bound are one without a name, even when there is room again."""
    monkeypatch.setattr(wakers, "ROWS_KEPT_MAX", 1)
    table = reader(loaded)
    monkeypatch.setattr(table, "_look_above", 100)
    for tid in range(1, 4):
        put(loaded, tid, 100)
    first = table.read()
    assert sorted(row.tid != 0 for row in first) == [False, True]
    assert totals(first) == (3, 300)
    assert totals(table.read()) == (3, 300)


def test_where_interrupts_are_not_told_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that a wake would name whoever an interrupt met: off, and all else goes on."""
    monkeypatch.setattr(features, "may_be_told", lambda types: False)
    tracer = Tracer()
    try:
        states = {state.name: state for state in tracer.measurements()}
        assert (states["waits"].state, states["thread_time"].state) == ("off", "on")
        assert tracer.wait_table(Procfs()) is None
    finally:
        tracer.close()
