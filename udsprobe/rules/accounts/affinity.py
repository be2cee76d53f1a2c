"""Which CPUs the targets may use, and whether that keeps them waiting beside idle ones."""

from __future__ import annotations

from typing import FrozenSet, List, Optional

from udsprobe.model.report import CpuAffinity, Report
from udsprobe.rules.thresholds import HOLDER_SHARE_MIN, IDLE_ELSEWHERE_PCT_MIN


def allowed_cpus(report: Report, pids: Optional[FrozenSet[int]] = None) -> int:
    """How many CPUs these processes may use, all together.

    Args:
        pids: None for all targets.
    """
    asked = {target.pid for target in report.targets} if pids is None else pids
    rows = [row for row in _affinities(report) if not asked.isdisjoint(row.pids)]
    if not rows or not asked <= {pid for row in rows for pid in row.pids}:
        return report.host.cpus
    return len({cpu for row in rows for cpu in row.cpus})


def confinement(report: Report) -> Optional[CpuAffinity]:
    """What keeps targets on CPUs that they wait for, while others are idle most of the time.

    None unless it does so for most of the time in which the targets wait for a CPU.
    """
    processes = report.time.processes if report.time is not None else []
    waited_s = {row.pid: row.share.get("runq", 0.0) * row.observed_s for row in processes}
    whole_s = sum(waited_s.values())

    def behind(row: CpuAffinity) -> float:
        return sum(waited_s.get(pid, 0.0) for pid in row.pids)

    most = max(_idle_elsewhere(report), key=behind, default=None)
    if most is None or not whole_s or behind(most) < HOLDER_SHARE_MIN * whole_s:
        return None
    return most


def idle_beside(report: Report, pid: int) -> Optional[CpuAffinity]:
    """What keeps a process, whether it waits or not, from CPUs that are idle most of the time."""
    return next((row for row in _idle_elsewhere(report) if pid in row.pids), None)


def _idle_elsewhere(report: Report) -> List[CpuAffinity]:
    return [
        row for row in _affinities(report) if (row.others_idle_pct or 0.0) >= IDLE_ELSEWHERE_PCT_MIN
    ]


def _affinities(report: Report) -> List[CpuAffinity]:
    return (report.cpu.affinities if report.cpu is not None else None) or []
