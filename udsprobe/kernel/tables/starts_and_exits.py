"""What targets started and could not start, and how they ended, added up by program."""

from __future__ import annotations

from dataclasses import replace
from signal import Signals
from typing import AbstractSet, Any, Dict, Optional, Tuple

from udsprobe.kernel.proc.limits import start_limit
from udsprobe.kernel.proc.process_cgroups import ProcessCgroups
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.printable import printable
from udsprobe.sample import ExitCounts, StartCounts, StartLimit

KINDS_MAX = 64
PIDS_MAX = 64
OTHERS = "others"
OUT_OF_MEMORY = "out of memory"


class ExitBook:
    """Adds up processes that ended otherwise than with status 0."""

    def __init__(self) -> None:
        self._counts: Dict[Tuple[str, str], ExitCounts] = {}

    def take(self, process: Any) -> None:
        """Of a `struct process_state` that has exited."""
        how = way(process.exit_code, bool(process.out_of_memory))
        if not how:
            return
        key = (printable(process.comm), how)
        if key not in self._counts and len(self._counts) >= KINDS_MAX:
            key = (OTHERS, how)
        before = self._counts.get(key) or ExitCounts(*key, processes=0, served=0, unanswered=0)
        self._counts[key] = replace(
            before,
            processes=before.processes + 1,
            served=before.served + process.served,
            unanswered=before.unanswered + process.unanswered,
        )

    def counts(self) -> Tuple[ExitCounts, ...]:
        """Since the beginning, in the order in which they were met."""
        return tuple(self._counts.values())


class StartBook:
    """Adds up threads and processes that were started, and that were not.

    Args:
        procfs: for the limits of a process that is refused one.
    """

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        self._known: Dict[int, Tuple[int, int, int]] = {}
        self._counts: Dict[str, StartCounts] = {}
        self._cgroups: Optional[ProcessCgroups] = None

    def take(self, pid: int, comm: bytes, counted: Any, parent: Optional[int] = None) -> None:
        """Of a `struct process_record`, or of a `struct process_state`.

        Args:
            parent: of one that has exited, which lives perhaps and is under the same limits.
        """
        now = (counted.started, counted.start_eagain, counted.start_enomem)
        before = self._known.get(pid, (0, 0, 0))
        started, eagain, enomem = (max(0, n - was) for n, was in zip(now, before))
        if now == before:
            return
        self._known[pid] = now
        name = printable(comm)
        if name not in self._counts and len(self._counts) >= KINDS_MAX:
            name = OTHERS
        row = self._counts.get(name) or StartCounts(name, 0, {})
        row = replace(row, started=row.started + started)
        if eagain or enomem:
            row = self._refused(row, pid if parent is None else parent)
        for errno, more in (("EAGAIN", eagain), ("ENOMEM", enomem)):
            if more:
                refused = {**row.refused, errno: row.refused.get(errno, 0) + more}
                row = replace(row, refused=refused)
        self._counts[name] = row

    def _refused(self, row: StartCounts, pid: int) -> StartCounts:
        """With the limit that `pid` is under."""
        pids = tuple(sorted({*row.pids, pid}))[-PIDS_MAX:]
        return replace(row, pids=pids, limit=self._limit(pid) or row.limit)

    def _limit(self, pid: int) -> Optional[StartLimit]:
        if self._cgroups is None:
            self._cgroups = ProcessCgroups(self._procfs, controller="pids")
        return start_limit(pid, self._procfs, self._cgroups)

    def forget(self, pid: int) -> None:
        """It has exited, and what it counted was taken."""
        self._known.pop(pid, None)

    def counts(self, alive: AbstractSet[int]) -> Tuple[StartCounts, ...]:
        """Since the beginning, in the order in which they were met."""
        return tuple(
            replace(row, pids=tuple(pid for pid in row.pids if pid in alive))
            for row in self._counts.values()
        )


def way(exit_code: int, out_of_memory: bool) -> str:
    """What a status of wait4() says; "" for status 0.

    Args:
        out_of_memory: the kernel chose the process to get memory back.
    """
    signal, status = exit_code & 0x7F, exit_code >> 8 & 0xFF
    if signal:
        return OUT_OF_MEMORY if out_of_memory else _signal_name(signal)
    return f"status {status}" if status else ""


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:  # of the real-time ones, which have none but the first and the last
        return f"signal {number}"
