"""Control groups: finds their directories and the processes in them.

Knows both hierarchies' layout: v2, and v1 with a mount for each controller.
Reads only. Knows nothing of what a cgroup is used for, except that systemd
names one after each unit.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import FrozenSet, Iterable, List, Optional, Set, Tuple

from udsprobe.kernel.proc.procfs import Procfs

_UNIT_SUFFIXES = (".service", ".scope", ".slice", ".socket", ".mount", ".swap")


@dataclass(frozen=True)
class CgroupMount:
    """A mounted hierarchy.

    Attributes:
        path: of the mount point.
        systemd: whether systemd keeps its units here: v2, or v1's name=systemd.
        version: 1 or 2.
        controllers: of v1, `cpu` …; v2 says it in its own files.
        root: the cgroup that is mounted here; paths in /proc/PID/cgroup begin with it.
    """

    path: Path
    systemd: bool
    version: int = 2
    controllers: FrozenSet[str] = frozenset()
    root: str = "/"

    def directory(self, path: str) -> Optional[Path]:
        """Where the cgroup `path` of /proc/PID/cgroup is; None when it is not below this mount."""
        inside = path if self.root == "/" else path[len(self.root) :]
        if ".." in path.split("/") or not f"{path}/".startswith(f"{self.root.rstrip('/')}/"):
            return None
        return Path(os.path.normpath(f"{self.path}/{inside}"))


def mounts(mountinfo: str = "/proc/self/mountinfo") -> Tuple[CgroupMount, ...]:
    """Mounted cgroup hierarchies, those that systemd uses first."""
    with open(mountinfo, "rb") as file:
        # The kernel escapes space, tab, newline and backslash in names, and nothing else:
        # a directory of anybody's may have `\r` or a no-break space in its name.
        lines = file.read().split(b"\n")
    found = [mount for mount in map(_mount, lines) if mount is not None]
    return tuple(sorted(found, key=lambda mount: not mount.systemd))


def directories(path: str, hierarchies: Iterable[CgroupMount]) -> Tuple[Path, ...]:
    """Directories of the cgroup `path`, absolute or below a hierarchy's root.

    In v1 a cgroup can exist under several controllers. Nothing outside of the
    hierarchies is looked at, whatever `..` the path holds.
    """
    found: List[Path] = []
    for mount in hierarchies:
        root = os.path.normpath(mount.path)
        for candidate in (path, os.path.join(root, path.lstrip("/"))):
            directory = os.path.normpath(candidate)
            inside = directory == root or directory.startswith(root + "/")
            if inside and os.path.isfile(os.path.join(directory, "cgroup.procs")):
                found.append(Path(directory))
    return tuple(dict.fromkeys(found))


def unit_directories(unit: str, hierarchies: Iterable[CgroupMount]) -> Tuple[Path, ...]:
    """Directories named after a systemd unit; `nginx` is `nginx.service`."""
    names = {unit} if unit.endswith(_UNIT_SUFFIXES) else {unit, unit + ".service"}
    found: List[Path] = []
    for mount in hierarchies:
        if mount.systemd:
            for directory, below, _ in os.walk(mount.path):
                found.extend(Path(directory, name) for name in below if name in names)
    return tuple(found)


def processes(directory: Path, procfs: Procfs) -> Set[int]:
    """PIDs in a cgroup and in those below it."""
    pids: Set[int] = set()
    for path, _, _ in os.walk(directory):
        pids.update(_listed(Path(path), procfs))
    return pids


def _listed(directory: Path, procfs: Procfs) -> Set[int]:
    members = _numbers(directory / "cgroup.procs")
    if members is not None:
        return members
    # A threaded cgroup of v2 refuses to list processes, not threads.
    threads = _numbers(directory / "cgroup.threads") or set()
    groups = {procfs.thread_group(tid) for tid in threads}
    return {pid for pid in groups if pid is not None}


def _numbers(path: Path) -> Optional[Set[int]]:
    """None when this kind of cgroup has no such list."""
    try:
        # 0 stands for a process outside of our PID namespace.
        return {int(line) for line in path.read_text().split()} - {0}
    except OSError as error:
        return None if error.errno == errno.EOPNOTSUPP else set()


def _mount(line: bytes) -> Optional[CgroupMount]:
    """None when it is another file system's."""
    mount, _, filesystem = line.partition(b" - ")
    fields, about = mount.split(b" "), filesystem.split(b" ")
    if about[0] not in (b"cgroup", b"cgroup2") or len(fields) < 5:
        return None
    names = frozenset(os.fsdecode(about[-1]).split(","))
    version = 2 if about[0] == b"cgroup2" else 1
    root, path = map(_unescaped, fields[3:5])
    systemd = version == 2 or "name=systemd" in names
    return CgroupMount(Path(path), systemd, version, names if version == 1 else frozenset(), root)


def _unescaped(field: bytes) -> str:
    return os.fsdecode(
        re.sub(rb"\\([0-3][0-7]{2})", lambda found: bytes([int(found.group(1), 8)]), field)
    )
