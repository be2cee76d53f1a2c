"""What /proc and the cgroup files say of CPUs: of the host, and what targets may have of them.

Knows the text of /proc/stat and /proc/pressure/cpu. Scans nothing.
"""

from __future__ import annotations

import os
import time
from typing import AbstractSet, Dict, Mapping, Optional, Sequence, Tuple

from udsprobe.kernel.proc.cpu_affinity import AffinityTable, CpuTime
from udsprobe.kernel.proc.cpu_quota import QuotaTable
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.sample import AffinityReading, CpuReading, HostCpuReading

_READ_BYTES = 1 << 20


class CpuFiles:
    """Files that stay open, read once a sample.

    Args:
        procfs: for the targets' cgroups.
        root: of /proc.
    """

    def __init__(self, procfs: Procfs, root: str = "/proc") -> None:
        self._quotas = QuotaTable(procfs)
        self._affinities = AffinityTable(procfs)
        self._stat = _opened(f"{root}/stat")
        self._pressure = _opened(f"{root}/pressure/cpu")

    def read(self, groups: Mapping[int, AbstractSet[int]], now_ns: int) -> CpuReading:
        """CPUs now.

        Args:
            groups: the living targets, as `QuotaTable.read` takes them.
            now_ns: CLOCK_MONOTONIC of this sample.
        """
        pressure = pressure_some_us(_text(self._pressure))
        pressure_read_ns = time.monotonic_ns()
        stat = _text(self._stat)
        return CpuReading(
            host=host_cpus(stat),
            pressure_some_us=pressure,
            cgroups=self._quotas.read(groups, now_ns),
            pressure_read_ns=pressure_read_ns,
            affinities=self._affinities_of(groups, stat),
        )

    def _affinities_of(
        self, groups: Mapping[int, AbstractSet[int]], stat: str
    ) -> Optional[Tuple[AffinityReading, ...]]:
        cpus = cpu_times(stat)
        if not cpus:
            return None
        return self._affinities.read({pid for pids in groups.values() for pid in pids}, cpus)

    def close(self) -> None:
        """Let go of the files. May be called twice."""
        for descriptor in (self._stat, self._pressure):
            if descriptor is not None:
                os.close(descriptor)
        self._stat = self._pressure = None


def host_cpus(text: str) -> Optional[HostCpuReading]:
    """/proc/stat; None when it is empty, or not it. Guests' time is in `user` already."""
    try:
        return _host_cpus(text)
    except (ValueError, IndexError):
        return None


def _host_cpus(text: str) -> Optional[HostCpuReading]:
    # The line of interrupts has a number for each of them.
    lines = [line.split() for line in text.splitlines() if line.startswith(("cpu", "procs_"))]
    total = next((words for words in lines if words[:1] == ["cpu"]), None)
    running = next((words for words in lines if words[:1] == ["procs_running"]), None)
    if total is None or running is None:
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, total[1:9])
    return HostCpuReading(
        user=user + nice,
        system=system + irq + softirq,
        idle=idle,
        iowait=iowait,
        steal=steal,
        cpus=sum(1 for words in lines if words and words[0][:3] == "cpu") - 1,
        runnable=int(running[1]),
    )


def cpu_times(text: str) -> Dict[int, CpuTime]:
    """Each online CPU of /proc/stat; empty when it is not it."""
    try:
        lines = [line.split() for line in text.splitlines() if line.startswith("cpu")]
        # The last two are in the first two already (proc_stat(5), guest).
        return {int(words[0][3:]): _time(words[1:9]) for words in lines if words[0] != "cpu"}
    except (ValueError, IndexError):
        return {}


def _time(words: Sequence[str]) -> CpuTime:
    spent = [int(word) for word in words]
    return CpuTime(spent[3] + spent[4], sum(spent))


def pressure_some_us(text: str) -> Optional[int]:
    """`some … total=` of a PSI file; None when it is empty."""
    for line in text.splitlines():
        if line.startswith("some "):
            total = line.rpartition("total=")[2]
            return int(total) if total.isascii() and total.isdigit() else None
    return None


def _opened(path: str) -> Optional[int]:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _text(descriptor: Optional[int]) -> str:
    """Empty when it cannot be read: PSI that is compiled in and switched off."""
    if descriptor is None:
        return ""
    try:
        return os.pread(descriptor, _READ_BYTES, 0).decode("ascii", "replace")
    except OSError:
        return ""
