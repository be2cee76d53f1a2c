"""Causes inside the service: its CPU, its waits, its upstreams, the kernel moving bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, List, Optional, Tuple

from udsprobe.model.harm import Harm
from udsprobe.model.report import Evidence, Latency, Report
from udsprobe.rules import remedies
from udsprobe.rules.accounts.lock_use import queue_at_locks
from udsprobe.rules.accounts.moving import moving
from udsprobe.rules.accounts.own_pool import full_own_pool
from udsprobe.rules.accounts.request_time import CLIENTS, WAITS, RequestTime
from udsprobe.rules.accounts.saturation import (
    Saturation,
    behind_own_us,
    busy,
    saturation,
)
from udsprobe.rules.accounts.service import (
    ON_CPU,
    Service,
    serving_threads,
    serving_time,
    tail_us,
)
from udsprobe.rules.causes import CAUSE_OF_BUSY, PARTS, WAITING
from udsprobe.rules.suspects.standstill import standstill
from udsprobe.rules.suspects.suspect import CRITICAL, WARNING, Suspect
from udsprobe.rules.thresholds import (
    CONTENTION_SHARE_MIN,
    CONTENTION_US_MIN,
    KEPT_FROM_CPU_MIN,
    MOVING_CPUS_MIN,
    QUEUED_BUSY_MIN,
    QUEUED_TIMES_WORK,
    REQUESTS_MIN,
    SLOW_REQUEST_US,
    SLOW_REQUESTS_MIN,
    STALL_TIMES_MEDIAN,
    STALL_US_MIN,
    TAIL_MEAN_TIMES_MEDIAN,
    TAIL_TIMES_MEDIAN,
    TAIL_US_MIN,
    THREAD_BUSY_MIN,
    WAIT_MEAN_US_MIN,
    WAIT_SHARE_MIN,
    WAITING_MIN,
)
from udsprobe.rules.wording import count, duration, evidence, percent


@dataclass(frozen=True)
class Pressure:
    """Why something inside the service is more than where the time happens to go."""

    cause: str
    evidence: Tuple[Evidence, ...]
    overloads: bool
    harm: Optional[Harm] = None


@dataclass(frozen=True)
class Processing:
    """A service, its request time, and the pressure on it."""

    report: Report
    service: Service
    time: RequestTime
    saturated: Optional[Saturation]
    slo_us: Optional[float] = None


def processing_suspects(processing: Processing) -> List[Suspect]:
    """Every cause with a part in request time; at most one of them is pressure."""
    pressed = pressure(processing)
    suspects = [
        _suspect(processing, cause, pressed if pressed and pressed.cause == cause else None)
        for cause in PARTS
    ]
    return [each for each in suspects if each is not None]


def of(report: Report, service: Service, time: RequestTime, slo_us: Optional[float]) -> Processing:
    """Puts together what the rules here look at."""
    return Processing(report, service, time, saturation(service, time), slo_us)


def pressure(processing: Processing) -> Optional[Pressure]:
    """The one cause inside the service that requests suffer from, if any does."""
    for rule in (
        *(_waits, _stands_still, _contends, _saturated, _moves, _queues, _stalls),
        *(_take_turns, _occupied, _fills_its_pool, _too_slow),
    ):
        found = rule(processing)
        if found is not None:
            return found
    return None


def is_enough(time: RequestTime) -> bool:
    """Enough requests for their mean to mean something."""
    if time.count >= REQUESTS_MIN:
        return True
    return time.count >= SLOW_REQUESTS_MIN and time.total_us / time.count >= SLOW_REQUEST_US


def _waits(processing: Processing) -> Optional[Pressure]:
    time = processing.time
    if not is_enough(time):
        return None
    whole = moving(processing.report, processing.service, time)
    if whole.share_of(time.mean_us(*WAITS)) < WAIT_SHARE_MIN:
        return None
    waited = _wait_fact(time) or _tail_fact(processing.service.latency)
    if waited is None:
        return None
    cause = max(WAITING, key=lambda name: time.sum_us(*PARTS[name]))
    if cause == "cpu-contention" and not _is_kept_from_cpus(processing.service):
        return None
    return Pressure(cause, (waited,), overloads=_has_no_time(processing))


def _has_no_time(processing: Processing) -> bool:
    """For a request more: its threads have none, or a lock that each needs has not."""
    service, time = processing.service, processing.time
    return time.occupied >= THREAD_BUSY_MIN or queue_at_locks(service, time)


def _wait_fact(time: RequestTime) -> Optional[Evidence]:
    """Where a request waits for long on average."""
    waited_us = time.mean_us(*WAITS)
    if waited_us < WAIT_MEAN_US_MIN:
        return None
    says = f"a request waits {duration(waited_us)} of {duration(_mean_us(time))}"
    return evidence("request_wait_us", waited_us, "µs", says, WAIT_MEAN_US_MIN)


def _contends(processing: Processing) -> Optional[Pressure]:
    """Others' use of the CPUs is no part of serving: less of it is pressure than of other waits."""
    time = processing.time
    if not is_enough(time) or time.share("runq") < CONTENTION_SHARE_MIN:
        return None
    mean_us = time.mean_us("runq")
    is_felt = mean_us >= CONTENTION_US_MIN or _has_tail(processing.service.latency)
    if _saturates_alone(processing):
        return None
    if not is_felt or not _is_kept_from_cpus(processing.service):
        return None
    says = f"a request waits {duration(mean_us)} of {duration(_mean_us(time))} for a CPU"
    waited = evidence("request_runq_us", mean_us, "µs", says, CONTENTION_US_MIN)
    return Pressure("cpu-contention", (waited,), overloads=time.occupied >= THREAD_BUSY_MIN)


