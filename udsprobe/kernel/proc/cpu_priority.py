"""What decides how two processes share a CPU.

The kernel shares CPU time out among cgroups first, by their weights. At the root of all cgroups it
does so among sessions (sched(7), "The autogroup feature"; CONFIG_SCHED_AUTOGROUP is set in the
kernels of Debian and Ubuntu). Only within one of these a nice value counts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Iterable, Optional, Sequence, Set

from udsprobe.kernel.proc.cgroups import CgroupMount
from udsprobe.kernel.proc.cpu_cgroups import CpuCgroups
from udsprobe.kernel.proc.limits import read_int
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.printable import printable
from udsprobe.sample import CpuPriority

# Of cgroups of version 1 and 2.
_WEIGHT_FILES = {1: "cpu.shares", 2: "cpu.weight"}
TARGETS_LOOKED_AT_MAX = 64
_Groups = Dict[Path, Path]


class CpuPriorities:
    """Looks at processes beside others.

    Args:
        procfs: for cgroups, sessions and nice values.
        hierarchies: default: the mounted ones. root: of /proc.
    """

    def __init__(
        self,
        procfs: Procfs,
        hierarchies: Optional[Sequence[CgroupMount]] = None,
        root: str = "/proc",
    ) -> None:
        self._procfs = procfs
        self._cgroups = CpuCgroups(procfs, hierarchies)
        self._root = root

    def beside(self, pids: Iterable[int], targets: Iterable[int]) -> Dict[int, CpuPriority]:
        """What decides how much CPU time each has beside the targets, of those where it is known.

        Args:
            targets: those that live.
        """
        looked_at = sorted(targets)[:TARGETS_LOOKED_AT_MAX]
        theirs = [groups for groups in map(self._groups, looked_at) if groups is not None]
        if not theirs:
            return {}
        shared = {path for groups in theirs for path in groups}
        sessions = self._sessions(looked_at)
        found = {pid: self._groups(pid) for pid in pids}
        return {
            pid: self._by_cgroup(own, shared) or self._within_a_cgroup(pid, own, sessions)
            for pid, own in found.items()
            if own is not None
        }

    def _groups(self, pid: int) -> Optional[_Groups]:
        """Those with a weight, the outermost first → the file of it; None when not known."""
        found = self._cgroups.directories(pid)
        if not found:
            return None
        # The root of all cgroups shares with nobody: of version 1 it has the file all the same.
        below = list(found.items())[-2::-1]
        files = {path: path / _WEIGHT_FILES[version] for path, version in below}
        return {path: file for path, file in files.items() if file.exists()}

    def _sessions(self, pids: Iterable[int]) -> Optional[Set[str]]:
        """Their names; None where the CPUs are not shared out among sessions."""
        if read_int(f"{self._root}/sys/kernel/sched_autogroup_enabled") != 1:
            return None
        found = map(self._procfs.session, pids)
        return {session.name for session in found if session is not None}

    def _by_cgroup(self, own: _Groups, shared: Set[Path]) -> Optional[CpuPriority]:
        file = next((file for path, file in own.items() if path not in shared), None)
        if file is None:
            return None
        return CpuPriority("cgroup", printable(os.fsencode(file)), read_int(str(file)))

    def _within_a_cgroup(self, pid: int, own: _Groups, sessions: Optional[Set[str]]) -> CpuPriority:
        # Only those at the root of all cgroups are in one that counts.
        session = self._procfs.session(pid) if sessions is not None and not own else None
        if session is not None and session.name not in (sessions or ()):
            return CpuPriority("session", f"{self._root}/{pid}/autogroup", session.nice)
        process = self._procfs.process(pid)
        return CpuPriority("nice", None, process.nice if process is not None else None)
