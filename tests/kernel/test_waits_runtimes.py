"""Waits inside language runtimes, which have locks of their own: no wrong name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Set, Tuple

import pytest

from tests.conftest import Require
from tests.kernel.test_waits import assert_sums
from tests.kernel.tool import Attached
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.root, pytest.mark.alone]

Row = Dict[str, Any]

PYTHON = """
import json, sys, threading, time
lock, tids = threading.Lock(), {}
held, wanted = threading.Event(), threading.Event()
def holder():
    tids["holder"] = threading.get_native_id()
    with lock:
        held.set()
        wanted.wait()
        WORK
def waiter():
    tids["waiter"] = threading.get_native_id()
    held.wait()
    wanted.set()
    with lock: pass
print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=each) for each in (holder, waiter)]
for each in threads: each.start()
for each in threads: each.join()
print(json.dumps(tids), flush=True)
sys.stdin.readline()
"""
SLEEPS = "time.sleep(0.2)"
# It lets go of the interpreter's lock only when it is asked to, after 5 ms.
COMPUTES = "until = time.thread_time() + 0.2\n        while time.thread_time() < until: pass"
# It keeps the interpreter's lock in each call of sum(), however often it is asked for it.
KEEPS = """
import json, sys, threading, time
tids, over = {}, []
began = threading.Event()
def holder():
    tids["holder"] = threading.get_native_id()
    began.wait()
    for _ in range(12):
        sum(range(4_000_000))
        time.sleep(0.002)
    over.append(True)
def waiter():
    tids["waiter"] = threading.get_native_id()
    began.set()
    while not over: time.sleep(0.0005)
print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=each) for each in (holder, waiter)]
for each in threads: each.start()
for each in threads: each.join()
print(json.dumps(tids), flush=True)
sys.stdin.readline()
"""

NODE = """
const { Worker } = require('worker_threads');
const shared = new Int32Array(new SharedArrayBuffer(8));
console.log('ready');
process.stdin.once('data', () => {
  const worker = new Worker(`
    const { parentPort, workerData } = require('worker_threads');
    Atomics.store(workerData, 1, 1);
    Atomics.wait(workerData, 0, 0);
    parentPort.postMessage('awake');`, { eval: true, workerData: shared });
  worker.on('message', () => console.log('{}'));
  process.stdin.once('end', () => process.exit());
  const look = setInterval(() => {
    if (!Atomics.load(shared, 1)) return;
    clearInterval(look);
    const until = Date.now() + 300;
    while (Date.now() < until);
    Atomics.store(shared, 0, 1);
    Atomics.notify(shared, 0);
  }, 50);
});
"""


def watched(command: Sequence[str], folder: Path) -> Tuple[int, Dict[str, int], List[Row]]:
    """The process, what it says of its threads, and the report's waits."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            with Attached(["--pid", str(process.pid)], folder) as observation:
                process.stdin.write("\n")
                process.stdin.flush()
                said = json.loads(process.stdout.readline())
            process.stdin.close()
            process.wait(PATIENCE_S)
        finally:
            process.kill()
    assert_sums(observation.report)
    return process.pid, said, observation.report["waits"]


def python(code: str, folder: Path) -> Tuple[Dict[str, int], Row]:
    """Its threads, and the waits for locks of the one that waits."""
    _, tids, rows = watched([sys.executable, "-c", code], folder)
    (row,) = (r for r in rows if (r["tid"], r["kind"]) == (tids["waiter"], "lock"))
    return tids, row


def authors(row: Row) -> Set[Tuple[str, Any]]:
    return {(part["by"], part["tid"]) for part in row["authors"]}


def test_a_python_lock_whose_holder_sleeps(tmp_path: Path) -> None:
    tids, row = python(PYTHON.replace("WORK", SLEEPS), tmp_path)
    first = row["authors"][0]
    assert (first["tid"], first["was"]) == (tids["holder"], "sleep")
    assert first["total_us"] > 0.5 * row["total_us"]


def test_the_interpreter_s_lock_of_who_lets_go(tmp_path: Path) -> None:
    """It does so between two waits, when nobody is there to be woken; nobody else is named."""
    tids, row = python(PYTHON.replace("WORK", COMPUTES), tmp_path)
    assert_nobody_else(row, tids["holder"])
    assert ("thread", tids["holder"]) in authors(row)


def assert_nobody_else(row: Row, holder: int) -> None:
    others = {tid for by, tid in authors(row) if by == "thread"} - {holder}
    # Its starter, which waits for both to end, can have let go of the lock as well.
    assert len(others) <= 1
    assert {by for by, _ in authors(row)} <= {"thread", "timer"}


def test_the_interpreter_s_lock(tmp_path: Path) -> None:
    """Timers end most of these waits, which are begun anew; all are for who keeps it."""
    tids, row = python(KEEPS, tmp_path)
    assert_nobody_else(row, tids["holder"])
    held_us = sum(part["total_us"] for part in row["authors"] if part["tid"] == tids["holder"])
    assert held_us > 0.5 * row["total_us"]
    # Each of them is not longer than the interpreter's switch interval.
    assert row["total_us"] > 10 * row["max_us"]


def test_a_worker_of_node_waits_for_the_main_thread(require: Require, tmp_path: Path) -> None:
    pid, _, rows = watched([require("node")["node"], "-e", NODE], tmp_path)
    locks = [row for row in rows if row["kind"] == "lock"]
    named = {part["pid"] for row in locks for part in row["authors"] if part["by"] == "thread"}
    assert named == {pid}
    by_main = [
        sum(part["total_us"] for part in row["authors"] if part["tid"] == pid) for row in locks
    ]
    assert max(by_main) > 200_000
