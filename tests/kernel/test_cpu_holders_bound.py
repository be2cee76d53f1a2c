"""Processes that come and go leave the map of CPU holders, and their waits stay."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from tests.workloads.hop import Hop
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.tables.cpu_holders import KEPT_MIN, LONGEST_KEPT, CpuHolders
from udsprobe.kernel.tracer import Tracer
from udsprobe.sample import ENDED_PID
from udsprobe.symbols.dwarf.confined import NAME

pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.usefixtures("nothing_left_over")]

ENDED = 300
NS_PER_TICK = 10_000_000


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    """Without a target: nobody else adds to the map."""
    made = Tracer()
    yield made
    made.close()


def ended_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_the_ended_are_one_row_and_the_living_and_the_longest_stay(tracer: Tracer) -> None:
    loaded = tracer._object
    key, holder = (loaded.btf.structure(name) for name in ("cpu_holder_key", "cpu_holder"))
    own = Procfs().process(os.getpid())
    assert own is not None
    living = key(started_ns=own.start_ticks * NS_PER_TICK, tgid=os.getpid())
    loaded.update("cpu_holders", bytes(living), bytes(holder(waited_ns=1)))
    gone = ended_pid()
    # One number, as many beginnings: each another process, and none alive.
    for number in range(1, ENDED + 1):
        one = key(started_ns=number * NS_PER_TICK, tgid=gone)
        loaded.update("cpu_holders", bytes(one), bytes(holder(waited_ns=1000 + number)))
    holders = CpuHolders(loaded, Procfs())
    rows = holders.read()
    assert sum(row.waited_ns for row in rows) == 1 + sum(1000 + n for n in range(1, ENDED + 1))
    assert len(rows) == 1 + LONGEST_KEPT + 1 <= KEPT_MIN
    assert {row.waited_ns for row in rows if row.pid == gone} == {
        1000 + number for number in range(ENDED + 1 - LONGEST_KEPT, ENDED + 1)
    }
    assert [row.waited_ns for row in rows if row.pid == os.getpid()] == [1]
    (together,) = [row for row in rows if row.pid == ENDED_PID]
    assert together.comm is None
    left = list(loaded.entries("cpu_holders", ctypes.sizeof(key), ctypes.sizeof(holder)))
    assert len(left) == 1 + LONGEST_KEPT
    assert {row.waited_ns for row in holders.read()} == {row.waited_ns for row in rows}


def test_partners_are_known_when_they_have_ended(tracer: Tracer) -> None:
    loaded = tracer._object
    key, holder = (loaded.btf.structure(name) for name in ("cpu_holder_key", "cpu_holder"))
    pids = ended_pid(), ended_pid()
    for number, pid in enumerate(pids):
        one = key(started_ns=NS_PER_TICK, tgid=pid)
        loaded.update("cpu_holders", bytes(one), bytes(holder(waited_ns=1 + number)))
    loaded.update("partners", pids[0].to_bytes(4, sys.byteorder), b"\x01")
    rows = {row.pid: row.is_partner for row in CpuHolders(loaded, Procfs()).read()}
    assert rows == {pids[0]: True, pids[1]: False}


def test_children_of_udsprobe_are_known_when_they_have_ended(tracer: Tracer) -> None:
    loaded = tracer._object
    key, holder = (loaded.btf.structure(name) for name in ("cpu_holder_key", "cpu_holder"))
    pids = ended_pid(), ended_pid()
    for pid in pids:
        one = key(started_ns=NS_PER_TICK, tgid=pid)
        loaded.update("cpu_holders", bytes(one), bytes(holder(waited_ns=1)))
    rows = {row.pid: row.comm for row in CpuHolders(loaded, Procfs()).read(own={pids[0]})}
    assert rows == {pids[0]: NAME.decode(), pids[1]: None}


def test_threads_of_the_kernel_are_known(tracer: Tracer) -> None:
    """kthreadd is the first of them, and has number 2."""
    loaded = tracer._object
    key, holder = (loaded.btf.structure(name) for name in ("cpu_holder_key", "cpu_holder"))
    for pid in (2, os.getpid()):
        process = Procfs().process(pid)
        assert process is not None
        who = key(started_ns=process.start_ticks * NS_PER_TICK, tgid=pid)
        loaded.update("cpu_holders", bytes(who), bytes(holder(waited_ns=1000)))
    rows = {row.pid: row.is_kernel for row in CpuHolders(loaded, Procfs()).read()}
    assert (rows[2], rows[os.getpid()]) == (True, False)


def test_the_upstream_of_an_upstream_is_a_partner(tracer: Tracer, tmp_path: Path) -> None:
    """This process is the target, the app its partner; the app's database holds the CPU."""
    loaded = tracer._object
    key, holder = (loaded.btf.structure(name) for name in ("cpu_holder_key", "cpu_holder"))
    at = [str(tmp_path / name) for name in ("database", "app", "other")]
    with Hop(at[0]) as database, Hop(at[1], at[0]) as app, Hop(at[2]) as other:
        database.accepted()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(at[1])
            app.accepted()
            for hop in (database, other):
                process = Procfs().process(hop.pid)
                assert process is not None
                who = key(started_ns=process.start_ticks * NS_PER_TICK, tgid=hop.pid)
                loaded.update("cpu_holders", bytes(who), bytes(holder(waited_ns=1000)))
            loaded.update("partners", app.pid.to_bytes(4, sys.byteorder), b"\x01")
            rows = CpuHolders(loaded, Procfs()).read([os.getpid()])
    assert {row.pid: row.is_partner for row in rows} == {database.pid: True, other.pid: False}
