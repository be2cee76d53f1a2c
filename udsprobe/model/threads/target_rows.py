"""The observed processes and how near they are to their limit of descriptors."""

from __future__ import annotations

from typing import AbstractSet, Dict, List, Optional, Tuple

from udsprobe.model.counters import grown_by_key
from udsprobe.model.report import Fds, Target
from udsprobe.model.threads.cgroup_path import placement
from udsprobe.sample import Sample, TargetReading

_NS_PER_S = 1_000_000_000


class SettledRows:
    """Rows of processes that did not change, kept from one report to the next of the same samples.

    On a host with thousands of processes nearly all are such.
    """

    def __init__(self) -> None:
        self._rows: Dict[int, Tuple[TargetReading, Target]] = {}

    def row(self, reading: TargetReading) -> Target:
        """Of a reading that is the same object in both samples, some time apart."""
        known = self._rows.get(reading.pid)
        if known is None or known[0] is not reading:
            # Any time will do: nothing grew.
            known = (reading, _row(reading, reading, 1.0))
            self._rows[reading.pid] = known
        return known[1]

    def keep(self, pids: AbstractSet[int]) -> None:
        """Forget all others."""
        for pid in self._rows.keys() - pids:
            del self._rows[pid]


def target_rows(first: Sample, last: Sample, settled: Optional[SettledRows] = None) -> List[Target]:
    """The targets of the last sample, in its order.

    Args:
        settled: to be given again with the next samples of the same observation.
    """
    settled = settled or SettledRows()
    elapsed_s = (last.monotonic_ns - first.monotonic_ns) / _NS_PER_S
    same = set(map(id, first.targets)) if elapsed_s else set()
    changed = [reading for reading in last.targets if id(reading) not in same]
    before: Dict[Tuple[int, Optional[int]], TargetReading] = {}
    if changed:
        before = {(reading.pid, reading.start_ticks): reading for reading in first.targets}
        settled.keep({reading.pid for reading in last.targets})
    return [
        settled.row(reading)
        if id(reading) in same
        else _row(reading, before.get((reading.pid, reading.start_ticks)), elapsed_s)
        for reading in last.targets
    ]


def _row(reading: TargetReading, before: Optional[TargetReading], elapsed_s: float) -> Target:
    where = placement(reading.cgroup)
    return Target(
        pid=reading.pid,
        comm=reading.comm,
        cmdline=reading.cmdline,
        threads=reading.threads,
        state=reading.state,
        fds=_fds(reading, before, elapsed_s),
        via=reading.via,
        unit=where.unit,
        container=where.container,
        runtime=where.runtime,
        pod=where.pod,
        stopped=reading.stopped,
        language=reading.language,
        tracer_pid=reading.tracer_pid,
        tracer_comm=reading.tracer_comm,
    )


def _fds(reading: TargetReading, before: Optional[TargetReading], elapsed_s: float) -> Fds:
    growth_per_s = _growth_per_s(reading, before, elapsed_s)
    refused = None
    if reading.fds_refused is not None:
        earlier = before.fds_refused if before is not None else None
        name = f"fds refused to {reading.pid}"
        refused = grown_by_key(name, reading.fds_refused, earlier or {})
    return Fds(
        open=reading.fds_open,
        limit=reading.fds_limit,
        growth_per_s=growth_per_s,
        full_in_s=_full_in_s(reading, growth_per_s),
        exhausted=None if refused is None else sum(refused.values()),
        exhausted_by_errno=refused,
    )


def _growth_per_s(
    reading: TargetReading, before: Optional[TargetReading], elapsed_s: float
) -> Optional[float]:
    # What an exited process has open is what it had when it was looked at last.
    if before is None or reading.state != "running" or not elapsed_s:
        return None
    if reading.fds_open is None or before.fds_open is None:
        return None
    return (reading.fds_open - before.fds_open) / elapsed_s


def _full_in_s(reading: TargetReading, growth_per_s: Optional[float]) -> Optional[float]:
    if not growth_per_s or growth_per_s < 0 or reading.fds_limit is None:
        return None
    return max(0, reading.fds_limit - (reading.fds_open or 0)) / growth_per_s
