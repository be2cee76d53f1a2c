"""Which listener a failed connect() was meant for.

A client names a path as its own root and mount namespace show it, so the path
is looked up there; a missing file is identified by its directory. If the client
has ended, the view of any process in its mount namespace is used.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

from udsprobe.kernel.proc.path_view import look_up
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.sockets.socket_names import SocketName
from udsprobe.kernel.tables.counters import error_name

Place = Tuple[object, ...]


@dataclass(frozen=True)
class UnixConnect:
    """connect() calls of one process to one name, with one result.

    Attributes:
        pid: of the client, which may be gone. mount_ns, net_ns: its namespaces.
        error: errno. count: how often.
        newest_ns: when the newest listener of that moment was first seen; one
            that came later was not meant. None: not known.
    """

    pid: int
    mount_ns: int
    net_ns: int
    error: int
    name: SocketName
    count: int
    newest_ns: Optional[int] = None


@dataclass(frozen=True)
class Bound:
    """A listener and where its name lies.

    Attributes:
        since_ns: when it was first seen; inode numbers do not tell who is newer,
            as each CPU hands out its own.
        pid: a process that sees the path as it was bound.
        file: (device, inode) of its socket file; None when it has none.
    """

    inode: int
    since_ns: int
    pid: int
    net_ns: int
    name: SocketName
    file: Optional[Tuple[int, int]]


class Refusals:
    """Failures by listener, added up over the observation.

    Args:
        procfs: whose `root` links show each process's view.

    Attributes:
        unplaced: failures that could not be matched because the client was
            gone and nobody shared its view, or its path was relative.
    """

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        self._bound: Dict[Place, List[Bound]] = {}
        self._by_listener: Dict[int, Dict[str, int]] = {}
        self._lenders: Dict[int, Optional[int]] = {}
        self.unplaced = 0

    def learn(self, listeners: Iterable[Bound]) -> None:
        """Remember where listeners are, for as long as the observation lasts."""
        for bound in listeners:
            if bound.inode not in self._by_listener:
                self._by_listener[bound.inode] = {}
                for place in self._places_of_listener(bound):
                    at_place = self._bound.setdefault(place, [])
                    at_place.append(bound)
                    at_place.sort(key=lambda one: one.since_ns)

    def add(self, failures: Iterable[UnixConnect]) -> None:
        """Count failures at the listeners they were meant for; others are not ours."""
        self._lenders.clear()
        for failed in failures:
            places = self._places_of_client(failed)
            if places is None:
                self.unplaced += failed.count
                continue
            inode = self._listener_at(places, failed.newest_ns)
            if inode is not None:
                counts, name = self._by_listener[inode], error_name(failed.error)
                counts[name] = counts.get(name, 0) + failed.count

    def of(self, inode: int) -> Mapping[str, int]:
        """errno name → failed connects to this listener's address."""
        return self._by_listener.get(inode, {})

    def _listener_at(self, places: List[Place], newest_ns: Optional[int]) -> Optional[int]:
        # The file says more than the name, which may have been another's before.
        at_places = [self._bound[place] for place in places if place in self._bound]
        for bound in at_places:
            then = [one for one in bound if newest_ns is None or one.since_ns <= newest_ns]
            if then:
                return then[-1].inode
        # Nobody had the address yet: it is the business of the first who got it.
        return at_places[0][0].inode if at_places else None

    def _places_of_listener(self, bound: Bound) -> List[Place]:
        if bound.name.is_abstract:
            return [("abstract", bound.net_ns, bound.name.raw)]
        places = _places_of_path(bound.pid, bound.name.raw)
        if bound.file is not None:
            places.append(("file", *bound.file))
        return places

    def _places_of_client(self, failed: UnixConnect) -> Optional[List[Place]]:
        if failed.name.is_abstract:
            return [("abstract", failed.net_ns, failed.name.raw)]
        viewer = self._viewer(failed)
        if viewer is None:
            return None
        return _places_of_path(viewer, failed.name.raw) or None

    def _viewer(self, failed: UnixConnect) -> Optional[int]:
        if self._mount_ns(failed.pid) == failed.mount_ns:
            return failed.pid
        if not failed.name.raw.startswith(b"/"):
            return None
        if failed.mount_ns not in self._lenders:
            self._lenders[failed.mount_ns] = self._lender(failed.mount_ns)
        return self._lenders[failed.mount_ns]

    def _lender(self, mount_ns: int) -> Optional[int]:
        others = (os.getpid(), *self._procfs.pids()) if mount_ns else ()
        return next((pid for pid in others if self._mount_ns(pid) == mount_ns), None)

    def _mount_ns(self, pid: int) -> Optional[int]:
        try:
            return os.stat(f"/proc/{pid}/ns/mnt").st_ino
        except OSError:
            return None


def _places_of_path(pid: int, path: bytes) -> List[Place]:
    found = look_up(b"/proc/%d" % pid, path)
    if found is None:
        return []
    entry = ("entry", found.directory.st_dev, found.directory.st_ino, found.name)
    if found.file is None:
        return [entry]
    return [("file", _kernel_device(found.file.st_dev), found.file.st_ino), entry]


def _kernel_device(device: int) -> int:
    return os.major(device) << 20 | os.minor(device)
