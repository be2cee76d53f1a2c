"""Threads of pools that sleep: in a request, in a task of another one's, or without any."""

from __future__ import annotations

from dataclasses import replace
from typing import Sequence

import pytest

from tests.unit import ill
from tests.unit.test_authors import part, wait
from tests.unit.test_code_places import (
    JAVA_NAP,
    LOCKS,
    PARKS,
    PAY,
    found,
    in_futex,
    lent_out,
    suspect,
)
from udsprobe.model.report import Hop, Report, Stacks
from udsprobe.rules.code_places import with_code
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.sample import StackCounts

RUBY_NAP = (
    *("fetch_prices\tlibruby-3.1.so\tconfig.ru\t21",),
    "Kernel#sleep\tlibruby-3.1.so\truby:internal\t",
)


def watched(*counts: StackCounts) -> Stacks:
    """Taken for 5 s."""
    told_of = found(*counts)
    assert told_of.sleeps is not None
    return replace(told_of, sleeps=replace(told_of.sleeps, watched_s=5.0))


def behind_locks(*counts: StackCounts) -> Report:
    """Requests that wait for locks most of the time, and who slept where."""
    requests = ill.served(1_000, recv_wait=0, recv=0, send=0, app=80_000, lock=98.0)
    return replace(ill.service(requests, ill.thread(4711)), stacks=watched(*counts))


def on_lock() -> Suspect:
    """As it is told before anything is known of functions."""
    return replace(
        suspect("app-blocked", "app_lock_us"),
        headline="shop sleeps on a lock (futex) while requests wait for its reply",
        actions=remedies("sleeps", pid=1),
    )


@pytest.mark.parametrize("napping", [JAVA_NAP, RUBY_NAP])
def test_a_sleep_of_the_language_is_no_lock_whatever_call_it_is_made_of(
    napping: Sequence[str],
) -> None:
    while_ = "while requests wait for its reply: 100 % in "
    one = with_code(on_lock(), behind_locks(in_futex(napping, 4_000)))
    assert one.headline.startswith(f"shop sleeps on a timer (futex) {while_}")
    assert [each.say.partition(":")[0] for each in one.actions] == [
        "take the sleep out of the request, or make it shorter"
    ]
    locked = lent_out((PAY, LOCKS, PARKS), "java", nap_ms=0)
    assert locked.headline.startswith(f"shop sleeps on a lock (futex) {while_}")


def test_requests_that_wait_for_a_task_of_another_thread_are_told_so() -> None:
    task = "java.util.concurrent.FutureTask.get\t[jit]\tFutureTask.java\t188"
    one = lent_out((PAY, task, PARKS), "java", nap_ms=0)
    where = "java.util.concurrent.FutureTask.get (FutureTask.java:188) ← Shop.pay (Shop.java:6)"
    waits = "shop waits for a task that it gave to other threads while requests wait for its reply"
    assert one.headline == f"{waits}: 100 % in {where}"
    assert one.actions[0].say.endswith(f"more threads where tasks queue for them: {where}")
    future = ("buy\tpython3\t/srv/app.py\t7", "Future.result\tpython3\t_base.py\t451")
    scripted_one = lent_out((*future, "Condition.wait\tpython3\tthreading.py\t320"), "uwsgi", 0)
    assert (
        scripted_one.headline == f"{waits}: 100 % in Future.result (_base.py:451) ← buy (app.py:7)"
    )


WAITS = "shop sleeps on a lock (futex) while requests wait for its reply"
CONDITIONS = {
    "c": ("pthread_cond_wait\tlibc.so.6\t\t", "pthread_cond_wait ← ask (shop)"),
    "c++": (
        "std::condition_variable::wait(std::unique_lock<std::mutex>&)\tlibstdc++.so.6\t\t",
        "std::condition_variable::wait ← ask (shop)",
    ),
    "rust": (
        "rayon_core::latch::LockLatch::wait_and_reset\tshop\t\t",
        "rayon_core::latch::LockLatch::wait_and_reset ← ask (shop)",
    ),
}


@pytest.mark.parametrize("language", CONDITIONS)
def test_a_condition_is_met_by_others_and_no_lock_that_is_held(language: str) -> None:
    """And what those do who end it is told, whatever call they sleep in."""
    function, where = CONDITIONS[language]
    asks = ("serve\tshop\t\t", "ask\tshop\t\t", function)
    naps = ("worker\tshop\t\t", "nap\tshop\t\t", "nanosleep\tlibc.so.6\t\t")
    working = replace(in_futex(naps, 6_000), call="clock_nanosleep")
    report = behind_locks(in_futex(asks, 40_000), working)
    ending = part(0.97, pid=1, tid=7, was="sleep", call="clock_nanosleep")
    one = with_code(on_lock(), replace(report, waits=[wait(5, ending)]))
    waits = WAITS.replace(
        "sleeps on a lock (futex)", "waits for another of its threads (a condition)"
    )
    assert one.headline == f"{waits}: 100 % in {where}; others meanwhile in nanosleep ← nap (shop)"
    assert [each.say.rpartition(": ")[2] for each in one.actions] == [where]
    disk = remedies("disk")
    alone = with_code(replace(on_lock(), actions=(*disk, *remedies("sleeps", pid=1))), report)
    assert alone.headline == f"{waits}: 100 % in {where}"
    assert alone.actions == (*disk, *one.actions)


