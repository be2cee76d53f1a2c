"""Targets that may not run on every CPU of the host: where they may, and who says so.

Masks are looked up when a target is new and then rarely, as quotas are.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import (
    AbstractSet,
    Dict,
    FrozenSet,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from udsprobe.kernel.proc.cgroups import CgroupMount
from udsprobe.kernel.proc.process_cgroups import ProcessCgroups
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.printable import printable
from udsprobe.sample import AffinityReading

LOOK_AGAIN_EVERY_READS = 10
THREADS_LOOKED_AT_MAX = 256
AFFINITIES_MAX = 64
# Of version 2 and 1 (Documentation/admin-guide/cgroup-v2.rst, cpusets.rst).
_EFFECTIVE = ("cpuset.cpus.effective", "cpuset.effective_cpus")


class CpuTime(NamedTuple):
    """Of one CPU since boot, in clock ticks; waits for a disk are idle."""

    idle: int
    total: int


class _Mask(NamedTuple):
    """`cpusets`: files of cgroups that leave CPUs out, the outermost first."""

    cpus: FrozenSet[int]
    cpusets: Tuple[str, ...]


class AffinityTable:
    """Looks at the targets' masks.

    Args:
        procfs: for threads and cgroups.
        hierarchies: default: the mounted ones.
    """

    def __init__(self, procfs: Procfs, hierarchies: Optional[Sequence[CgroupMount]] = None) -> None:
        self._procfs = procfs
        self._cgroups = ProcessCgroups(procfs, hierarchies, "cpuset")
        self._known: Dict[int, Optional[_Mask]] = {}
        self._reads = 0

    def read(
        self, pids: AbstractSet[int], cpus: Mapping[int, CpuTime]
    ) -> Tuple[AffinityReading, ...]:
        """Those that leave CPUs out, one row for each set of CPUs.

        A process whose threads may run on different CPUs was set up so by itself, thread by
        thread, and has no row.

        Args:
            pids: the living targets. cpus: online ones.
        """
        if self._reads % LOOK_AGAIN_EVERY_READS == 0:
            self._known.clear()
        self._reads += 1
        for pid in self._known.keys() - pids:
            del self._known[pid]
        for pid in pids - self._known.keys():
            self._known[pid] = self._mask(pid, cpus.keys())
        alike: Dict[_Mask, List[int]] = {}
        for pid, mask in sorted(self._known.items()):
            if mask is not None:
                alike.setdefault(mask, []).append(pid)
        return tuple(_reading(mask, alike[mask], cpus) for mask in list(alike)[:AFFINITIES_MAX])

    def _mask(self, pid: int, online: AbstractSet[int]) -> Optional[_Mask]:
        """None when it may run everywhere, or is gone."""
        own = _affinity(pid)
        if own is None or own >= online or not self._is_of_all_threads(pid, own):
            return None
        cpus = frozenset(own & online)
        return _Mask(cpus, self._cpusets(pid, cpus, online))

    def _is_of_all_threads(self, pid: int, own: FrozenSet[int]) -> bool:
        tids = self._procfs.thread_ids(pid)[:THREADS_LOOKED_AT_MAX]
        return all(_affinity(tid) in (own, None) for tid in tids)

    def _cpusets(
        self, pid: int, cpus: AbstractSet[int], online: AbstractSet[int]
    ) -> Tuple[str, ...]:
        """Empty where they would allow more: sched_setaffinity(2) then did it."""
        above = list(self._cgroups.directories(pid) or ())
        effective = next((set_ for each in above for set_ in [_effective(each)] if set_), None)
        if effective is None or effective & online != cpus:
            return ()
        files = [each / "cpuset.cpus" for each in reversed(above)]
        limits = ((file, _cpus_in(file)) for file in files)
        return tuple(
            printable(os.fsencode(file)) for file, set_ in limits if set_ and not set_ >= online
        )


def _reading(mask: _Mask, pids: List[int], cpus: Mapping[int, CpuTime]) -> AffinityReading:
    others = sorted(cpus.keys() - mask.cpus)
    return AffinityReading(
        cpus=tuple(sorted(mask.cpus)),
        others=tuple(others),
        pids=tuple(pids),
        cpusets=mask.cpusets,
        others_idle=sum(cpus[each].idle for each in others),
        others_total=sum(cpus[each].total for each in others),
    )


def _affinity(tid: int) -> Optional[FrozenSet[int]]:
    try:
        return frozenset(os.sched_getaffinity(tid))
    except OSError:
        return None


def _effective(directory: Path) -> FrozenSet[int]:
    return next(
        (found for name in _EFFECTIVE if (found := _cpus_in(directory / name))), frozenset()
    )


def _cpus_in(file: Path) -> FrozenSet[int]:
    """Of a list such as `0,2-3`; empty when there is none."""
    try:
        parts = [part.partition("-") for part in file.read_text().strip().split(",") if part]
        return frozenset(
            cpu for first, _, last in parts for cpu in range(int(first), int(last or first) + 1)
        )
    except (OSError, ValueError):
        return frozenset()
