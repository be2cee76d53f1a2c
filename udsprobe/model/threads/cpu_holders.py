"""Which processes held the CPUs that the targets' threads waited for."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from udsprobe.model.report import CpuHolder, CpuPriority, LoweredPriority
from udsprobe.sample import ENDED_PID, Sample
from udsprobe.sample import CpuHolder as Holder

HOLDERS_SHOWN_MAX = 20
_NS_PER_US = 1000


def _before(first: Sequence[Holder], last: Sequence[Holder]) -> Dict[Tuple[int, int], int]:
    """(pid, start) → what had been waited for it, in the row where it is counted now."""
    known = {(each.pid, each.started_ns) for each in last}
    ended = {_kind(e): (e.pid, e.started_ns) for e in last if _is_ended(e)}
    found: Dict[Tuple[int, int], int] = {}
    for each in first:
        who = (each.pid, each.started_ns)
        if who not in known:
            who = ended.get(_kind(each), who)
        found[who] = found.get(who, 0) + each.waited_ns
    return found


def _kind(holder: Holder) -> Tuple[bool, bool]:
    return holder.is_target, holder.is_partner


def _is_ended(holder: Holder) -> bool:
    return holder.pid == ENDED_PID and holder.comm is None


def cpu_holders(first: Sample, last: Sample) -> Optional[List[CpuHolder]]:
    """The longest waited for first; shares are of the window's waits that ended.

    None when not measured.
    """
    if last.cpu_holders is None:
        return None
    before = _before(first.cpu_holders or (), last.cpu_holders)
    rows: List[Tuple[int, Holder]] = []
    for each in last.cpu_holders:
        # One that was counted among the ended can have an entry again, which begins at 0.
        waited_ns = max(0, each.waited_ns - before.get((each.pid, each.started_ns), 0))
        if waited_ns:
            rows.append((waited_ns, each))
    whole_ns = sum(row[0] for row in rows)
    rows.sort(key=lambda row: (-row[0], row[1].pid))
    return [
        CpuHolder(
            who.pid,
            who.comm,
            who.is_target,
            waited_ns / _NS_PER_US,
            100 * waited_ns / whole_ns,
            who.is_partner,
            _priority(who),
            who.is_kernel,
        )
        for waited_ns, who in rows[:HOLDERS_SHOWN_MAX]
    ]


def _priority(who: Holder) -> Optional[CpuPriority]:
    known = who.priority
    if known is None:
        return None
    lowered = [LoweredPriority(each.pid, each.file, each.value) for each in known.lowered]
    return CpuPriority(known.kind, known.file, known.value, lowered)
