"""What tasks of asyncio wait for, by the function of Python or of a library that they wait in; and
async functions of JavaScript, which wait for promises.

Source: `Lib/asyncio` (locks.py, queues.py, tasks.py, threads.py) of CPython 3.8 to 3.15; of the
libraries the versions that PyPI had in 2025: anyio 4, asyncpg 0.30, aiohttp 3, redis 5, httpcore 1,
aiomysql 0.2, psycopg_pool 3.
"""

from __future__ import annotations

import re
from typing import Dict, Optional, Pattern, Sequence, Tuple

from udsprobe.rules.remedy.goroutine_waits import ParkedWait
from udsprobe.rules.remedy.row import Row, restart
from udsprobe.rules.servers import GENERIC

FUTURE = "Future.__await__"
"""The function in C that a task waits in for a future, as its stack has it."""


def _in(*functions: Tuple[str, str]) -> Pattern[str]:
    """Of functions and their files."""
    return re.compile(
        "|".join(rf"(?:{name}) \({re.escape(file)}(?::\d+)?\)" for name, file in functions)
    )


_POOL = ParkedWait(
    "wait for a free connection of its pool",
    "task-pool",
    _in(
        (r"Pool\._acquire(\.<locals>\._acquire_impl)?", "pool.py"),
        (r"BaseConnector\._wait_for_available_connection", "connector.py"),
        (r"BlockingConnectionPool\.get_connection", "connection.py"),
        (r"AsyncPoolRequest\.wait_for_connection", "connection_pool.py"),
        (r"AsyncConnectionPool\._?getconn\w*", "pool_async.py"),
    ),
    is_turn=True,
)
_GET = ParkedWait("wait for what is put into a queue", "task-in", _in((r"Queue\.get", "queues.py")))
# SQLAlchemy waits with a queue of asyncio for a connection of its pool, and with nothing else.
_SQLALCHEMY = _in(
    (r"greenlet_spawn", "_concurrency_py3k.py"), (r"greenlet_spawn", "concurrency.py")
)
A_FUTURE = ParkedWait("wait for a future", "task-in", re.compile(rf"{re.escape(FUTURE)} \(.*\)"))
"""Which may be an answer of an upstream: drivers have futures of their own."""

# What a library waits with comes after the library: the first that is on the stack tells.
_WAITS = (
    _POOL,
    ParkedWait(
        "wait for a free thread of its pool",
        "limit-in",
        _in((r"CapacityLimiter\.acquire\w*", "_asyncio.py")),
        is_turn=True,
    ),
    ParkedWait(
        "wait for a limit of its own (semaphore)",
        "limit-in",
        _in((r"(Bounded)?Semaphore\.acquire", "locks.py"), (r"Semaphore\.acquire", "_asyncio.py")),
        is_turn=True,
    ),
    ParkedWait(
        "wait for a lock (asyncio.Lock)",
        "lock-in",
        _in((r"Lock\.acquire", "locks.py"), (r"Lock\.acquire", "_asyncio.py")),
        is_turn=True,
    ),
    ParkedWait(
        "wait for room in a queue",
        "task-room",
        _in((r"Queue\.put", "queues.py")),
        is_turn=True,
    ),
    _GET,
    ParkedWait(
        "wait for a condition (asyncio.Condition)",
        "task-in",
        _in((r"Condition\.(wait|wait_for)", "locks.py")),
    ),
    ParkedWait("wait for an event (asyncio.Event)", "task-in", _in((r"Event\.wait", "locks.py"))),
    ParkedWait("sleep (asyncio.sleep)", "sleep-in", _in((r"sleep", "tasks.py"))),
    ParkedWait(
        "wait for a function that a thread runs",
        "task-thread",
        _in(
            (r"to_thread", "threads.py"),
            (r"AsyncIOBackend\.run_sync_in_worker_thread", "_asyncio.py"),
        ),
    ),
    A_FUTURE,
)


def task_wait(stack: Sequence[str]) -> Optional[ParkedWait]:
    """What a stack waits for; None where no function of it tells.

    Args:
        stack: `function (file:line)`, the innermost first.
    """
    found = next((w for w in _WAITS if any(map(w.functions.fullmatch, stack))), None)
    return _POOL if found is _GET and any(map(_SQLALCHEMY.fullmatch, stack)) else found


# Of a promise it is not known who keeps it; what the others do may be that.
_PROMISE = ParkedWait("wait for a promise", "await-in", re.compile(r".*"), is_turn=True)


def function_wait(stack: Sequence[str]) -> Optional[ParkedWait]:
    """The same of an async function of JavaScript; None where it is not known which."""
    return _PROMISE if stack else None


TASK_POOL: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "raise the size of that pool (max_size of asyncpg and psycopg_pool, pool_size and "
            "max_overflow of SQLAlchemy, limit of aiohttp's connector, "
            "max_connections of redis and httpx), if the upstream has time to spare: {where}",
            "each request has a connection until it is done with it; the others wait there",
        ),
    )
}
TASK_ROOM: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "let what takes from that queue keep up, or raise its maxsize: {where}",
            "a task that puts something there waits until another one takes something out",
        ),
    )
}
TASK_IN: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "let what it waits for be done sooner: {where}",
            "a task waits there until another one, or a callback, goes on with it",
        ),
    )
}
AWAIT_IN: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "let what it awaits be done sooner: {where}",
            "a timer, a callback or another request of the program ends the promise",
        ),
    )
}
TASK_THREAD: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "make that function quicker, or ask for it less often: {where}",
            "a thread runs it, and the task waits until it returns",
        ),
    )
}
