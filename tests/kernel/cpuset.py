"""A real cpuset of one CPU."""

from __future__ import annotations

import os
from pathlib import Path

from tests.conftest import give_up
from udsprobe.kernel.proc.cgroups import mounts


class Cpuset:
    """A cgroup that allows one CPU, the first that this process may use.

    Attributes:
        path: of its directory. cpu: the number.
    """

    def __init__(self) -> None:
        self._version, self._root = _hierarchy()
        self.path = self._root / f"udsprobe-test-{os.getpid()}"
        self.cpu = min(os.sched_getaffinity(0))

    def __enter__(self) -> Cpuset:
        self.path.mkdir()
        if self._version == 1:
            # Without memory nodes nobody may enter.
            (self.path / "cpuset.mems").write_text((self._root / "cpuset.mems").read_text())
        (self.path / "cpuset.cpus").write_text(str(self.cpu))
        return self

    def add(self, pid: int) -> None:
        """A process, with all its threads."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def __exit__(self, *_: object) -> None:
        self.path.rmdir()


def _hierarchy() -> tuple[int, Path]:
    """Version 2 if its children may have CPU sets, otherwise version 1."""
    for mount in mounts():
        enabled = mount.path / "cgroup.subtree_control"
        if mount.version == 2 and "cpuset" in enabled.read_text().split():
            return 2, mount.path
        if mount.version == 1 and "cpuset" in mount.controllers:
            return 1, mount.path
    give_up("no cgroup hierarchy with a cpuset controller is mounted")
    raise AssertionError
