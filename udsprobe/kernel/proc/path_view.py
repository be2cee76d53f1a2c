"""A path as another process sees it: through its root and working directory.

`/proc/PID/root/…` alone does not do: an absolute symbolic link on the way
would lead through the root of whoever reads it. So links are followed here,
as the kernel does for that process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import List, Optional

LINKS_MAX = 40
"""MAXSYMLINKS of the kernel."""


@dataclass(frozen=True)
class PathFound:
    """Where a path leads, links followed.

    Attributes:
        name: the last component, in `directory`.
        file: what is there; None when nothing is.
    """

    directory: os.stat_result
    name: bytes
    file: Optional[os.stat_result]


def look_up(process: bytes, path: bytes) -> Optional[PathFound]:
    """Where `path` leads for a process.

    Args:
        process: its directory below /proc, `b"/proc/4711"`.

    Returns:
        None when no such directory exists, or none that we may see.
    """
    try:
        whole = _followed(process, path)
        if whole is None:
            return None
        directory, _, name = whole.rpartition(b"/")
        return PathFound(os.stat(directory), name, _existing(whole))
    except OSError:
        return None


def resolved(process: bytes, path: bytes) -> Optional[bytes]:
    """`path` as a link-free one that leads to the same place for us, whether it exists or not.

    Args:
        process: its directory below /proc.

    Returns:
        None when it has more links than the kernel follows, or leads to the root itself.

    Raises:
        OSError: the process is gone, or its root is hidden from us.
    """
    return _followed(process, path)


def _existing(path: bytes) -> Optional[os.stat_result]:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _followed(process: bytes, path: bytes) -> Optional[bytes]:
    """`path` below root or cwd of the process, free of links, `.` and `..`."""
    root, cwd = process + b"/root", process + b"/cwd"
    base = root if path.startswith(b"/") else cwd
    names: List[bytes] = []
    ahead, links = _steps(path), 0
    while ahead:
        step = ahead.pop()
        if step == b"..":
            if names:
                names.pop()
            elif not os.path.samefile(base, root):
                base += b"/.."
            continue
        target = _link_target(b"/".join([base, *names, step]))
        if target is None:
            names.append(step)
            continue
        links += 1
        if links > LINKS_MAX:
            return None
        if target.startswith(b"/"):
            base, names = root, []
        ahead += _steps(target)
    return b"/".join([base, *names]) if names else None


def _steps(path: bytes) -> List[bytes]:
    """Components, the last one first."""
    return [step for step in reversed(path.split(b"/")) if step not in (b"", b".")]


def _link_target(path: bytes) -> Optional[bytes]:
    try:
        return os.readlink(path)
    except OSError:
        return None
