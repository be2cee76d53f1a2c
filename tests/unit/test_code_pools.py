"""Threads of pools that sleep: in a request, in a task of another one's, or without any."""

from __future__ import annotations

import pytest

from tests.unit.test_code_places import (
    JAVA_NAP,
    PARKS,
    found,
    in_futex,
)

RESTING = {
    "tomcat": (
        "org.apache.tomcat.util.threads.ThreadPoolExecutor.getTask\t[jit]\tThreadPoolExecutor.java\t9",
        "org.apache.tomcat.util.threads.TaskQueue.take\t[jit]\tTaskQueue.java\t110",
        PARKS,
    ),
    "apache": (
        "worker_thread\tmod_mpm_event.so\t\t",
        "ap_queue_pop_something\tapache2\t\t",
        "apr_thread_cond_wait\tlibapr-1.so.0\t\t",
    ),
    "futures": ("_worker\tpython3\t/usr/lib/python3.11/concurrent/futures/thread.py\t81",),
    "puma": (
        "block in Puma::ThreadPool#spawn_thread\tlibruby-3.1.so\tthread_pool.rb\t105",
        "Thread::Mutex#synchronize\tlibruby-3.1.so\truby:internal\t",
        "block (2 levels) in Puma::ThreadPool#spawn_thread\tlibruby-3.1.so\tthread_pool.rb\t120",
        "Thread::ConditionVariable#wait\tlibruby-3.1.so\truby:internal\t",
    ),
}


@pytest.mark.parametrize("pool", RESTING)
def test_where_threads_of_a_pool_wait_for_their_next_task_is_no_place_of_requests(
    pool: str,
) -> None:
    """However many of them rest beside one that has a request."""
    told_of = found(in_futex(RESTING[pool], 60_000), in_futex(JAVA_NAP, 4_000))
    assert told_of.sleeps is not None
    (call,) = told_of.sleeps.processes[0].calls
    assert call.total_us == 4_000_000
    assert [each.function for each in call.code] == ["java.lang.Thread.sleep"]


def test_a_task_of_a_pool_that_waits_is_one() -> None:
    """`pool.submit(time.sleep, 1)`, and a request of Puma."""
    run = "_WorkItem.run\tpython3\t/usr/lib/python3.11/concurrent/futures/thread.py\t58"
    handled = "call\tlibruby-3.1.so\tconfig.ru\t3"
    for lines in ((*RESTING["futures"], run), (RESTING["puma"][0], handled)):
        (process,) = found(in_futex(lines, 100)).sleeps.processes  # type: ignore[union-attr]
        assert process.calls[0].total_us == 100_000
