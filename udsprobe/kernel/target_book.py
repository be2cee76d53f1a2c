"""The targets by name: what the kernel half says of processes, joined with /proc."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, Deque, Dict, FrozenSet, Mapping, Tuple

from udsprobe.kernel.procfs import Procfs
from udsprobe.printable import printable
from udsprobe.sample import TargetReading

EXITED_SHOWN_MAX = 64


class TargetBook:
    """Remembers every target long enough to report it.

    Args:
        procfs: for command lines and descriptors.
    """

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        self._alive: Dict[int, TargetReading] = {}
        self._held: Dict[int, str] = {}
        self._exited: Deque[TargetReading] = deque(maxlen=EXITED_SHOWN_MAX)

    def expect(self, pid: int, via: str) -> None:
        """Look at a chosen process before it is observed: it may be gone soon."""
        reading = self._procfs.target(pid, via)
        if reading is not None:
            self._alive[pid] = reading

    def expect_program(self, pid: int, name: str, cmdline: str) -> None:
        """A chosen process will become this program; say so even if it is over at once."""
        self._alive[pid] = replace(self._alive[pid], comm=name, cmdline=cmdline)
        self._held[pid] = name

    def update(self, processes: Mapping[int, Any], vias: Mapping[int, str]) -> None:
        """Take in the kernel half's word.

        Args:
            processes: pid → `struct process_state`.
            vias: value of `enum via` → its name.
        """
        for pid, process in processes.items():
            known = self._alive.get(pid) or _unread(pid, process, vias[process.via])
            if process.exited_ns:
                self._alive.pop(pid, None)
                ended = _exited(known, printable(process.comm))
                self._exited.append(_with_refusals(ended, process))
            elif self._held.get(pid, printable(process.comm)) == printable(process.comm):
                self._held.pop(pid, None)
                # Whoever starts a program puts it into its cgroup first.
                cgroup = known.cgroup if known.comm == printable(process.comm) else None
                found = self._procfs.target(pid, known.via, cgroup) or known
                self._alive[pid] = _with_refusals(found, process)
        for pid in set(self._alive) - set(processes):
            self._exited.append(replace(self._alive.pop(pid), state="exited"))

    def alive(self) -> FrozenSet[int]:
        """PIDs of the targets that have not exited."""
        return frozenset(self._alive)

    def readings(self) -> Tuple[TargetReading, ...]:
        """The living by PID, then the last 64 that exited."""
        return (*(self._alive[pid] for pid in sorted(self._alive)), *self._exited)


def _with_refusals(reading: TargetReading, process: Any) -> TargetReading:
    counts = {"EMFILE": process.emfile, "ENFILE": process.enfile}
    return replace(reading, fds_refused={name: n for name, n in counts.items() if n})


def _exited(known: TargetReading, comm: str) -> TargetReading:
    # Another name is another program since we looked: its command line was never read.
    cmdline = known.cmdline if comm == known.comm else None
    return replace(known, state="exited", comm=comm, cmdline=cmdline)


def _unread(pid: int, process: Any, via: str) -> TargetReading:
    return TargetReading(
        pid=pid,
        comm=printable(process.comm),
        cmdline=None,
        threads=0,
        state="running",
        fds_open=None,
        fds_limit=None,
        via=via,
    )
