"""CPU quotas that the targets live under: their own cgroups' and those above.

Knows the files of both versions. Which cgroups a process is in is looked up
when it is new and then rarely; a sample reads the files of known quotas only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import AbstractSet, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from udsprobe.kernel.proc.cgroups import CgroupMount
from udsprobe.kernel.proc.process_cgroups import ProcessCgroups
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.printable import printable
from udsprobe.sample import QuotaReading

# A process can be moved and a quota be set at any time; both are rare.
LOOK_AGAIN_EVERY_READS = 10
QUOTAS_MAX = 64


@dataclass(frozen=True)
class Usage:
    """What a cgroup's files say now, cumulative.

    Attributes:
        inode: of its directory; another one is another cgroup of the same name.
        quota_us: None when there is no limit.
        usage_ns: None when the hierarchy does not say.
    """

    inode: int
    quota_us: Optional[int]
    period_us: int
    periods: int
    throttled_periods: int
    throttled_ns: int
    usage_ns: Optional[int]


@dataclass
class _Known:
    """A quota that was seen, its counters since then, and its files as read last."""

    version: int
    since_ns: int
    now: Usage
    periods: int = 0
    throttled_periods: int = 0
    throttled_ns: int = 0
    usage_ns: int = 0

    def update(self, now: Usage) -> None:
        # A service that was started again has a new cgroup, which counts from 0.
        before, self.now = self.now if self.now.inode == now.inode else None, now
        for name in ("periods", "throttled_periods", "throttled_ns", "usage_ns"):
            earlier = (getattr(before, name) or 0) if before is not None else 0
            grown = max(0, (getattr(now, name) or 0) - earlier)
            setattr(self, name, getattr(self, name) + grown)


class QuotaTable:
    """Remembers each quota that a target was seen under.

    Args:
        procfs: for the cgroups of a process.
        hierarchies: default: the mounted ones.
    """

    def __init__(self, procfs: Procfs, hierarchies: Optional[Sequence[CgroupMount]] = None) -> None:
        self._cgroups = ProcessCgroups(procfs, hierarchies)
        self._members: Dict[int, Optional[Dict[Path, int]]] = {}
        self._looked_at: Set[Path] = set()
        self._known: Dict[Path, _Known] = {}
        self._reads = 0

    def read(
        self, groups: Mapping[int, AbstractSet[int]], now_ns: int
    ) -> Optional[Tuple[QuotaReading, ...]]:
        """Quotas now, by path; None when a target's cgroups are hidden and none is known.

        Args:
            groups: the living targets; those of a group are in the same cgroups.
            now_ns: CLOCK_MONOTONIC of this sample.
        """
        if self._reads % LOOK_AGAIN_EVERY_READS == 0:
            self._members.clear()
            self._looked_at.clear()
        self._reads += 1
        self._update()
        for group in self._members.keys() - groups.keys():
            del self._members[group]
        for group in groups.keys() - self._members.keys():
            self._members[group] = self._directories_of(groups[group])
        for directories in self._members.values():
            self._look_at(directories or {}, now_ns)
        if not self._known and None in self._members.values():
            return None
        return tuple(self._reading(path, groups) for path in sorted(self._known))

    def _directories_of(self, pids: AbstractSet[int]) -> Optional[Dict[Path, int]]:
        """By the first of them that still is there."""
        found: Optional[Dict[Path, int]] = {}
        for pid in sorted(pids):
            found = self._cgroups.directories(pid)
            if found != {}:
                break
        return found

    def _look_at(self, directories: Dict[Path, int], now_ns: int) -> None:
        for path, version in directories.items():
            if path in self._looked_at or path in self._known:
                continue
            self._looked_at.add(path)
            usage = usage_of(path, version)
            if usage is None or usage.quota_us is None or len(self._known) >= QUOTAS_MAX:
                continue
            self._known[path] = _Known(version, now_ns, usage)

    def _update(self) -> None:
        for path, known in self._known.items():
            now = usage_of(path, known.version)
            # Of one that was removed the last word stays.
            if now is not None:
                known.update(now)

    def _reading(self, path: Path, groups: Mapping[int, AbstractSet[int]]) -> QuotaReading:
        known = self._known[path]
        inside = (pids for group, pids in groups.items() if path in (self._members[group] or ()))
        return QuotaReading(
            path=printable(os.fsencode(path)),
            version=known.version,
            quota_us=known.now.quota_us,
            period_us=known.now.period_us,
            since_ns=known.since_ns,
            periods=known.periods,
            throttled_periods=known.throttled_periods,
            throttled_ns=known.throttled_ns,
            usage_ns=None if known.now.usage_ns is None else known.usage_ns,
            pids=tuple(sorted(pid for pids in inside for pid in pids)),
        )


def usage_of(directory: Path, version: int) -> Optional[Usage]:
    """The files of one cgroup; None when it has none of a CPU controller, or is gone."""
    try:
        return _usage_of_v2(directory) if version == 2 else _usage_of_v1(directory)
    except (OSError, ValueError, KeyError):
        return None


def _usage_of_v2(directory: Path) -> Usage:
    """Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files"."""
    quota, period = (directory / "cpu.max").read_text().split()
    counters = _counters(directory / "cpu.stat")
    return Usage(
        inode=directory.stat().st_ino,
        quota_us=None if quota == "max" else int(quota),
        period_us=int(period),
        periods=counters["nr_periods"],
        throttled_periods=counters["nr_throttled"],
        throttled_ns=counters["throttled_usec"] * 1000,
        usage_ns=counters["usage_usec"] * 1000,
    )


def _usage_of_v1(directory: Path) -> Usage:
    """Documentation/scheduler/sched-bwc.rst; a quota below 0 is none."""
    quota_us = int((directory / "cpu.cfs_quota_us").read_text())
    counters = _counters(directory / "cpu.stat")
    return Usage(
        inode=directory.stat().st_ino,
        quota_us=quota_us if quota_us >= 0 else None,
        period_us=int((directory / "cpu.cfs_period_us").read_text()),
        periods=counters["nr_periods"],
        throttled_periods=counters["nr_throttled"],
        throttled_ns=counters["throttled_time"],
        usage_ns=_number(directory / "cpuacct.usage"),
    )


def _counters(path: Path) -> Dict[str, int]:
    pairs: List[List[str]] = [line.split() for line in path.read_text().splitlines()]
    return {name: int(value) for name, value in pairs}


def _number(path: Path) -> Optional[int]:
    # Only where both controllers are one hierarchy: elsewhere it is another cgroup's.
    try:
        return int(path.read_text())
    except OSError:
        return None
