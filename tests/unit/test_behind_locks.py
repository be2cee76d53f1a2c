"""A wait for a lock is divided by what the process's other threads did meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Tuple

import pytest

from tests.unit import ill
from udsprobe.model.report import CpuHolder, Report, ThreadTime
from udsprobe.rules.accounts.request_time import RequestTime, request_time
from udsprobe.rules.accounts.service import whole_service
from udsprobe.rules.judge import judged


def divided(report: Report) -> RequestTime:
    return request_time(whole_service(report))


def cause(report: Report) -> str:
    found = judged(report).verdict
    assert found is not None
    return found.cause


def waiting(count: int, computing: float) -> List[ThreadTime]:
    """Threads for connections, which compute that part of the time and wait for a lock else."""
    share = {"user": computing, "blocked_lock": 1 - computing, "blocked_recv": 0.0}
    return [ill.thread(4711 + n, **{**share, "blocked_poll": 0.0}) for n in range(count)]


def locked(lock_pct: float, **parts: float) -> Report:
    """500 requests of 80 ms, eight at a time, that wait for a lock for that part of it."""
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=80_000, lock=lock_pct, **parts)
    return ill.service(requests, *waiting(8, 0.125))


def test_threads_that_take_turns_at_an_interpreter_s_lock_compute() -> None:
    """Eight threads, one of which computes at any moment: nobody ever sleeps."""
    taking_turns = locked(87.5, cpu=12.5)
    found = divided(taking_turns)
    assert found.mean_us("cpu") == pytest.approx(80_000, rel=0.01)
    assert found.mean_us("lock") == pytest.approx(0, abs=800)
    assert cause(taking_turns) == "app-cpu"


@pytest.mark.parametrize(
    ("held", "lock_pct", "contends"),
    [(0.9, 40, True), (0.1, 40, False), (0.9, 8, False)],
    ids=["their-own-threads", "others", "hardly-a-lock"],
)
def test_waits_for_a_cpu_that_their_own_threads_have_are_for_those_too(
    held: float, lock_pct: float, contends: bool
) -> None:
    """Four threads of Ruby, which use nine tenths of a CPU together: who is given the lock is woken
    while who gave it still runs. Who waits for a CPU and for no lock lacks that CPU.
    """
    share = {"user": 0.23, "runq": 0.28, "blocked_lock": lock_pct / 100, "blocked_poll": 0.0}
    rest = 0.49 - lock_pct / 100
    threads = [ill.thread(4711 + n, **{**share, "blocked_recv": rest}) for n in range(4)]
    parts = {"cpu": 23.0, "runq": 28.0, "lock": lock_pct, "upstream": 100 * rest}
    report = ill.service(ill.served(270, app=148_000, **parts), *threads)
    own = CpuHolder(4711, "node", True, held, 100 * held)
    other = CpuHolder(9, "clang", False, 1 - held, 100 * (1 - held))
    assert report.time is not None
    report = replace(report, time=replace(report.time, cpu_holders=[own, other]))
    told = judged(report).verdict
    assert told is not None
    assert ("its threads contend for one lock" in told.summary) == contends
    assert (told.cause == "app-cpu") or not contends


def test_a_worker_that_computes_for_those_that_wait_is_the_thread_to_name() -> None:
    waiters = [replace(each, share={**each.share, "user": 0.0}) for each in waiting(6, 0.0)]
    worker = ill.thread(5000, "worker", user=0.97, blocked_lock=0.03, blocked_poll=0.0)
    requests = ill.served(3000, recv_wait=0, recv=0, send=0, app=20_000, lock=99.0, cpu=1.0)
    report = judged(ill.service(requests, *waiters, worker))
    assert report.verdict is not None
    assert (report.verdict.cause, report.verdict.subject) == ("app-cpu", "worker thread 5000")


def serving(count: int, computing: float) -> List[ThreadTime]:
    """The same, seen to receive."""
    share = {"blocked_recv": 0.01, "sys_socket": 0.01}
    return [
        replace(each, share={**each.share, **share, "blocked_lock": 0.98 - computing})
        for each in waiting(count, computing)
    ]


@pytest.mark.parametrize(
    ("collectors", "subject"),
    [
        (("VM Thread",), "VM Thread thread 5000"),
        (("GC Thread#0", "GC Thread#1"), "GC Thread#0 thread 5000"),
    ],
)
def test_collectors_that_compute_now_and_then_are_the_threads_to_name(
    collectors: Tuple[str, ...], subject: str
) -> None:
    """Not the thread that accepts, though none of them is busy all the time."""
    waiters = serving(4, 0.02)
    used = 0.6 / len(collectors)
    names = enumerate(collectors)
    workers = [
        ill.thread(5000 + n, name, user=used, blocked_lock=1 - used, blocked_poll=0.0)
        for n, name in names
    ]
    requests = ill.served(800, recv_wait=0, recv=0, send=0, app=40_000, lock=97.0, cpu=3.0)
    verdict = judged(ill.service(requests, *waiters, *workers), slo_us=1000.0).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.subject) == ("app-cpu", subject)
    assert "waits for a lock while" in verdict.summary and collectors[0] in verdict.summary


def test_of_serving_threads_that_take_turns_none_is_the_holder() -> None:
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=80_000, lock=87.5, cpu=12.5)
    verdict = judged(ill.service(requests, *serving(8, 0.125))).verdict
    assert verdict is not None
    assert verdict.cause == "app-cpu" and "waits for a lock while" not in verdict.summary


def test_a_lock_whose_owner_sleeps_stays_a_wait() -> None:
    """One of eight owns the lock and sleeps: its own requests tell of that sleep."""
    asleep = [
        replace(
            each,
            share={**each.share, "user": 0.02, "blocked_other": 0.12, "blocked_lock": 0.86},
        )
        for each in waiting(8, 0.0)
    ]
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=160_000, lock=86, other=12, cpu=2)
    report = ill.service(requests, *asleep)
    found = divided(report)
    # 0.14 s of each second the other seven compute, 0.86 s they do not.
    assert found.mean_us("lock") == pytest.approx(160_000 * 0.86 * 0.86, rel=0.02)
    assert cause(report) == "app-blocked"


def test_an_owner_that_is_no_request_and_sleeps_is_a_wait_too() -> None:
    asleep = ill.thread(5000, "flusher", blocked_disk=0.9, blocked_poll=0.1)
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=80_000, lock=95.0, cpu=5.0)
    report = ill.service(requests, *waiting(4, 0.05), asleep)
    assert divided(report).share("lock") > 0.75
    assert cause(report) == "app-blocked"


def test_owners_that_wait_for_a_cpu_themselves() -> None:
    """Where others hold the CPUs, it is them that the waiting threads wait for."""
    kept_off = [
        replace(each, share={**each.share, "user": 0.05, "runq": 0.2, "blocked_lock": 0.75})
        for each in waiting(4, 0.0)
    ]
    requests = ill.served(500, recv_wait=0, recv=0, send=0, app=80_000, lock=75, runq=20, cpu=5)
    found = divided(ill.service(requests, *kept_off))
    assert found.share("runq") == pytest.approx(0.2 + 0.75 * 0.8, rel=0.02)


def test_without_a_lock_nothing_is_moved() -> None:
    plain = ill.service(ill.served(500), ill.thread(user=0.5))
    assert divided(plain).by_others == 0.0