def _saturates_alone(processing: Processing) -> bool:
    """Without the others its own demand would fill all CPUs, and has more of a request than they.

    Clients that never pause keep every worker busy, whatever else runs: a CPU more, or less work,
    helps them more than the others' end.
    """
    found, service, time = processing.saturated, processing.service, processing.time
    own = "cpu" if time.sum_us("cpu") >= time.sum_us("transport") else "transport"
    if found is None or found.kind == "runq" or time.sum_us(own) <= time.sum_us("runq"):
        return False
    wanted_us = service.spent_us(*ON_CPU) + service.spent_us("runq") * (1 - service.foreign_runq)
    return wanted_us >= THREAD_BUSY_MIN * service.duration_s * service.cpus * 1e6


def _is_kept_from_cpus(service: Service) -> bool:
    """Its threads wait for a good part of the CPU time they need; not one stall, seen by many."""
    rows = serving_time(service)
    waited = service.foreign_runq * sum(t.share.get("runq", 0.0) * t.observed_s for t in rows)
    ran = sum(t.share.get(name, 0.0) * t.observed_s for t in rows for name in ON_CPU)
    return waited >= KEPT_FROM_CPU_MIN * (waited + ran)


def _saturated(processing: Processing) -> Optional[Pressure]:
    found = processing.saturated
    if found is None:
        return None
    cause = CAUSE_OF_BUSY[found.kind]
    says = f"{_who(found)} is busy {percent(found.busy)} of the time"
    fact = evidence("busy_share", found.busy, "of 1", says, THREAD_BUSY_MIN)
    return Pressure(cause, (fact,), overloads=True)


def _take_turns(processing: Processing) -> Optional[Pressure]:
    """Requests wait for each other at a lock, and its holders do not do one thing only."""
    time, waited_us = processing.time, processing.time.locked_us
    if not is_enough(time) or waited_us < WAIT_SHARE_MIN * time.total_us:
        return None
    mean_us = waited_us / time.count
    if mean_us < WAIT_MEAN_US_MIN or not queue_at_locks(processing.service, time):
        return None
    says = f"a request waits {duration(mean_us)} of {duration(_mean_us(time))} for a lock"
    fact = evidence("request_lock_us", mean_us, "µs", says, WAIT_MEAN_US_MIN)
    return Pressure(largest_part(time), (fact,), overloads=True)


def _occupied(processing: Processing) -> Optional[Pressure]:
    """Its threads have no time left for the requests that queue, and not for one reason alone."""
    time = processing.time
    fact, cause = occupied_fact(processing.service, time), largest_part(time)
    if fact is None or time.sum_us(*CLIENTS) > time.sum_us(*PARTS[cause]):
        return None
    return Pressure(cause, (fact,), overloads=True)


def occupied_fact(service: Service, time: RequestTime) -> Optional[Evidence]:
    """That all threads which serve have requests in hand, and others wait for one; else None."""
    if not is_enough(time) or time.occupied < THREAD_BUSY_MIN:
        return None
    # Little's law: so many wait at any moment.
    waiting = time.queue_us / 1e6 / service.duration_s
    if waiting < WAITING_MIN:
        return None
    says = (
        f"the threads that serve have requests in hand for {percent(time.occupied)} of the time, "
        f"and {waiting:.1f} others wait for one of them on average"
    )
    return evidence("occupied_share", time.occupied, "of 1", says, THREAD_BUSY_MIN)


