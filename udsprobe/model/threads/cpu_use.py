"""CPUs of the host in a window, and what targets may have of them, from two samples."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from udsprobe.model.counters import grown, grown_if_measured, percent, ratio
from udsprobe.model.report import Cpu, CpuAffinity, CpuCgroup, HostCpu
from udsprobe.sample import AffinityReading, HostCpuReading, QuotaReading, Sample

_NS_PER_US = 1000


def cpu_use(first: Sample, last: Sample) -> Optional[Cpu]:
    """Who had the CPUs; None when either sample did not look."""
    if first.cpu is None or last.cpu is None:
        return None
    return Cpu(
        host=_host(first.cpu.host, last.cpu.host),
        cgroups=_cgroups(first, last),
        pressure_some_pct=_pressure_pct(first, last),
        affinities=_affinities(first.cpu.affinities, last.cpu.affinities),
    )


def _affinities(
    first: Optional[Sequence[AffinityReading]], last: Optional[Sequence[AffinityReading]]
) -> Optional[List[CpuAffinity]]:
    if last is None:
        return None
    before = {each.others: each for each in first or ()}
    return [_affinity(each, before.get(each.others)) for each in last]


def _others(reading: AffinityReading) -> Tuple[int, int]:
    return reading.others_idle, reading.others_total


def _affinity(reading: AffinityReading, before: Optional[AffinityReading]) -> CpuAffinity:
    # The kernel's own account of idle and iowait can go back a little (proc(5)).
    earlier = (reading.others_idle, reading.others_total) if before is None else _others(before)
    total = max(0, reading.others_total - earlier[1])
    idle = min(max(0, reading.others_idle - earlier[0]), total)
    return CpuAffinity(
        cpus=list(reading.cpus),
        others=list(reading.others),
        others_idle_pct=percent(idle, total),
        cpusets=list(reading.cpusets),
        pids=list(reading.pids),
    )


def _pressure_pct(first: Sample, last: Sample) -> Optional[float]:
    assert first.cpu is not None and last.cpu is not None
    waited_us = grown_if_measured(
        "cpu pressure", last.cpu.pressure_some_us, first.cpu.pressure_some_us
    )
    elapsed_ns = _pressure_read_ns(last) - _pressure_read_ns(first)
    share = percent(waited_us, elapsed_ns / _NS_PER_US)
    # The kernel adds it up by the scheduler's clock, which NTP does not slew (at most 500 ppm).
    return None if share is None else min(share, 100.0)


def _pressure_read_ns(sample: Sample) -> int:
    known = None if sample.cpu is None else sample.cpu.pressure_read_ns
    return sample.monotonic_ns if known is None else known


def _host(first: Optional[HostCpuReading], last: Optional[HostCpuReading]) -> Optional[HostCpu]:
    if first is None or last is None:
        return None
    # The kernel's own account of idle and iowait can go back a little (proc(5)).
    user = max(0, last.user - first.user)
    system = max(0, last.system - first.system)
    steal = max(0, last.steal - first.steal)
    iowait = max(0, last.iowait - first.iowait)
    total = user + system + steal + iowait + max(0, last.idle - first.idle)
    return HostCpu(
        busy_pct=percent(user + system, total),
        user_pct=percent(user, total),
        system_pct=percent(system, total),
        steal_pct=percent(steal, total),
        iowait_pct=percent(iowait, total),
        cpus=last.cpus,
        runnable=last.runnable,
    )


def _cgroups(first: Sample, last: Sample) -> Optional[List[CpuCgroup]]:
    if last.cpu is None or last.cpu.cgroups is None:
        return None
    known = first.cpu.cgroups if first.cpu is not None and first.cpu.cgroups is not None else ()
    before = {reading.path: reading for reading in known}
    return [_cgroup(each, before.get(each.path), first, last) for each in last.cpu.cgroups]


def _cgroup(
    reading: QuotaReading, before: Optional[QuotaReading], first: Sample, last: Sample
) -> CpuCgroup:
    def since(name: str) -> int:
        earlier: int = getattr(before, name) if before is not None else 0
        return grown(f"cgroup {reading.path} {name}", getattr(reading, name), earlier)

    periods, throttled = since("periods"), since("throttled_periods")
    observed_ns = last.monotonic_ns - max(first.monotonic_ns, reading.since_ns)
    return CpuCgroup(
        path=reading.path,
        version=reading.version,
        quota_cpus=None if reading.quota_us is None else reading.quota_us / reading.period_us,
        periods=periods,
        throttled_periods=throttled,
        throttled_us=since("throttled_ns") / _NS_PER_US,
        throttled_pct=percent(throttled, periods),
        usage_cpus=None if reading.usage_ns is None else ratio(since("usage_ns"), observed_ns),
        pids=list(reading.pids),
    )