def test_what_an_interpreter_makes_its_locks_of_says_nothing() -> None:
    """The same wait is there with its own functions, too: nobody else is in it meanwhile."""
    locks = ("locked\tlibruby-3.1.so\tapp.ru\t6", "Mutex#lock\tlibruby-3.1.so\truby:internal\t")
    native = (*locks, "do_sleep\tlibruby-3.1.so\t\t", "pthread_cond_wait\tlibc.so.6\t\t")
    own = ("main\tlibruby-3.1.so\tapp.ru\t1",)
    report = behind_locks(in_futex((*own, *locks), 40_000), in_futex((*own, *native), 9_000))
    one = with_code(on_lock(), report)
    assert "a condition" not in one.headline and "meanwhile" not in one.headline


def test_a_mutex_is_a_lock_that_is_held() -> None:
    locks = ("serve\tshop\t\t", "ask\tshop\t\t", "pthread_mutex_lock\tlibc.so.6\t\t")
    one = with_code(on_lock(), behind_locks(in_futex(locks, 40_000)))
    assert one.headline == f"{WAITS}: 100 % in pthread_mutex_lock ← ask (shop)"


def test_a_child_that_node_waits_for_in_its_loop_is_to_be_awaited() -> None:
    spawns = (
        *("convert\tnode\t/srv/app.js\t41", "execFileSync\tnode\tnode:child_process\t9"),
        *("spawnSync\tnode\tnode:internal/child_process\t1", "uv__io_poll\tnode\t\t"),
    )
    polls = replace(in_futex(spawns, 4_000), call="epoll_wait")
    one = replace(suspect("app-blocked", "app_timer_us"), actions=remedies("sleeps", pid=1))
    one = replace(one, headline="node sleeps in its poller while requests wait for its reply")
    found_of = with_code(one, behind_locks(polls))
    assert found_of.headline.startswith(
        "node waits for a child process in its event loop (spawnSync)"
    )
    assert found_of.headline.endswith("← convert (app.js:41)")
    assert found_of.actions[0].say.startswith("await the child: execFile() or spawn()")


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


def test_the_same_wait_told_with_functions_of_the_interpreter_is_not_who_has_the_lock() -> None:
    """`with LOCK:` of Python, whose wait is in C."""
    charge = "charge\tpython3\t/srv/app.py\t14"
    waits = in_futex((charge,), 30_000)
    deeper = in_futex((charge, "__new_sem_wait_slow64\tlibc.so.6\t\t"), 10_000)
    holds = replace(
        in_futex((charge, "fetch\tpython3\t/srv/app.py\t12"), 4_900), call="clock_nanosleep"
    )
    said = with_code(on_lock(), behind_locks(waits, deeper, holds)).headline
    assert said.endswith(
        "in charge (app.py:14); others meanwhile in fetch (app.py:12) ← charge (app.py:14)"
    )


def test_behind_a_proxy_the_sleeps_of_a_server_are_compared_with_its_own_requests() -> None:
    """Of all requests together next to none waits for a lock: the proxy waits for the server."""
    mine = ill.served_by(4711, 100)
    lock = replace(mine, app_time_pct={"lock": 98.0})
    lock = replace(lock, stages_mean_us=replace(lock.stages_mean_us, app=400_000.0))
    outer = ill.service(ill.served(100, app=400_000.0, upstream=100.0), ill.thread(4711))
    hops = [
        Hop(812, [812], "nginx", "0.0.0.0:80", 100, 400_000.0, 50.0, 400_000.0, [4711]),
        Hop(4711, [4711], "puma", "/run/a", 100, 400_000.0, 400_000.0, 0.0, []),
    ]
    rows = [replace(mine, pid=812, comm="nginx"), lock]
    report = replace(outer, requests=replace(outer.requests, served_by=rows, hops=hops))
    report = replace(report, stacks=watched(replace(in_futex(RUBY_NAP, 9_000), pid=4711)))
    one = replace(on_lock(), pids=frozenset((4711,)))
    assert "sleeps on a timer (futex) while" in with_code(one, report).headline