def _fills_its_pool(processing: Processing) -> Optional[Pressure]:
    """Requests wait for one of a loop's own threads, and these do not do one thing only."""
    service, time = processing.service, processing.time
    if not is_enough(time) or _mean_us(time) < WAIT_MEAN_US_MIN:
        return None
    full = full_own_pool(service, time.app_us)
    if full is None or service.at_once < full + WAITING_MIN:
        return None
    waiting = service.at_once - full
    says = (
        f"all {full} threads that work for its loops are busy, and {waiting:.1f} other requests "
        "are in progress on average"
    )
    fact = evidence("pool_waiting", waiting, "requests", says, WAITING_MIN)
    return Pressure(largest_part(time), (fact,), overloads=True)


def _has_tail(latency: Optional[Latency]) -> bool:
    """A p99 far above the median."""
    return tail_us(latency) is not None


def _tail_fact(latency: Optional[Latency]) -> Optional[Evidence]:
    """Where the slow ones take as much time as all others together."""
    if latency is None or latency.mean is None or latency.p50 is None or latency.p99 is None:
        return None
    if not _has_tail(latency) or latency.mean < TAIL_MEAN_TIMES_MEDIAN * latency.p50:
        return None
    says = f"1 % of requests take {duration(latency.p99)} or more, half {duration(latency.p50)}"
    least_us = max(TAIL_US_MIN, TAIL_TIMES_MEDIAN * latency.p50)
    return evidence("p99_us", latency.p99, "µs", f"{says} or less", least_us)


def _moves(processing: Processing) -> Optional[Pressure]:
    """Large messages: no thread is full, and moving the bytes is what requests take time for."""
    time = processing.time
    if not is_enough(time):
        return None
    found = moving(processing.report, processing.service, time)
    least_s = MOVING_CPUS_MIN * processing.service.duration_s
    if found.share < WAIT_SHARE_MIN or found.moving_s < least_s:
        return None
    if found.mean_us < WAIT_MEAN_US_MIN:
        return None
    says = f"{duration(found.mean_us)} per request go into moving its bytes"
    fact = evidence("transport_us", found.mean_us, "µs", says, WAIT_MEAN_US_MIN)
    return Pressure("transport", (fact,), overloads=False)


def _queues(processing: Processing) -> Optional[Pressure]:
    """Requests come in bursts: they wait for each other as where there is always work."""
    service, wait = processing.service, processing.service.stages.recv_wait
    if wait is None or not is_enough(processing.time):
        return None
    if processing.time.share("cpu") < WAIT_SHARE_MIN:
        return None
    work_us = service.work_us
    least_us = max(WAIT_MEAN_US_MIN, QUEUED_TIMES_WORK * work_us)
    if _thread_is_often_busy(service) and (wait.mean or 0.0) >= least_us:
        where = "before they are read"
        return _queued("recv_wait_us", wait.mean or 0.0, where, work_us)
    behind_us = behind_own_us(processing.report, service)
    if _cpus_are_often_busy(processing.report) and behind_us >= least_us:
        return _queued("own_runq_us", behind_us, "for a CPU behind each other", work_us)
    return None


def _thread_is_often_busy(service: Service) -> bool:
    threads = serving_threads(service)
    return any(busy(service, thread.share) >= QUEUED_BUSY_MIN for thread in threads)


def _cpus_are_often_busy(report: Report) -> bool:
    host = report.cpu.host if report.cpu is not None else None
    return host is not None and (host.busy_pct or 0.0) / 100 >= QUEUED_BUSY_MIN


def _queued(name: str, waited_us: float, where: str, work_us: float) -> Pressure:
    says = (
        f"requests wait {duration(waited_us)} on average {where}, and each takes "
        f"{duration(work_us)} of CPU time"
    )
    fact = evidence(name, waited_us, "µs", says, QUEUED_TIMES_WORK * work_us)
    return Pressure("app-cpu", (fact,), overloads=False)


def _stalls(processing: Processing) -> Optional[Pressure]:
    """Some requests keep the thread so long that others wait for them."""
    wait, app = processing.service.stages.recv_wait, processing.service.stages.app
    if wait is None or app is None or not is_enough(processing.time):
        return None
    waited_us, took_us, usual_us = wait.mean or 0.0, app.p99 or 0.0, app.p50 or 0.0
    is_long = took_us >= max(STALL_US_MIN, STALL_TIMES_MEDIAN * usual_us)
    is_own_work = processing.time.share("cpu") >= WAIT_SHARE_MIN
    if waited_us < WAIT_MEAN_US_MIN or not is_long or not is_own_work:
        return None
    says = (
        f"requests wait {duration(waited_us)} on average before they are read, while 1 in 100 "
        f"takes {duration(took_us)} or more to process"
    )
    fact = evidence("recv_wait_us", waited_us, "µs", says, WAIT_MEAN_US_MIN)
    return Pressure("app-cpu", (fact,), overloads=False)


