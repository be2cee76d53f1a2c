"""Threads that have no time left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, Optional, Sequence

from udsprobe.model.report import ProcessTime, Report, ThreadTime
from udsprobe.model.threads.thread_time import busy_share
from udsprobe.rules.accounts.cpu_holders import held_by_targets
from udsprobe.rules.accounts.request_time import RequestTime
from udsprobe.rules.accounts.service import ON_CPU, Service, serving_threads
from udsprobe.rules.thresholds import (
    ACCEPTS_PER_REQUEST_MIN,
    POLLS_PER_REQUEST_MIN,
    REQUESTS_MIN,
    THREAD_BUSY_MIN,
    WAIT_MEAN_US_MIN,
    WAIT_SHARE_MIN,
)

_KINDS = {
    "user": "cpu",
    "sys_other": "cpu",
    "sys_socket": "transport",
    "sys_poll": "transport",
    "runq": "runq",
}


@dataclass(frozen=True)
class Saturation:
    """What is busy without a pause.

    Attributes:
        how: `thread`, `process` (its threads contend for one lock, as
            Python's do), `processes` (of one thread each, the same), `host` (it
            uses all CPUs) or `crew` (its processes use all CPUs together).
        busy: part of the time that could have been used.
        kinds: `cpu`, `transport`, `runq` → its part of the busy time.
        with_asked: alone it would leave half of the CPUs free; those that it asks use them, too.
    """

    how: str
    pid: int
    tid: int
    comm: str
    busy: float
    kinds: Mapping[str, float]
    with_asked: bool = False

    @property
    def kind(self) -> str:
        """The largest of `kinds`."""
        return max(self.kinds, key=lambda name: self.kinds[name])


def saturation(
    service: Service, time: RequestTime, least: float = THREAD_BUSY_MIN
) -> Optional[Saturation]:
    """The busiest thread that is saturated, or processes that are together.

    Args:
        time: what requests were spent on. least: of a thread's time, from where on it is.
    """
    by_others = time.by_others
    threads = [t for t in service.long_lived() if busy(service, t.share) >= least]
    if any(_keeps_nobody_waiting(service, t, time) for t in threads):
        return None
    if service.count >= REQUESTS_MIN and by_others < WAIT_SHARE_MIN:
        # What does not serve may work as long as it likes, unless requests wait for it.
        awaited = [*serving_threads(service), *_awaited_acceptors(service, time)]
        threads = [t for t in threads if t in awaited]
    if threads:
        busiest = max(threads, key=lambda t: busy(service, t.share))
        together = _of_host(service) if _waits_in_turns(busiest) else None
        return together or _of_thread(service, busiest)
    behind = by_others + _behind_own_threads(service, by_others)
    if behind >= WAIT_SHARE_MIN or _let_nobody_in(service):
        taking_turns = _of_process(service)
        if taking_turns is not None:
            return taking_turns
    return _of_host(service)


def _behind_own_threads(service: Service, by_others: float) -> float:
    """The part of the `app` stages in which its threads wait for a CPU by its own demand.

    Who is given an interpreter's lock is woken while who gave it still runs. Where they wait for
    the lock less than for that, CPUs are what they lack.
    """
    waits = service.app_pct.get("runq", 0.0) / 100 * (1 - service.foreign_runq)
    return waits if waits <= by_others else 0.0


def _let_nobody_in(service: Service) -> bool:
    """Nothing completes that would tell what is waited for, and who accepts waits for an
    interpreter's lock: a thread of it computes without giving that away (a regular expression)."""
    if service.count >= REQUESTS_MIN or not service.asks_for_lock_again:
        return False
    accepting = [t for t in service.threads if t.tid in service.acceptors]
    locked = [t for t in accepting if t.share.get("blocked_lock", 0.0) >= WAIT_SHARE_MIN]
    return bool(locked) and len(locked) == len(accepting)


def is_busy_for_nobody(service: Service, time: RequestTime) -> bool:
    """A loop is busy, and no request waits for what with: it polls far more often than requests
    come, for most of the time none is there, and each is taken at once. Some poll in place of
    sleeping; others do work in small pieces.
    """
    return any(
        busy(service, t.share) >= THREAD_BUSY_MIN and _keeps_nobody_waiting(service, t, time)
        for t in service.long_lived()
    )


def _keeps_nobody_waiting(service: Service, thread: ThreadTime, time: RequestTime) -> bool:
    if service.count < REQUESTS_MIN or time.mean_us("runq") >= WAIT_MEAN_US_MIN:
        return False
    if service.polled.get(thread.tid, 0) < POLLS_PER_REQUEST_MIN * service.count:
        return False
    # New connections are work as well, and no request yet: a TLS handshake, a login.
    if service.accepted >= ACCEPTS_PER_REQUEST_MIN * service.count:
        return False
    is_taken = time.queue_us / time.count < WAIT_MEAN_US_MIN
    return is_taken and there_at_once(service, time) < WAIT_SHARE_MIN


def there_at_once(service: Service, time: RequestTime) -> float:
    """Requests that wait or are in hand at any moment, on average (Little's law)."""
    return time.total_us / 1e6 / service.counted_s if service.counted_s else 0.0


def _awaited_acceptors(service: Service, time: RequestTime) -> List[ThreadTime]:
    """Threads that accept, and leave the request to others, where requests wait mostly for that."""
    if not time.total_us or time.before_us < WAIT_SHARE_MIN * time.total_us:
        return []
    return [t for t in service.threads if t.tid in service.acceptors]


def busy(service: Service, share: Mapping[str, float]) -> float:
    """Part of a thread's time with work at hand, its own or the transport's for it."""
    moving = share.get("blocked_send", 0.0) if service.sends_move else 0.0
    return busy_share(share) + moving


