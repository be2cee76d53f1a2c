"""Signs of pressure in what light sees: why full detail is worth its cost now.

Pure. A sign is no verdict: a false one costs a window, a missed one the detail of an incident.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Deque, Iterator, Mapping, Optional, Tuple

from udsprobe.auto.beginnings import Sign
from udsprobe.auto.missing import PAST_INTERVALS, PAST_MIN, Missing
from udsprobe.model.report import Report
from udsprobe.rules.thresholds import (
    REQUESTS_MIN,
    STALL_TIMES_MEDIAN,
    THREAD_BUSY_MIN,
    WAIT_MEAN_US_MIN,
)

QUEUE_SHARE_MIN = 0.5
"""Of an accept queue's limit: half full."""

STOPPED_US_MIN = 1_000_000.0
"""The other end has taken nothing of what waits for it for so long: its sender stands, or will."""

QUIET_CLASSES = frozenset({"healthy", "unknown"})
NS_PER_S = 1e9
CpuByPid = Mapping[int, int]


class Pressure:
    """Follows the intervals of light."""

    def __init__(self) -> None:
        self._past: Deque[float] = deque(maxlen=PAST_INTERVALS)
        self._missing = Missing()
        self._cpu_ns: CpuByPid = {}

    def signs(self, interval: Report, cpu_ns: CpuByPid) -> Tuple[Sign, ...]:
        """What of this interval is a sign of pressure; empty where nothing is.

        Args:
            interval: of detail light.
            cpu_ns: what the targets that live took or waited for, by PID, cumulative.
        """
        return (
            *_verdict(interval),
            *_queues(interval),
            *_senders(interval),
            *self._missing.signs(interval, self._usual()),
            *self._busy(interval, cpu_ns),
            *self._slow(interval),
        )

    def _busy(self, interval: Report, cpu_ns: CpuByPid) -> Iterator[Sign]:
        """Its strength: CPUs that the busy ones take, whichever processes these are."""
        duration_ns = interval.window.duration_s * NS_PER_S
        grown = [ns - self._cpu_ns[pid] for pid, ns in cpu_ns.items() if pid in self._cpu_ns]
        busy = [ns for ns in grown if ns >= THREAD_BUSY_MIN * duration_ns > 0]
        if busy:
            yield Sign("processes are busy", sum(busy) / duration_ns)
        self._cpu_ns = dict(cpu_ns)

    def _slow(self, interval: Report) -> Iterator[Sign]:
        served = interval.requests.served
        if served is None or served.count < REQUESTS_MIN or served.latency_us.p99 is None:
            return
        p99, usual = served.latency_us.p99, self._usual()
        self._past.append(p99)
        if usual is not None and p99 >= max(WAIT_MEAN_US_MIN, STALL_TIMES_MEDIAN * usual):
            yield Sign("the p99 of served requests is up", p99)

    def _usual(self) -> Optional[float]:
        return median(self._past) if len(self._past) >= PAST_MIN else None


def names_cause(report: Report) -> bool:
    """Whether its verdict is that something is wrong."""
    return report.verdict is not None and report.verdict.class_ not in QUIET_CLASSES


def cause_of_full(interval: Report) -> Iterator[Sign]:
    """The sign that the verdict of an open window is."""
    if names_cause(interval) and interval.verdict is not None:
        yield Sign(f"full detail names {interval.verdict.cause}", in_full=True)


def _verdict(interval: Report) -> Iterator[Sign]:
    if names_cause(interval) and interval.verdict is not None:
        yield Sign(f"light names {interval.verdict.cause}")


def _queues(interval: Report) -> Iterator[Sign]:
    for row in interval.listeners or ():
        depth = (row.depth.now if row.depth.max is None else row.depth.max) or 0
        if depth >= max(2.0, QUEUE_SHARE_MIN * row.depth.limit):
            yield Sign(f"the accept queue of {row.address} is half full", depth)
        turned_away = (row.drops or 0) + sum((row.refused or {}).values())
        if turned_away:
            yield Sign(f"connects to {row.address} are refused", turned_away)


def _senders(interval: Report) -> Iterator[Sign]:
    stopped = sum(
        (row.stalled_us or 0.0) >= STOPPED_US_MIN or bool(row.stops)
        for row in interval.connections or ()
    )
    if stopped:
        yield Sign("senders stand still", stopped)
