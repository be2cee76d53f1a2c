"""A socket's path as udsprobe's own processes see it, where its owner sees another.

A container names a socket `/run/app.sock`; here that is nothing, or another socket. The same file
may lie in a directory that both have (a bind mount, a volume): that path is found through both
tables of mounts and believed only if it leads to the same file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Tuple

from udsprobe.kernel.proc.path_view import resolved
from udsprobe.kernel.proc.procfs import same_file
from udsprobe.printable import printable

File = Tuple[int, int]


@dataclass(frozen=True)
class _Mount:
    """`device` as mountinfo writes it; the directory `root` of that device is at `point`."""

    device: bytes
    root: bytes
    point: bytes


class HostPaths:
    """Answers once for each socket: neither mounts nor owners of a listener change often.

    Args:
        proc: where procfs is mounted.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = os.fsencode(proc)
        self._found: Dict[int, Optional[str]] = {}

    def of(
        self, inode: int, path: Optional[bytes], file: Optional[File], pid: Optional[int]
    ) -> Optional[str]:
        """The path here, escaped; None where it is the same one, or is not known.

        Args:
            inode: of the socket.
            path: as bound; None or empty, or abstract, is no path.
            file: (device, inode) as sock_diag reports the socket's file.
            pid: a process that holds the socket.
        """
        if not path or path.startswith(b"\0") or file is None or pid is None:
            return None
        if inode not in self._found:
            self._found[inode] = self._look_up(path, file, pid)
        return self._found[inode]

    def _look_up(self, path: bytes, file: File, pid: int) -> Optional[str]:
        if path.startswith(b"/") and same_file(path, *file):
            return None
        owner = self._proc + b"/%d" % pid
        try:
            inside = resolved(owner, path)
        except OSError:
            return None
        if inside is None or not same_file(inside, *file):
            return None
        for candidate in self._shared(owner, inside):
            if same_file(candidate, *file):
                return printable(candidate)
        return printable(inside)

    def _shared(self, owner: bytes, inside: bytes) -> Iterator[bytes]:
        """Where the same directory is mounted for us, most specific mounts first."""
        for base in (owner + b"/root", owner + b"/cwd"):
            if inside.startswith(base + b"/"):
                # A path below the root of the process; mountinfo begins there as well.
                below = os.readlink(base) if base.endswith(b"/cwd") else b""
                path = below.rstrip(b"/") + inside[len(base) :]
                for theirs in _by_depth(_mounts(owner + b"/mountinfo"), path):
                    on_device = theirs.root.rstrip(b"/") + _below(path, theirs.point)
                    for ours in _mounts(self._proc + b"/self/mountinfo"):
                        if ours.device == theirs.device and _is_below(on_device, ours.root):
                            yield ours.point.rstrip(b"/") + _below(on_device, ours.root)
                    return


def _by_depth(mounts: List[_Mount], path: bytes) -> List[_Mount]:
    """Those that the path lies in; a later one covers an earlier one at the same point."""
    covering = [mount for mount in mounts if _is_below(path, mount.point)]
    covering.reverse()
    return sorted(covering, key=lambda mount: -len(mount.point))


def _is_below(path: bytes, directory: bytes) -> bool:
    return path.startswith(directory.rstrip(b"/") + b"/")


def _below(path: bytes, directory: bytes) -> bytes:
    return path[len(directory.rstrip(b"/")) :]


def _mounts(path: bytes) -> List[_Mount]:
    try:
        with open(path, "rb") as file:
            return [_parsed(line) for line in file]
    except OSError:
        return []


def _parsed(line: bytes) -> _Mount:
    _, _, device, root, point = line.split(b" ", 5)[:5]
    return _Mount(device, _unescaped(root), _unescaped(point))


def _unescaped(field: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), field)
