"""From what the user names to processes: `--pid --comm --listener --unit --cgroup --all`.

Knows every selector's meaning and its errors. Everything given is united, and
each single selector has to match: a mistyped one is an error, not a smaller
observation than the user believes in.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple

from udsprobe.errors import NoTargetError, NotPermittedError, UsageError
from udsprobe.kernel.proc import cgroups
from udsprobe.kernel.proc.pid_namespaces import outer_pid
from udsprobe.kernel.proc.procfs import Process, Procfs
from udsprobe.kernel.sockets.listener_address import Wanted, parse_listener
from udsprobe.kernel.sockets.sock_diag import NetworkNamespace
from udsprobe.printable import printable

_COMM_BYTES = 15  # TASK_COMM_LEN, less the final NUL
_PID_DIGITS = 10


@dataclass(frozen=True)
class Selectors:
    """What the user asked for; see the contract, §2.

    Attributes:
        pids: from `parse_pids`. everything: `--all`.
        listeners: `PATH`, `@abstract`, `PORT` or `HOST:PORT` each.
        inside: `--in`: `pids` are of the PID namespace that this process is in.
        follow: whether living descendants are targets too.
    """

    pids: Tuple[int, ...] = ()
    comms: Tuple[str, ...] = ()
    listeners: Tuple[str, ...] = ()
    units: Tuple[str, ...] = ()
    cgroups: Tuple[str, ...] = ()
    everything: bool = False
    inside: Optional[int] = None
    follow: bool = True

    @property
    def empty(self) -> bool:
        """Nothing was asked for."""
        given = (self.pids, self.comms, self.listeners, self.units, self.cgroups)
        return not any(given) and not self.everything


@dataclass(frozen=True)
class Chosen:
    """A process to observe, and why.

    Attributes:
        start_ticks: with `pid` it names the process even when PIDs are reused.
        via: `selector`, or `fork` for a descendant of a selected process.
        how: the selectors that matched, `--comm nginx`, or `child of 12`.
    """

    pid: int
    start_ticks: int
    via: str
    how: str


def parse_pids(values: Iterable[str]) -> Tuple[int, ...]:
    """PIDs in the order given; each value may hold several, by comma or space.

    Raises:
        UsageError: something is not a process id.
    """
    pids: List[int] = []
    for value in values:
        for word in value.replace(",", " ").split() or [""]:
            if not _is_pid(word):
                raise UsageError(
                    "usage",
                    f"`{_shown(word)}` is not a process ID",
                    "give --pid one or more process IDs, or a $(pgrep …) that finds some",
                )
            pids.append(int(word))
    return tuple(dict.fromkeys(pids))


def _is_pid(word: str) -> bool:
    digits = word.isascii() and word.isdigit() and len(word) <= _PID_DIGITS
    return digits and int(word) > 0


def resolve(selectors: Selectors, procfs: Optional[Procfs] = None) -> Tuple[Chosen, ...]:
    """The processes that the selectors name now, by PID. Never this process.

    Raises:
        UsageError: no selector, a malformed one, or this process itself.
        NoTargetError: `no-such-pid`, `thread-id`, `kernel-thread`, `no-match`,
            `no-systemd`, `not-activated`.
        NotPermittedError: `owner-hidden`, `hidden-namespace`.
    """
    if selectors.empty:
        raise UsageError(
            "usage",
            "no target was named",
            "add --pid, --comm, --listener, --unit, --cgroup or --all",
        )
    return _Resolution(selectors, procfs or Procfs()).chosen()


class _Resolution:
    """One resolution, on one snapshot of the process list."""

    def __init__(self, selectors: Selectors, procfs: Procfs) -> None:
        self._selectors = selectors
        self._procfs = procfs
        self._own = os.getpid()
        alive = (process for process in procfs.processes() if not process.ended)
        self._alive: Dict[int, Process] = {process.pid: process for process in alive}
        self._ours = procfs.descendants([self._own], self._alive.values()) | {self._own}

    def chosen(self) -> Tuple[Chosen, ...]:
        wanted = self._selectors
        # Parsed before anything is looked up: usage errors come first.
        listeners = [(text, parse_listener(text)) for text in wanted.listeners]
        matches: List[Tuple[str, Set[int]]] = []
        matches += [(f"--pid {pid}", {self._by_pid(self._here(pid))}) for pid in wanted.pids]
        matches += [(f"--comm {name}", self._by_comm(name)) for name in wanted.comms]
        matches += [(f"--listener {text}", self._by_listener(one)) for text, one in listeners]
        matches += [(f"--unit {name}", self._by_unit(name)) for name in wanted.units]
        matches += [(f"--cgroup {path}", self._by_cgroup(path)) for path in wanted.cgroups]
        if wanted.everything:
            matches.append(("--all", self._everything()))
        _refuse_unmatched([how for how, pids in matches if not pids])
        return self._with_descendants(_reasons(matches))

    def _here(self, pid: int) -> int:
        inside = self._selectors.inside
        return pid if inside is None else outer_pid(pid, inside, self._procfs)

    def _by_pid(self, pid: int) -> int:
        if pid == self._own:
            raise UsageError(
                "usage", f"process {pid} is udsprobe itself", "name the process to observe"
            )
        leader = self._procfs.thread_group(pid)
        process = self._alive.get(pid) or self._procfs.process(pid)
        if leader is None or process is None or process.ended:
            raise _no_such_pid(pid, exited=process is not None)
        if leader != pid:
            raise _thread_id(pid, leader, self._procfs.process(leader))
        if process.kernel_thread:
            raise NoTargetError(
                "kernel-thread",
                f"{pid} ({process.comm}) is a kernel thread: it makes no system calls",
                "name a process of the server",
            )
        self._alive[pid] = process
        return pid

    def _by_comm(self, name: str) -> Set[int]:
        raw = os.fsencode(name)
        candidates = self._candidates()
        named = {one.pid for one in candidates if one.comm_raw == raw[:_COMM_BYTES]}
        # Node calls its main thread `MainThread`, gunicorn renames itself …
        return named or {
            one.pid for one in candidates if self._procfs.executable_name(one.pid) == raw
        }

    def _by_listener(self, wanted: Wanted) -> Set[int]:
        with NetworkNamespace() as namespace:
            inodes = wanted.among(namespace.listeners().sockets)
            own = namespace.inode
        if not inodes:
            inodes = self._elsewhere(wanted, own)
        if not inodes:
            return set()
        owners = self._procfs.owners(inodes)
        holders = {pid for inode in inodes for pid in owners.by_inode.get(inode, ())}
        if not holders and owners.hidden:
            raise NotPermittedError(
                "owner-hidden",
                f"a socket listens at {wanted.shown}, but its process is hidden from this user",
                "run as root with every capability, or name the process with --pid",
            )
        return self._servers_among(holders - self._ours, wanted)

    def _servers_among(self, holders: Set[int], wanted: Wanted) -> Set[int]:
        """Without the service manager: all processes of the host descend from it."""
        managers = {pid for pid in holders if self._is_service_manager(pid)}
        if managers and managers == holders:
            raise NoTargetError(
                "not-activated",
                f"only systemd holds {wanted.shown}: its service has not started",
                "start the service, or connect to it once",
            )
        return holders - managers

    def _is_service_manager(self, pid: int) -> bool:
        process = self._alive.get(pid)
        return process is not None and process.comm_raw == b"systemd"

    def _elsewhere(self, wanted: Wanted, own: int) -> Set[int]:
        """Listeners of other network namespaces, such as containers'."""
        others = {self._procfs.netns(one.pid): one.pid for one in self._candidates()}
        inodes: Set[int] = set()
        for netns, pid in others.items():
            if netns not in (None, own):
                inodes |= _listening_in(pid, wanted)
        return inodes

    def _by_unit(self, unit: str) -> Set[int]:
        hierarchies = cgroups.mounts()
        found = cgroups.unit_directories(unit, hierarchies)
        if not found and not os.path.isdir("/run/systemd/system"):
            raise NoTargetError(
                "no-systemd",
                f"--unit {_shown(unit)} needs systemd, which does not run here",
                "use --pid, --comm, --listener or --cgroup",
            )
        return self._in_cgroups(found)

    def _by_cgroup(self, path: str) -> Set[int]:
        return self._in_cgroups(cgroups.directories(path, cgroups.mounts()))

    def _in_cgroups(self, directories: Sequence[Path]) -> Set[int]:
        pids: Set[int] = set()
        for directory in directories:
            pids |= cgroups.processes(directory, self._procfs)
        return pids & {one.pid for one in self._candidates()}

    def _everything(self) -> Set[int]:
        """All but what carries udsprobe's own screen: us, our shell, terminal, ssh."""
        ancestors = set(self._procfs.ancestors(self._own)) - {1}
        return {one.pid for one in self._candidates()} - ancestors

    def _candidates(self) -> Tuple[Process, ...]:
        return tuple(
            one
            for one in self._alive.values()
            if not one.kernel_thread and one.pid not in self._ours
        )

    def _with_descendants(self, reasons: Dict[int, str]) -> Tuple[Chosen, ...]:
        # --all has named every process; what it left out stays out.
        follow = self._selectors.follow and not self._selectors.everything
        found = self._descendants(reasons) if follow else set()
        chosen = [self._choice(pid, "selector", how) for pid, how in reasons.items()]
        chosen += [self._choice(pid, "fork", "") for pid in found - reasons.keys()]
        return tuple(sorted((one for one in chosen if one), key=lambda one: one.pid))

    def _descendants(self, pids: Iterable[int]) -> Set[int]:
        return self._procfs.descendants(pids, self._alive.values()) - self._ours

    def _choice(self, pid: int, via: str, how: str) -> Optional[Chosen]:
        process = self._alive.get(pid) or self._procfs.process(pid)
        if process is None:
            return None
        return Chosen(pid, process.start_ticks, via, how or f"child of {process.ppid}")


