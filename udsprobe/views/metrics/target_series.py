"""Targets, their threads and network namespaces, the verdict, and udsprobe itself as series."""

from __future__ import annotations

from collections import Counter
from typing import Dict, Optional, Tuple

from udsprobe.model.report import Report
from udsprobe.model.threads.cgroup_path import placement
from udsprobe.sample import (
    CpuReading,
    NamespaceReading,
    Observation,
    ProbeReading,
    Sample,
    TargetReading,
)
from udsprobe.views.metrics import catalogue as c
from udsprobe.views.metrics.ledger import Labels
from udsprobe.views.metrics.page import Sheet, shown
from udsprobe.views.metrics.series_budget import OTHER

FINDING_KINDS_MAX = 60
STATE_OF_LOSS = ("map_full", "ring_full", "missed")


def write_targets(sheet: Sheet, sample: Sample) -> None:
    """The processes that run."""
    running = [target for target in sample.targets if target.state == "running"]
    sheet.gauge(c.TARGETS, len(running))
    sheet.count(c.TARGETS_EXITED, sample.targets_exited)
    ended: Counter[str] = Counter()
    for row in sample.exits or ():
        ended[row.how] += row.processes
    for how, count in ended.items():
        sheet.count(c.TARGETS_NONZERO_EXITS, count, shown((how,)))
    _write_starts(sheet, sample)
    for target in running:
        _write_target(sheet, target)
    if sample.threads is not None:
        write_threads(sheet, sample)


def _write_starts(sheet: Sheet, sample: Sample) -> None:
    if sample.starts is None:
        return
    sheet.count(c.STARTS, sum(row.started for row in sample.starts))
    refused: Counter[str] = Counter()
    for row in sample.starts:
        refused.update(row.refused)
    for errno, count in refused.items():
        sheet.count(c.STARTS_REFUSED, count, shown((errno,)))


def _write_target(sheet: Sheet, target: TargetReading) -> None:
    pid = write_refused_fds(sheet, target)
    if pid == (OTHER,):
        return
    where = placement(target.cgroup)
    names = (target.comm, where.unit, where.container, where.runtime, where.pod)
    sheet.gauge(c.TARGET_INFO, 1, (*pid, *shown(names)))
    sheet.gauge(c.TARGET_THREADS, target.threads or None, pid)
    sheet.gauge(c.TARGET_FDS, target.fds_open, pid)
    sheet.gauge(c.TARGET_FDS_LIMIT, target.fds_limit, pid)


def write_refused_fds(sheet: Sheet, target: TargetReading) -> Labels:
    """Its calls that got no descriptor; returns its labels."""
    pid = sheet.places["targets"].of(shown((target.pid,)))
    for errno, count in (target.fds_refused or {}).items():
        source = (target.pid, target.start_ticks, errno)
        sheet.count(c.TARGET_FDS_REFUSED, count, (*pid, *shown((errno,))), source)
    return pid


def write_threads(sheet: Sheet, sample: Sample) -> None:
    """Their time by activity, and how many there are."""
    spent: Counter[str] = Counter(sample.exited_activity_ns or {})
    for thread in sample.threads or ():
        spent.update(thread.until(sample.monotonic_ns))
    for activity, spent_ns in spent.items():
        sheet.count(c.THREAD_TIME, spent_ns, (activity,))
    sheet.gauge(c.THREADS, len(sample.threads or ()))


def write_quotas(sheet: Sheet, cpu: CpuReading) -> None:
    """CPU cgroups that have a quota, with targets in them."""
    for reading in cpu.cgroups or ():
        cgroup = sheet.places["cgroups"].of(shown((reading.path,)))
        if cgroup != (OTHER,) and reading.quota_us is not None:
            sheet.gauge(c.CPU_QUOTA, reading.quota_us / reading.period_us, cgroup)
        source = (reading.path, reading.since_ns)
        sheet.count(c.CPU_PERIODS, reading.periods, cgroup, source)
        sheet.count(c.CPU_THROTTLED_PERIODS, reading.throttled_periods, cgroup, source)
        sheet.count(c.CPU_THROTTLED, reading.throttled_ns, cgroup, source)
        if reading.usage_ns is not None:
            sheet.count(c.CPU_USAGE, reading.usage_ns, cgroup, source)


