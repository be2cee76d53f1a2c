"""Whose fault it is that threads wait for a CPU."""

from __future__ import annotations

from collections import Counter
from typing import Iterable, List, Optional, Set

from udsprobe.model.report import CpuCgroup, CpuHolder, Peer, Report
from udsprobe.model.threads.thread_time import THREADS_SHOWN_MAX, busy_share
from udsprobe.rules.accounts.affinity import allowed_cpus, confinement
from udsprobe.rules.thresholds import (
    HOLDER_SHARE_MIN,
    RUNNABLE_PER_CPU_MAX,
    THROTTLED_PERIODS_PCT_MIN,
)

# kernel/softirq.c, softirq_threads
SOFTIRQ_THREADS = "ksoftirqd/"
_OWN_NAMES = ("udsprobe",)


def foreign_runq(report: Report) -> float:
    """The part of the waits for a CPU that is not the service's own demand, 0 to 1.

    Its own, that of its clients and upstreams, and packets on their way, are a load it has to
    carry; a limit (a quota, CPUs that they may not use), too many threads and everybody else are
    not. 1 when not measured.
    """
    if not _holders(report) or is_limited(report) or has_too_many_threads(report):
        return 1.0
    return foreign_share(report)


def is_limited(report: Report) -> bool:
    """Targets wait for a CPU because they may not use more of those that there are."""
    return throttling(report) is not None or confinement(report) is not None


def foreign_share(report: Report) -> float:
    """Of the waits for a CPU that somebody held, the part that strangers did."""
    return _share(report, foreign_holders(report))


def held_by_targets(report: Report) -> float:
    """Of the waits for a CPU that somebody held, the part that the targets themselves did."""
    return _share(report, (each for each in _holders(report) if each.is_target))


def _holders(report: Report) -> List[CpuHolder]:
    return (report.time.cpu_holders if report.time is not None else None) or []


def _share(report: Report, held: Iterable[CpuHolder]) -> float:
    whole_us = _waited_us(each for each in _holders(report) if not each.is_idle)
    return _waited_us(held) / whole_us if whole_us else 0.0


def _waited_us(holders: Iterable[CpuHolder]) -> float:
    return sum(each.waited_us for each in holders)


def asked_beside(report: Report) -> float:
    """How long those that the targets ask ran while targets waited for a CPU, for each second that
    targets themselves ran then."""
    asked, holders = _asked_pids(report), _holders(report)
    own_us = _waited_us(each for each in holders if each.is_target)
    asked_us = _waited_us(each for each in holders if not each.is_target and each.pid in asked)
    return asked_us / own_us if own_us else 0.0


def _asked_pids(report: Report) -> Set[int]:
    of_requests = _pids(row.peer for row in report.requests.upstream or [])
    return of_requests | _pids(
        row.peer for row in report.connections or [] if row.role == "upstream"
    )


def _pids(peers: Iterable[Optional[Peer]]) -> Set[int]:
    return {peer.pid for peer in peers if peer is not None and peer.pid}


def foreign_holders(report: Report) -> List[CpuHolder]:
    """Processes that ran while targets waited and have nothing to do with them."""
    partners = partner_pids(report)
    return [
        each
        for each in _holders(report)
        if not (each.is_idle or each.is_target or each.is_partner or each.pid in partners)
        and not (_delivers(report, each) or is_own(each))
    ]


def is_own(holder: CpuHolder) -> bool:
    """It observes: its time is gone with it, and no illness of the targets."""
    return (holder.comm or "").startswith(_OWN_NAMES)


def delivering_runq(report: Report) -> float:
    """The part of the waits for a CPU in which the kernel moved packets, 0 to 1."""
    return _share(report, (each for each in _holders(report) if _delivers(report, each)))


def _delivers(report: Report, holder: CpuHolder) -> bool:
    """The thread of a CPU that hands on packets when interrupts leave too many, theirs here."""
    if not (holder.comm or "").startswith(SOFTIRQ_THREADS):
        return False
    return any(row.transport == "tcp" and row.calls for row in report.syscalls or []) or any(
        row.transport == "tcp" for row in report.connections or []
    )


def partner_pids(report: Report) -> Set[int]:
    """At the other end of the targets' connections."""
    return _pids(row.peer for row in report.connections or []) | _asked_pids(report)


def throttling(report: Report) -> Optional[CpuCgroup]:
    """The CPU quota that stops the targets most, if one does."""
    groups = (report.cpu.cgroups if report.cpu is not None else None) or []
    stopped = [g for g in groups if (g.throttled_pct or 0.0) >= THROTTLED_PERIODS_PCT_MIN]
    return max(stopped, key=lambda group: group.throttled_us, default=None)


def has_too_many_threads(report: Report) -> bool:
    """Far more of its own threads want to run than there are CPUs, and not for strangers' sake.

    Threads of one process that have a request each are no more than clients ask for; of processes
    for a connection each, a pool before them has fewer.
    """
    cpus = allowed_cpus(report)
    if not cpus or runnable_per_cpu(report) - _with_requests(report) / cpus < RUNNABLE_PER_CPU_MAX:
        return False
    return foreign_share(report) < HOLDER_SHARE_MIN


def _with_requests(report: Report) -> float:
    """Threads that have a request in progress, on average, of processes with several of them."""
    time = report.time
    if time is None:
        return 0.0
    most = {each.pid: each.threads for each in time.processes if each.threads > 1}
    if len(time.threads) < THREADS_SHOWN_MAX:
        moving = Counter(t.pid for t in time.threads if t.share.get("sys_socket", 0.0) > 0)
        most = {pid: moving[pid] for pid in most}
    rows = report.requests.served_by or ()
    return sum(min(row.at_once or 0.0, most.get(row.pid, 0)) for row in rows)


def runnable_per_cpu(report: Report) -> float:
    """Threads of the targets that ran or waited, on average, for each CPU that they may use."""
    time, seconds = report.time, report.window.duration_s
    cpus = allowed_cpus(report)
    if time is None or not seconds or not cpus:
        return 0.0
    wanted_s = busy_share(time.total) * time.total_s
    return wanted_s / seconds / cpus
