"""What more is known of threads that have slept for long in processes that have clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

from udsprobe.kernel.proc.asleep import (
    file_lock_holders,
    listed_inodes,
    pipe_written,
    polled_inodes,
    readers_of,
)
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.sample import ConnectionReading, ListenerReading, PeerReading, ThreadActivities

# Shorter waits are soon among those that ended.
LASTED_NS_MIN = 1_000_000_000
# So many sets are looked at in a sample at most: each is three files of /proc.
POLLERS_MAX = 64

_Who = Tuple[int, int]  # pid, tid


class OngoingWaits:
    """Looks at threads that sleep, in `/proc`.

    Args:
        procfs: where processes have their names.
    """

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        # All descriptors of the host are looked through once for a pipe.
        self._readers: Dict[str, List[int]] = {}

    def told(
        self,
        threads: Sequence[ThreadActivities],
        connections: Sequence[ConnectionReading],
        connections_open: int,
        listeners: Sequence[ListenerReading],
        now_ns: int,
    ) -> Tuple[ThreadActivities, ...]:
        """The threads; of those that sleep for long with what they wait for.

        Args:
            connections_open: more than `connections` where some are not listed.
        """
        clients: Dict[int, Set[int]] = {}
        complete = connections if connections_open <= len(connections) else ()
        for each in complete:
            if each.role == "served":
                clients.setdefault(each.pid, set()).add(each.inode)
        upstream = {(each.pid, each.inode) for each in complete if each.role == "upstream"}
        comes = {each.inode for each in listeners}
        asleep = [each for each in threads if each.slept_ns(now_ns) >= LASTED_NS_MIN]
        more: Dict[_Who, ThreadActivities] = {**self._polling(asleep, clients, comes, upstream)}
        more.update(self._locked(asleep))
        more.update(self._at_full_pipes(asleep))
        return tuple(more.get((each.pid, each.tid), each) for each in threads)

    def _polling(
        self,
        asleep: Sequence[ThreadActivities],
        clients: Mapping[int, Set[int]],
        listeners: Set[int],
        upstream: Set[Tuple[int, int]],
    ) -> Dict[_Who, ThreadActivities]:
        """Who polls for no client, nor for a new one, is busy with something else; who polls one
        connection upstream and nothing else waits for its answer."""
        wanted = [each for each in asleep if each.pid in clients and each.call in _LOOKS_AT]
        found = {}
        for each in wanted[:POLLERS_MAX]:
            inodes = _LOOKS_AT[each.call or ""](each.tid)
            if inodes is None:
                continue
            only = min(inodes) if len(inodes) == 1 else 0
            if (each.pid, only) in upstream:
                told = replace(each, kind="recv", inode=only)
            else:
                told = replace(each, polls_clients=bool(inodes & (clients[each.pid] | listeners)))
            found[each.pid, each.tid] = told
        return found

    def _locked(self, asleep: Sequence[ThreadActivities]) -> Dict[_Who, ThreadActivities]:
        wanted = [each for each in asleep if each.kind == "file_lock"]
        holders = file_lock_holders() if wanted else {}
        return {
            (each.pid, each.tid): replace(each, lock_holder=self._named(holders[each.pid]))
            for each in wanted
            if each.pid in holders
        }

    def _at_full_pipes(self, asleep: Sequence[ThreadActivities]) -> Dict[_Who, ThreadActivities]:
        """Who writes to a pipe waits for the one that reads it."""
        writing = [each for each in asleep if each.kind == "pipe" and each.call in _WRITES]
        pipes = [(each, pipe_written(each.tid)) for each in writing[:POLLERS_MAX]]
        self._readers = {
            pipe: self._readers[pipe] if pipe in self._readers else readers_of(pipe)
            for pipe in {pipe for _, pipe in pipes}
            if pipe is not None
        }
        found = ((each, self._only_other(each.pid, pipe)) for each, pipe in pipes)
        return {
            (each.pid, each.tid): replace(each, lock_holder=reader)
            for each, reader in found
            if reader is not None
        }

    def _only_other(self, pid: int, pipe: Optional[str]) -> Optional[PeerReading]:
        """Who reads it, where that is one process; its children may have the pipe as well."""
        others = [each for each in self._readers.get(pipe or "", ()) if each != pid]
        if len(others) != 1:
            return None
        return self._named(others[0])

    def _named(self, pid: int) -> Optional[PeerReading]:
        """None of one that has ended: its children have the lock with the file."""
        process = self._procfs.process(pid)
        return None if process is None or process.ended else PeerReading(pid, process.comm)


_WRITES = frozenset(("write", "writev"))
# How what a call waits for is found.
_LOOKS_AT: Mapping[str, Callable[[int], Optional[FrozenSet[int]]]] = {
    **dict.fromkeys(("epoll_wait", "epoll_pwait", "epoll_pwait2"), polled_inodes),
    **dict.fromkeys(("poll", "ppoll"), listed_inodes),
}
