"""What each way in which tasks of asyncio wait is called."""

from __future__ import annotations

from typing import Dict, Sequence

import pytest

from udsprobe.rules.remedy.task_waits import task_wait

POOL = "Pool._acquire.<locals>._acquire_impl (pool.py:1)"
WAYS: Dict[str, Sequence[str]] = {
    "wait for a free connection of its pool": ("Queue.get (queues.py:149)", POOL, "buy (app.py:3)"),
    "wait for a free thread of its pool": (
        "Future.__await__ (python3.13)",
        "CapacityLimiter.acquire_on_behalf_of (_asyncio.py:9)",
    ),
    "wait for a limit of its own (semaphore)": ("Semaphore.acquire (locks.py:386)", "a (b.py:1)"),
    "wait for a lock (asyncio.Lock)": ("Lock.acquire (locks.py:90)", "put (app.py:7)"),
    "wait for room in a queue": ("Queue.put (queues.py:9)", "put (app.py:7)"),
    "wait for what is put into a queue": ("Queue.get (queues.py:9)", "put (app.py:7)"),
    "wait for a condition (asyncio.Condition)": ("Condition.wait (locks.py:9)",),
    "wait for an event (asyncio.Event)": ("Event.wait (locks.py:9)", "put (app.py:7)"),
    "sleep (asyncio.sleep)": ("sleep (tasks.py:703)", "slp (app.py:22)"),
    "wait for a function that a thread runs": ("to_thread (threads.py:12)", "th (app.py:76)"),
    "wait for a future": ("Future.__await__ (libpython3.12.so.1.0)", "ask (app.py:76)"),
}


@pytest.mark.parametrize(
    "stack",
    [
        ("Queue.get (queues.py:149)", "greenlet_spawn (_concurrency_py3k.py:99)", "buy (app.py:3)"),
        ("Condition.wait (locks.py:9)", "AsyncConnectionPool.getconn (pool_async.py:9)"),
        ("Condition.wait (locks.py:9)", "BlockingConnectionPool.get_connection (connection.py:9)"),
    ],
)
def test_what_a_library_waits_with_for_a_connection(stack: Sequence[str]) -> None:
    found = task_wait(stack)
    assert found is not None and found.kind == "task-pool"


@pytest.mark.parametrize("says", WAYS)
def test_what_is_waited_for(says: str) -> None:
    found = task_wait(WAYS[says])
    assert found is not None and found.does == says


def test_of_other_functions_nothing_is_said() -> None:
    assert task_wait(["Lock.acquire (app.py:3)", "sleep (night.py:1)"]) is None
