"""What decides how two processes share a CPU.

The kernel shares CPU time out among cgroups first, by their weights. At the root of all cgroups it
does so among sessions (sched(7), "The autogroup feature"; CONFIG_SCHED_AUTOGROUP is set in the
kernels of Debian and Ubuntu). Only within one of these a nice value counts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Container, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.kernel.proc.cgroups import CgroupMount
from udsprobe.kernel.proc.limits import read_int
from udsprobe.kernel.proc.process_cgroups import ProcessCgroups
from udsprobe.kernel.proc.procfs import Procfs, Session
from udsprobe.printable import printable
from udsprobe.sample import CpuPriority, LoweredPriority

# Of cgroups of version 1 and 2.
_WEIGHT_FILES = {1: "cpu.shares", 2: "cpu.weight"}
TARGETS_LOOKED_AT_MAX = 64
# Of a group that nobody set up (include/linux/sched.h, NICE_0_LOAD; kernel/sched/sched.h,
# CGROUP_WEIGHT_DFL).
_USUAL_WEIGHTS = {"cpu.shares": 1024, "cpu.weight": 100}
USUAL_NICE = 0
_Groups = Dict[Path, Path]


class _Process(NamedTuple):
    """`groups`: cgroups with a weight, the outermost first → the file of it. `session`: None where
    the CPUs are not shared out by it."""

    pid: int
    groups: _Groups
    session: Optional[Session]
    nice: Optional[int]


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
        self._cgroups = ProcessCgroups(procfs, hierarchies)
        self._root = root

    def beside(self, pids: Iterable[int], targets: Iterable[int]) -> Dict[int, CpuPriority]:
        """What decides how much CPU time each has beside the targets, of those where it is known.

        Args:
            targets: those that live.
        """
        has_sessions = read_int(f"{self._root}/sys/kernel/sched_autogroup_enabled") == 1
        theirs = self._looked_at(sorted(targets)[:TARGETS_LOOKED_AT_MAX], has_sessions)
        if not theirs:
            return {}
        return {
            each.pid: self._priority(each, theirs) for each in self._looked_at(pids, has_sessions)
        }

    def _looked_at(self, pids: Iterable[int], has_sessions: bool) -> List[_Process]:
        """Those whose cgroups are known."""
        found = ((pid, self._groups(pid)) for pid in pids)
        return [
            self._process(pid, groups, has_sessions) for pid, groups in found if groups is not None
        ]

    def _process(self, pid: int, groups: _Groups, has_sessions: bool) -> _Process:
        # Only those at the root of all cgroups are in a session that counts.
        session = self._procfs.session(pid) if has_sessions and not groups else None
        process = self._procfs.process(pid)
        return _Process(pid, groups, session, process.nice if process is not None else None)

    def _groups(self, pid: int) -> Optional[_Groups]:
        """None when they are not known."""
        found = self._cgroups.directories(pid)
        if not found:
            return None
        # The root of all cgroups shares with nobody: of version 1 it has the file all the same.
        below = list(found.items())[-2::-1]
        files = {path: path / _WEIGHT_FILES[version] for path, version in below}
        return {path: file for path, file in files.items() if file.exists()}

    def _priority(self, each: _Process, targets: List[_Process]) -> CpuPriority:
        shared = {path for target in targets for path in target.groups}
        file = _apart(each, shared)
        if file is not None:
            return CpuPriority("cgroup", _text(file), read_int(str(file)), _light(each, targets))
        names = {target.session.name for target in targets if target.session is not None}
        if each.session is not None and each.session.name not in names:
            return CpuPriority(
                "session", self._file(each), each.session.nice, self._low_sessions(targets)
            )
        return CpuPriority("nice", None, each.nice, _niced(targets))

    def _low_sessions(self, targets: List[_Process]) -> Tuple[LoweredPriority, ...]:
        low: Dict[Session, LoweredPriority] = {}
        for target in targets:
            session = target.session
            if session is not None and session.nice > USUAL_NICE:
                row = LoweredPriority(target.pid, self._file(target), session.nice)
                low.setdefault(session, row)
        return tuple(low.values())

    def _file(self, process: _Process) -> str:
        return f"{self._root}/{process.pid}/autogroup"


def _apart(process: _Process, shared: Container[Path]) -> Optional[Path]:
    """The weight of the outermost of its cgroups that the others are not in."""
    return next((file for path, file in process.groups.items() if path not in shared), None)


def _light(each: _Process, targets: List[_Process]) -> Tuple[LoweredPriority, ...]:
    low: Dict[Path, LoweredPriority] = {}
    for target in targets:
        file = _apart(target, each.groups)
        weight = read_int(str(file)) if file is not None else None
        if file is not None and weight is not None and weight < _USUAL_WEIGHTS[file.name]:
            low.setdefault(file, LoweredPriority(target.pid, _text(file), weight))
    return tuple(low.values())


def _niced(targets: List[_Process]) -> Tuple[LoweredPriority, ...]:
    return tuple(
        LoweredPriority(target.pid, None, target.nice)
        for target in targets
        if target.nice is not None and target.nice > USUAL_NICE
    )


def _text(file: Path) -> str:
    return printable(os.fsencode(file))
