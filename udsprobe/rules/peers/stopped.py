"""Targets that may not run at all: stopped by a signal, by a debugger, or frozen."""

from __future__ import annotations

from typing import Collection, Optional

from udsprobe.model.report import Report, Target

STOPPED_WORDS = {
    "signal": "is stopped by a signal",
    "tracer": "is stopped by a debugger",
    "freezer": "is frozen by its cgroup (docker pause, systemctl freeze)",
}


def stopped_of(report: Report, pids: Collection[int]) -> Optional[Target]:
    """The first of these processes, where none of those that are targets may run; else None."""
    living = [each for each in report.targets if each.pid in pids and each.state == "running"]
    held = [each for each in living if each.stopped in STOPPED_WORDS]
    return held[0] if held and len(held) == len(living) else None


def stopped_words(target: Target) -> str:
    """`node 4711 is stopped by a signal`."""
    return f"{target.comm} {target.pid} {STOPPED_WORDS[target.stopped or 'signal']}"
