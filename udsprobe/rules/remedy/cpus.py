"""Which remedies the targets' waits for a CPU call for."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from udsprobe.model.action import Action
from udsprobe.model.report import CpuAffinity, CpuCgroup, CpuHolder, LoweredPriority, Report
from udsprobe.model.threads.cpu_list import cpu_list
from udsprobe.rules.accounts.cpu_holders import foreign_holders, is_own, partner_pids
from udsprobe.rules.remedy.row import Value
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.servers import GENERIC, server_of, target_of

CROWD_SHARE_MIN = 0.2
"""Of what the largest stranger holds: who holds less changes little."""

# Of the files of both versions of cgroups.
_LEAST_WEIGHT = {"cpu.shares": 2, "cpu.weight": 1}
_USUAL_WEIGHT = {"cpu.shares": 1024, "cpu.weight": 100}
# Of the period that the kernel gives a group that asks for no other.
_QUOTA_PERIOD_US = 100_000
_LOWERED = {"nice": "lowered", "session": "lowered-session", "cgroup": "lowered-cgroup"}


def quota(group: CpuCgroup) -> Tuple[Action, ...]:
    """A CPU quota stops the targets."""
    v2 = group.version == 2
    was = (
        f"{group.quota_cpus * _QUOTA_PERIOD_US:.0f} {_QUOTA_PERIOD_US}" if group.quota_cpus else ""
    )
    return remedies(
        "quota",
        quota="max" if v2 else "-1",
        cpu_max=f"{group.path}/{'cpu.max' if v2 else 'cpu.cfs_quota_us'}",
        path=group.path,
        was=was if v2 and was else None,
    )


def confined(limit: CpuAffinity, who: str) -> Tuple[Action, ...]:
    """The targets may not use CPUs that are idle."""
    words = {
        "who": who,
        "cpus": cpu_list(limit.cpus),
        "others": cpu_list(limit.others),
        "all": cpu_list(sorted((*limit.cpus, *limit.others))),
    }
    if not limit.cpusets:
        return remedies("affinity", pids=tuple(limit.pids), **words)
    # A group of version 1 holds those of the groups below it.
    files, back = tuple(limit.cpusets), tuple(reversed(limit.cpusets))
    return remedies("cpuset", files=files, files_back=back, **words)


def too_many_threads(report: Report, cpus: int) -> Tuple[Action, ...]:
    """The targets run more threads than there are CPUs for."""
    server = server_of(report.targets[0] if report.targets else None)
    return remedies("too-many-threads", server, cpus=cpus)


def cpu_holder(report: Report, holder: CpuHolder) -> Tuple[Action, ...]:
    """Somebody else is on the CPU that the targets wait for.

    Only a stranger is slowed down: not who serves the targets, is served by them, or measures
    them.
    """
    if not holder.pid:
        return remedies("short-lived")
    who = f"{holder.comm or 'pid'} {holder.pid}"
    if is_kernels(holder):
        return remedies("kernel-thread", holder=who)
    if not is_stranger(report, holder):
        return remedies("partner", holder=who)
    alike: Dict[str, List[CpuHolder]] = {}
    for each in _crowd(report, holder):
        # Where nobody knows, nice values.
        kind = each.priority.kind if each.priority is not None else "nice"
        alike.setdefault(kind, []).append(each)
    found = [_slowed_down(kind, rows) for kind, rows in alike.items()]
    return (*_raised(report, holder), *(action for actions in found for action in actions))


def culprit(strangers: Sequence[CpuHolder]) -> CpuHolder:
    """Of these, the longest waited for first, the one to name: before a thread of the kernel's
    the first that can be slowed down, where that changes anything."""
    least_us = CROWD_SHARE_MIN * strangers[0].waited_us
    others = (each for each in strangers if each.pid and not is_kernels(each))
    first = next(others, strangers[0])
    return first if is_kernels(strangers[0]) and first.waited_us >= least_us else strangers[0]


def is_kernels(holder: CpuHolder) -> bool:
    """A thread of the kernel's own, which is nobody's to slow down.

    Recordings of versions before do not say; most have such names: ksoftirqd/0, kworker/1:2.
    """
    return "/" in (holder.comm or "") if holder.is_kernel is None else holder.is_kernel


def lowered_beside(holder: CpuHolder) -> Tuple[LoweredPriority, ...]:
    """Targets whose priority is below the usual one, and below the holder's; the lowest first."""
    priority = holder.priority
    if priority is None or not priority.lowered:
        return ()
    # A nice value above another one is less CPU time, a weight is more.
    sign = 1 if priority.kind == "cgroup" else -1
    own = priority.value
    less = [row for row in priority.lowered if own is None or sign * row.value < sign * own]
    return tuple(sorted(less, key=lambda row: sign * row.value))


def _raised(report: Report, holder: CpuHolder) -> Tuple[Action, ...]:
    """Targets get the usual priority back."""
    lowered = lowered_beside(holder)
    if not lowered or holder.priority is None:
        return ()
    lowest, kind = lowered[0], holder.priority.kind
    target = target_of(report, lowest.pid)
    values: Dict[str, Value] = {
        "who": f"{(target and target.comm) or 'pid'} {lowest.pid}",
        "holder": f"{holder.comm or 'pid'} {holder.pid}",
        "was": lowest.value if len({row.value for row in lowered}) == 1 else None,
    }
    if kind == "nice":
        values["pids"] = tuple(row.pid for row in lowered)
        return remedies(_LOWERED[kind], server=GENERIC, **values)
    files = tuple(row.file for row in lowered if row.file is not None)
    values.update(files=files, usual=_USUAL_WEIGHT.get(files[0].rpartition("/")[2]))
    return remedies(_LOWERED[kind], server=GENERIC, **values)


def _slowed_down(kind: str, alike: List[CpuHolder]) -> Tuple[Action, ...]:
    """Strangers that one line slows down, the largest first."""
    who = f"{alike[0].comm or 'pid'} {alike[0].pid}"
    if len(alike) > 1:
        who += f" and {len(alike) - 1} like it"
    known = [each.priority for each in alike if each.priority is not None]
    values = {each.value for each in known}
    was = values.pop() if len(known) == len(alike) and len(values) == 1 else None
    if kind == "nice":
        pids = tuple(each.pid for each in alike)
        return remedies("stranger", holder=who, holder_pids=pids, was=was)
    files = tuple(dict.fromkeys(each.file for each in known if each.file is not None))
    if kind == "session":
        return remedies("stranger-session", holder=who, files=files, was=was)
    # A host has its CPU weights in cgroups of one version.
    least = _LEAST_WEIGHT[files[0].rpartition("/")[2]]
    return remedies("stranger-cgroup", holder=who, files=files, least=least, was=was)


def _crowd(report: Report, largest: CpuHolder) -> Tuple[CpuHolder, ...]:
    """The strangers to slow down: that one, and those that hold about as much.

    Of many one alone leaves its time to the others.
    """
    like_it = (
        each
        for each in foreign_holders(report)
        if each.pid != largest.pid
        and each.waited_us >= CROWD_SHARE_MIN * largest.waited_us
        and each.pid
        and not is_kernels(each)
        and is_stranger(report, each)
    )
    return (largest, *like_it)


def is_stranger(report: Report, holder: CpuHolder) -> bool:
    """It has no part in the requests of the targets, nor in this observation."""
    if holder.is_target or holder.pid in {each.pid for each in report.targets}:
        return False
    if holder.pid in partner_pids(report) or is_own(holder):
        return False
    return not any(holder.pid in (row.pids or ()) for row in report.listeners or [])
