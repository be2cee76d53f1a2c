"""What decides how two processes share a CPU.

The kernel shares CPU time out among cgroups first, by their weights. At the root of all cgroups it
does so among sessions (sched(7), "The autogroup feature"; CONFIG_SCHED_AUTOGROUP is set in the
kernels of Debian and Ubuntu). Only within one of these a nice value counts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence

from udsprobe.kernel.proc.cgroups import CgroupMount
from udsprobe.kernel.proc.cpu_cgroups import CpuCgroups
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.printable import printable
from udsprobe.sample import CpuPriority

# Of cgroups of version 1 and 2.
_WEIGHT_FILES = {1: "cpu.shares", 2: "cpu.weight"}
# Word of /proc/PID/stat behind the name (proc_pid_stat(5), field 19).
_NICE_WORD = 16
TARGETS_LOOKED_AT_MAX = 64


class _Session(NamedTuple):
    name: str
    nice: int


class CpuPriorities:
    """Looks at two processes.

    Args:
        procfs: for cgroups.
        hierarchies: default: the mounted ones. root: of /proc.
    """

    def __init__(
        self,
        procfs: Procfs,
        hierarchies: Optional[Sequence[CgroupMount]] = None,
        root: str = "/proc",
    ) -> None:
        self._cgroups = CpuCgroups(procfs, hierarchies)
        self._root = Path(root)

    def beside(self, pid: int, targets: Iterable[int]) -> Optional[CpuPriority]:
        """What decides how much CPU time a process has beside these others; None when not known.

        Args:
            targets: those that live.
        """
        looked_at = sorted(targets)[:TARGETS_LOOKED_AT_MAX]
        own = self._groups(pid)
        theirs = [found for found in map(self._groups, looked_at) if found is not None]
        if own is None or not theirs:
            return None
        shared = {path for groups in theirs for path in groups}
        apart = next((path for path in own if path not in shared), None)
        if apart is not None:
            file = own[apart]
            return CpuPriority("cgroup", printable(os.fsencode(file)), _number(_text(file)))
        return self._within_a_group(pid, looked_at, is_root=not own)

    def _groups(self, pid: int) -> Optional[Dict[Path, Path]]:
        """Those with a weight, the outermost first → the file of it; None when not known."""
        found = self._cgroups.directories(pid)
        if not found:
            return None
        # The root of all cgroups shares with nobody: of version 1 it has the file all the same.
        below = list(found.items())[-2::-1]
        files = {path: path / _WEIGHT_FILES[version] for path, version in below}
        return {path: file for path, file in files.items() if file.exists()}

    def _within_a_group(self, pid: int, targets: List[int], *, is_root: bool) -> CpuPriority:
        session = self._session(pid) if is_root else None
        if session is not None and session.name not in {
            found.name for found in map(self._session, targets) if found is not None
        }:
            return CpuPriority("session", f"{self._root}/{pid}/autogroup", session.nice)
        return CpuPriority("nice", None, self._nice(pid))

    def _session(self, pid: int) -> Optional[_Session]:
        """None where there is no sharing among sessions."""
        if _number(_text(self._root / "sys/kernel/sched_autogroup_enabled")) != 1:
            return None
        # kernel/sched/autogroup.c, proc_sched_autogroup_show_task: "/autogroup-25 nice 0".
        words = _text(self._root / str(pid) / "autogroup").split()
        nice = _number(words[2]) if len(words) == 3 else None
        return None if nice is None else _Session(words[0], nice)

    def _nice(self, pid: int) -> Optional[int]:
        words = _text(self._root / str(pid) / "stat").rpartition(")")[2].split()
        return _number(words[_NICE_WORD]) if len(words) > _NICE_WORD else None


def _text(path: Path) -> str:
    """Empty when it is gone or hidden."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _number(text: str) -> Optional[int]:
    try:
        return int(text)
    except ValueError:
        return None