# Moving bytes does not keep one for a tenth of a second.
_KEEPS_A_THREAD = ("app-cpu", "app-blocked", "upstream-wait", "cpu-contention")


def _stands_still(processing: Processing) -> Optional[Pressure]:
    """Now and then nobody reads: too few requests meet it for percentiles to show."""
    time = processing.time
    if not is_enough(time) or processing.saturated is not None:
        return None
    found = standstill(processing.report, processing.service)
    cause = max(_KEEPS_A_THREAD, key=lambda name: time.sum_us(*PARTS[name]))
    if found is None or cause == "cpu-contention" or not time.sum_us(*PARTS[cause]):
        return None
    return Pressure(cause, (found.fact(),), overloads=False, harm=found.harm())


def _too_slow(processing: Processing) -> Optional[Pressure]:
    slo_us, latency = processing.slo_us, processing.service.latency
    if slo_us is None or latency is None or latency.p99 is None or latency.p99 <= slo_us:
        return None
    if processing.time.share(*CLIENTS) >= WAIT_SHARE_MIN:
        return None
    says = f"p99 is {duration(latency.p99)}, more than the {duration(slo_us)} asked for"
    fact = evidence("p99_us", latency.p99, "µs", says, slo_us)
    return Pressure(largest_part(processing.time), (fact,), overloads=False)


def largest_part(time: RequestTime) -> str:
    """The cause with most of the request time."""
    return max(PARTS, key=lambda name: time.sum_us(*PARTS[name]))


def _suspect(processing: Processing, cause: str, pressed: Optional[Pressure]) -> Optional[Suspect]:
    time = processing.time
    share = time.share(*PARTS[cause])
    found = processing.saturated
    if not time.total_us and pressed is not None and found is not None:
        share = found.busy * found.kinds[found.kind]
    if not share and pressed is None:
        return None
    remedy = remedies.for_cause(cause, processing.report, processing.service, time, found)
    return Suspect(
        cause=cause,
        name=f"{cause}:{remedy.subject or processing.service.name}",
        severity=_severity(pressed, found),
        is_pressure=pressed is not None,
        share_pct=100 * share,
        subject=remedy.subject,
        headline=remedy.headline,
        evidence=(
            *(pressed.evidence if pressed else ()),
            *_share_of(cause, processing.service, time),
            *remedy.facts,
        ),
        actions=remedy.actions,
        seen=time.count or REQUESTS_MIN,
        overloads=pressed is not None and pressed.overloads,
        pids=processing.service.pids or frozenset(),
        waits_for=_answering(processing.service) if cause == "upstream-wait" else frozenset(),
        harm=pressed.harm if pressed is not None else None,
    )


def _share_of(cause: str, service: Service, time: RequestTime) -> Tuple[Evidence, ...]:
    if not time.count:
        return ()
    mean_us, share = time.mean_us(*PARTS[cause]), time.share(*PARTS[cause])
    says = (
        f"{percent(share)} of request time, {duration(mean_us)} per "
        f"request, over {count(time.count, 'request')}"
    )
    return (evidence(f"{cause}_share", share, "of 1", says), *_paused(service, time))


def _paused(service: Service, time: RequestTime) -> Tuple[Evidence, ...]:
    """Where replies that have begun are most of what clients wait for."""
    if 2 * service.paused_us <= time.total_us:
        return ()
    mean_us = service.paused_us / service.count
    says = f"{duration(mean_us)} of that are pauses after a reply's first bytes"
    return (evidence("paused_us", mean_us, "µs", says),)


def _answering(service: Service) -> FrozenSet[int]:
    peers = [row.peer for row in service.upstream]
    return frozenset(peer.pid for peer in peers if peer is not None and peer.pid)


def _severity(pressed: Optional[Pressure], found: Optional[Saturation]) -> str:
    return CRITICAL if pressed is not None and found is not None else WARNING


def _mean_us(time: RequestTime) -> float:
    return time.total_us / time.count if time.count else 0.0


def _who(found: Saturation) -> str:
    if found.how == "thread":
        return f"thread {found.comm} {found.tid}"
    if found.how == "process":
        return f"{found.comm} {found.pid}, whose threads contend for one lock,"
    if found.how == "processes":
        return f"{found.comm}, whose processes contend for one lock,"
    who = found.comm if found.how == "crew" else f"{found.comm} {found.pid}"
    if found.with_asked:
        return f"{who}, with those that it asks and all CPUs that it may use,"
    return f"{who} with all CPUs that it may use"
