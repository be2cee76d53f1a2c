"""Threads that poll: how long each was away from its poller, which is how long others waited."""

from __future__ import annotations

from typing import List, Optional

from udsprobe.model.histogram import latency_us, subtract
from udsprobe.model.report import BusyTime, Latency, Loop
from udsprobe.sample import LoopCounts, Sample

LOOPS_SHOWN_MAX = 50
_NS_PER_US = 1000


def loop_rows(first: Sample, last: Sample) -> Optional[List[Loop]]:
    """The loops that went round in the window, the busiest first; None when not measured."""
    if last.loops is None:
        return None
    before = {(loop.pid, loop.tid): loop for loop in first.loops or ()}
    grown = [_since(loop, before.get((loop.pid, loop.tid))) for loop in last.loops]
    grown = [loop for loop in grown if loop.iterations]
    grown.sort(key=lambda loop: (-loop.busy_ns, loop.tid))
    return [_row(loop) for loop in grown[:LOOPS_SHOWN_MAX]]


def loop_busy_us(first: Sample, last: Sample) -> Optional[Latency]:
    """Of all loops, those of threads that ended included."""
    if first.loop_busy is None or last.loop_busy is None:
        return None
    return latency_us(subtract("loop busy", last.loop_busy, first.loop_busy))


def _since(loop: LoopCounts, before: Optional[LoopCounts]) -> LoopCounts:
    # Otherwise another thread has the number of one that ended.
    if before is None or loop.iterations < before.iterations or loop.busy_ns < before.busy_ns:
        return loop
    return LoopCounts(
        loop.pid,
        loop.tid,
        loop.comm,
        loop.iterations - before.iterations,
        loop.busy_ns - before.busy_ns,
        loop.busy_max_ns,
    )


def _row(loop: LoopCounts) -> Loop:
    mean_us = loop.busy_ns / loop.iterations / _NS_PER_US
    busy_us = BusyTime(mean_us, loop.busy_max_ns / _NS_PER_US)
    return Loop(loop.pid, loop.tid, loop.comm, loop.iterations, busy_us)