class NamespaceCounters:
    """The kernel counts since the namespace was made; here it is since we came."""

    def __init__(self) -> None:
        self._before: Dict[Tuple[int, str], int] = {}

    def write(self, sheet: Sheet, reading: NamespaceReading) -> None:
        """One network namespace."""
        netns = sheet.places["netns"].of(shown((reading.netns,)))
        if netns != (OTHER,):
            sheet.gauge(c.SOMAXCONN, reading.somaxconn, netns)
        for metric, value in (
            (c.OVERFLOWS, reading.listen_overflows),
            (c.LISTEN_DROPS, reading.listen_drops),
            (c.COOKIES_SENT, reading.syncookies_sent),
        ):
            if value is not None:
                before = self._before.setdefault((reading.netns, metric.dotted), value)
                sheet.count(metric, max(0, value - before), netns, reading.netns)


def write_verdict(sheet: Sheet, report: Report) -> None:
    """What the last interval's report says; nothing where nobody judged."""
    if report.verdict is not None:
        sheet.gauge(c.VERDICT, 1, shown((report.verdict.cause,)))
        sheet.gauge(c.HARM, 1, shown((report.verdict.class_, report.verdict.harm.kind)))
        share_pct = report.verdict.transport_share_pct
        sheet.gauge(c.TRANSPORT_SHARE, None if share_pct is None else share_pct / 100)
    kinds = Counter((each.severity, each.id) for each in report.findings or ())
    for number, (kind, count) in enumerate(sorted(kinds.items())):
        named = shown(kind) if number < FINDING_KINDS_MAX else (kind[0], OTHER)
        sheet.gauge(c.FINDINGS, count, named)


def write_observation(sheet: Sheet, observation: Observation) -> None:
    """What stays the same."""
    seen = observation
    sheet.gauge(c.BUILD, 1, shown((seen.version, seen.strategy, seen.kernel, seen.arch)), max)
    sheet.gauge(c.ATTACH_TIME, seen.attach_ms / 1000)
    for each in seen.measurements:
        sheet.gauge(c.MEASUREMENT, 1, shown((each.name, each.rests_on, each.state)), max)


def write_probe(sheet: Sheet, sample: Sample) -> None:
    """What udsprobe costs and loses."""
    probe = sample.probe
    sheet.count(c.SAMPLES, sample.sequence + 1)
    sheet.gauge(c.SAMPLED_AT, sample.unix_s)
    sheet.count(c.OWN_CPU, probe.cpu_ns)
    sheet.gauge(c.OWN_MEMORY, probe.rss_bytes)
    _count_if_measured(sheet, c.BPF_CPU, probe.bpf_cpu_ns)
    _count_if_measured(sheet, c.BPF_MEASURED, probe.bpf_measured_ns)
    _write_account(sheet, probe)


def _write_account(sheet: Sheet, probe: ProbeReading) -> None:
    sheet.count(c.SEEN, probe.events_seen)
    sheet.count(c.COUNTED, probe.events_counted)
    lost = (probe.lost_map_full, probe.lost_ring_full, probe.lost_missed)
    for reason, count in zip(STATE_OF_LOSS, lost):
        sheet.count(c.LOST, count, (reason,))
    for program, count in probe.missed_by_program.items():
        sheet.count(c.MISSED, count, (program,))
    sheet.count(c.TURNED_AWAY, probe.turned_away)
    sheet.count(c.UNREAD, probe.unread_messages)
    _count_if_measured(sheet, c.UNPLACED, probe.unplaced_failures)


def _count_if_measured(sheet: Sheet, metric: c.Metric, value: Optional[int]) -> None:
    if value is not None:
        sheet.count(metric, value)
