"""A real cpuset of one CPU."""

from __future__ import annotations

import os

from tests.kernel.hierarchy import hierarchy


class Cpuset:
    """A cgroup that allows one CPU, the first that this process may use.

    Attributes:
        path: of its directory. cpu: the number.
    """

    def __init__(self) -> None:
        self._version, self._root = hierarchy("cpuset")
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