def _reasons(matches: Iterable[Tuple[str, Set[int]]]) -> Dict[int, str]:
    reasons: Dict[int, List[str]] = {}
    for how, pids in matches:
        for pid in pids:
            reasons.setdefault(pid, []).append(_shown(how))
    return {pid: ", ".join(how) for pid, how in reasons.items()}


def _listening_in(pid: int, wanted: Wanted) -> Set[int]:
    try:
        with NetworkNamespace.of(pid) as namespace:
            return wanted.among(namespace.listeners().sockets)
    except (ProcessLookupError, NotPermittedError):
        return set()


def _refuse_unmatched(unmatched: Sequence[str]) -> None:
    if unmatched:
        raise NoTargetError(
            "no-match",
            f"no process matches {', '.join(map(_shown, unmatched))}",
            "see `ps -e` for names and `udsprobe listeners` for addresses",
        )


def _no_such_pid(pid: int, *, exited: bool) -> NoTargetError:
    what = f"process {pid} has exited" if exited else f"there is no process {pid}"
    return NoTargetError("no-such-pid", what, "see `ps -e`, or select by --comm or --listener")


def _thread_id(tid: int, leader: int, process: Optional[Process]) -> NoTargetError:
    comm = f" ({process.comm})" if process else ""
    return NoTargetError(
        "thread-id",
        f"{tid} is a thread of process {leader}{comm}",
        f"use --pid {leader}: all of its threads are observed",
    )


def _shown(text: str) -> str:
    return printable(os.fsencode(text))
