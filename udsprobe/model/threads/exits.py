"""How targets ended in a window, but for those that ended with status 0."""

from __future__ import annotations

from typing import List, Optional

from udsprobe.model.growth import by_name, growth
from udsprobe.model.report import Exits
from udsprobe.sample import ExitCounts, Sample

OUT_OF_MEMORY = "out of memory"
"""How a process ended that the kernel killed to get memory back."""
ASKED_TO_END = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"})
"""How processes end that another one asked to: a stop, or a time limit of their master."""


def is_status(how: str) -> bool:
    """Whether it ended by itself, and not by a signal."""
    return how.startswith("status ")


def exit_rows(first: Sample, last: Sample) -> Optional[List[Exits]]:
    """One row for each program and way, most processes first."""
    if first.exits is None or last.exits is None:
        return None
    before = {(each.comm, each.how): each for each in first.exits}
    rows = [_row(each, before.get((each.comm, each.how))) for each in last.exits]
    return sorted((row for row in rows if row.processes), key=lambda row: -row.processes)


def _row(now: ExitCounts, before: Optional[ExitCounts]) -> Exits:
    return Exits(**by_name(growth(f"exits of {now.comm}", now, before), Exits))
