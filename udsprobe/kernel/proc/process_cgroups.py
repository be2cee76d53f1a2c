"""The cgroups of one controller that a process is in, of both versions."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Optional, Sequence

from udsprobe.kernel.proc.cgroups import CgroupMount, mounts
from udsprobe.kernel.proc.procfs import Procfs


class ProcessCgroups:
    """Looks them up.

    Args:
        procfs: for the cgroups of a process.
        hierarchies: default: the mounted ones.
        controller: `cpu` (time), `cpuset` (which CPUs), or `pids` (how many threads).
    """

    def __init__(
        self,
        procfs: Procfs,
        hierarchies: Optional[Sequence[CgroupMount]] = None,
        controller: str = "cpu",
    ) -> None:
        self._procfs = procfs
        self._controller = controller
        shown = mounts() if hierarchies is None else hierarchies
        self._mounts = [mount for mount in shown if _has(mount, controller)]

    def directories(self, pid: int) -> Optional[Dict[Path, int]]:
        """Its cgroup and all above, that first → version; None when hidden, empty when it ended."""
        paths = self._procfs.cgroup_paths(pid)
        for mount in self._mounts:
            path = next((paths[names] for names in paths if self._is_of(names, mount)), None)
            directory = mount.directory(path) if path is not None else None
            if directory is not None:
                above = (directory, *directory.parents)
                return {each: mount.version for each in above if _is_below(each, mount.path)}
        # It ended since: there is nothing to hide.
        return None if paths else {}

    def _is_of(self, names: str, mount: CgroupMount) -> bool:
        """Whether a line of /proc/PID/cgroup is of this hierarchy."""
        return not names if mount.version == 2 else self._controller in names.split(",")


def _has(mount: CgroupMount, controller: str) -> bool:
    if mount.version == 1:
        return controller in mount.controllers
    try:
        return controller in (mount.path / "cgroup.controllers").read_text().split()
    except OSError:
        return False


def _is_below(path: Path, root: Path) -> bool:
    return path == root or root in path.parents
