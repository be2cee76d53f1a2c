"""File descriptors that run out."""

from __future__ import annotations

from typing import Dict, List, Optional

from udsprobe.model.harm import Harm
from udsprobe.model.report import Report, Syscall, Target
from udsprobe.rules.harm import FAILED
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import CRITICAL, WARNING, Suspect
from udsprobe.rules.thresholds import FD_FULL_WITHIN_S, FD_USE_MIN
from udsprobe.rules.wording import count, duration, evidence, percent


def descriptor_suspects(report: Report) -> List[Suspect]:
    """Calls that failed for want of a descriptor, and processes that come near."""
    failed = exhausted(report)
    fullest = sorted(report.targets, key=lambda t: (-(t.fds.exhausted or 0), -_use(t)))
    near = [target for target in fullest if _is_running_out(target)]
    if failed:
        return [_exhausted_suspect(failed, fullest[0] if fullest else None)]
    return [_near_suspect(target) for target in near[:1]]


def exhausted(report: Report) -> Dict[str, int]:
    """errno → system calls of the targets that found no free descriptor."""
    known = [t.fds.exhausted_by_errno for t in report.targets if t.fds.exhausted_by_errno]
    rows = known or [_out_of_descriptors(row) for row in report.syscalls or []]
    totals: Dict[str, int] = {}
    for errors in rows:
        for error, number in errors.items():
            totals[error] = totals.get(error, 0) + number
    return {error: number for error, number in totals.items() if number}


def _out_of_descriptors(row: Syscall) -> Dict[str, int]:
    return {error: row.errors[error] for error in ("EMFILE", "ENFILE") if error in row.errors}


def _use(target: Target) -> float:
    opened, limit = target.fds.open, target.fds.limit
    return opened / limit if opened is not None and limit else 0.0


def _is_running_out(target: Target) -> bool:
    return _use(target) >= FD_USE_MIN


def _exhausted_suspect(failed: Dict[str, int], target: Optional[Target]) -> Suspect:
    total = sum(failed.values())
    error = max(failed, key=lambda name: failed[name])
    is_system = error == "ENFILE"
    who = "the whole host" if is_system or target is None else f"{target.comm} {target.pid}"
    return Suspect(
        cause="fd-limit",
        name=f"fd-limit:{who}",
        severity=CRITICAL,
        is_pressure=True,
        share_pct=100.0,
        subject=who,
        headline=f"{who} has no file descriptor left, {error}{_at(target)}",
        evidence=tuple(
            evidence(
                "fd_exhausted", n, "calls", f"{count(n, 'call')} failed with {name}", threshold=1
            )
            for name, n in failed.items()
        ),
        actions=choice.descriptors(target, is_host=is_system),
        seen=total,
        harm=Harm(FAILED, None, total, None, f"{count(total, 'call')} got no descriptor"),
    )


def _near_suspect(target: Target) -> Suspect:
    who = f"{target.comm} {target.pid}"
    use = _use(target)
    growth, full_in_s = target.fds.growth_per_s, target.fds.full_in_s
    falling = full_in_s is not None and full_in_s <= FD_FULL_WITHIN_S
    soon = f", the last one in {duration(full_in_s * 1e6)} at this rate" if full_in_s else ""
    facts = [evidence("fd_use", use, "of 1", f"{percent(use)} are open{_at(target)}", FD_USE_MIN)]
    if growth:
        facts.append(evidence("fd_growth_per_s", growth, "fds/s", f"{growth:+.3g} a second"))
    return Suspect(
        cause="fd-limit",
        name=f"fd-limit:{who}",
        severity=CRITICAL if falling else WARNING,
        is_pressure=falling,
        share_pct=100 * use,
        subject=who,
        headline=f"{who} has {percent(use)} of its file descriptors open{_at(target)}{soon}",
        evidence=tuple(facts),
        actions=choice.descriptors(target),
        seen=target.fds.open or 0,
    )


def _at(target: Optional[Target]) -> str:
    if target is None or target.fds.open is None or target.fds.limit is None:
        return ""
    return f" ({target.fds.open:,} of {target.fds.limit:,})"