def _of_thread(service: Service, thread: ThreadTime) -> Saturation:
    return Saturation(
        "thread",
        thread.pid,
        thread.tid,
        thread.comm,
        busy(service, thread.share),
        _kinds(thread.share, service),
    )


def _waits_in_turns(thread: ThreadTime) -> bool:
    """It is ready to run for longer than it runs: what it lacks is a CPU, and not a thread more."""
    return thread.share.get("runq", 0.0) > sum(thread.share.get(name, 0.0) for name in ON_CPU)


def _of_process(service: Service) -> Optional[Saturation]:
    """Its threads use one CPU together."""
    for process in _with_ended(service):
        cores = _cores(process, service.duration_s)
        if process.threads > 1 and THREAD_BUSY_MIN <= cores <= 1 / THREAD_BUSY_MIN:
            return _of_all(service, process, "process", cores)
    return _of_crew(service)


def _with_ended(service: Service) -> Sequence[ProcessTime]:
    """Its processes; where nothing completes, of one alone what its threads did that have ended as
    well: of a thread for each connection, whose client has left."""
    if len(service.processes) != 1 or service.count >= REQUESTS_MIN:
        return service.processes
    (process,) = service.processes
    ended_s = {
        name: service.spent_us(name) / 1e6 - process.share.get(name, 0.0) * process.observed_s
        for name in ON_CPU
    }
    if not process.observed_s or sum(ended_s.values()) <= 0:
        return service.processes
    more = {name: max(0.0, seconds) / process.observed_s for name, seconds in ended_s.items()}
    share = {**process.share, **{n: process.share.get(n, 0.0) + more[n] for n in more}}
    return [replace(process, threads=process.threads + 1, share=share)]


def _of_crew(service: Service) -> Optional[Saturation]:
    """Processes of one thread each, whose lock is in memory that they share: the same."""
    crew = [process for process in service.processes if process.threads == 1]
    cores = sum(_cores(process, service.duration_s) for process in crew)
    if len(crew) < 2 or not THREAD_BUSY_MIN <= cores <= 1 / THREAD_BUSY_MIN:
        return None
    return _of_all(service, _as_one(crew), "processes", cores)


def _as_one(crew: Sequence[ProcessTime]) -> ProcessTime:
    """What all of them did, as the first of them."""
    names = {name for process in crew for name in process.share}
    whole_s = sum(process.observed_s for process in crew)
    share = {
        name: sum(p.share.get(name, 0.0) * p.observed_s for p in crew) / whole_s for name in names
    }
    return replace(crew[0], share=share)


def _of_host(service: Service) -> Optional[Saturation]:
    """Its threads want all CPUs, though none of them all the time.

    Many that are woken at once wait in turns, each for all before it: that is no demand, where they
    and whom they ask run for less than half of what there is.
    """
    used = service.spent_us(*ON_CPU, "runq") / 1e6
    room = service.duration_s * service.cpus
    if not service.processes or not room or used / room < THREAD_BUSY_MIN:
        return None
    part = part_of_host(service)
    if part * (1 + service.asked_beside) < WAIT_SHARE_MIN:
        return None
    first = service.processes[0]
    if _used_s(first) >= WAIT_SHARE_MIN * used:
        found = _of_all(service, first, "host", min(1.0, used / room))
    else:
        every = replace(_as_one(service.processes), comm=service.name)
        found = _of_all(service, every, "crew", min(1.0, used / room))
    return replace(found, with_asked=part < WAIT_SHARE_MIN)


def behind_own_us(report: Report, service: Service) -> float:
    """Of a request that is in hand, µs on average: its thread waits while others of its own run."""
    if not service.count:
        return 0.0
    own = min(held_by_targets(report), 1 - service.foreign_runq)
    return service.app_us("runq") * own / service.count


def part_of_host(service: Service) -> float:
    """What its threads ran, of the time of all CPUs that they may use."""
    room_us = service.duration_s * service.cpus * 1e6
    return service.spent_us(*ON_CPU) / room_us if room_us else 0.0


def _used_s(process: ProcessTime) -> float:
    """On a CPU or ready to run."""
    return process.observed_s * sum(process.share.get(name, 0.0) for name in (*ON_CPU, "runq"))


def _of_all(service: Service, process: ProcessTime, how: str, used: float) -> Saturation:
    kinds = _kinds(process.share, service)
    return Saturation(how, process.pid, process.pid, process.comm, used, kinds)


def _cores(process: ProcessTime, duration_s: float) -> float:
    on_cpu = sum(process.share.get(name, 0.0) for name in ON_CPU) * process.observed_s
    return on_cpu / duration_s if duration_s else 0.0


def _kinds(share: Mapping[str, float], service: Service) -> Dict[str, float]:
    kinds = {"cpu": 0.0, "transport": 0.0, "runq": 0.0}
    for activity, kind in _KINDS.items():
        kinds[kind] += share.get(activity, 0.0)
    if service.sends_move:
        kinds["transport"] += share.get("blocked_send", 0.0)
    # Waiting for a CPU that its own threads or clients hold is no contention, but its own demand.
    delivering = kinds["runq"] * min(service.delivering_runq, 1 - service.foreign_runq)
    own = kinds["runq"] * (1 - service.foreign_runq) - delivering
    ran = kinds["cpu"] + kinds["transport"]
    for kind in ("cpu", "transport"):
        kinds[kind] += own * kinds[kind] / ran if ran else 0.0
    kinds["transport"] += delivering
    kinds["runq"] *= service.foreign_runq
    whole = sum(kinds.values())
    return {kind: part / whole for kind, part in kinds.items()} if whole else kinds
