"""The targets by name: what the kernel half says of processes, joined with /proc.

The kernel half lists every living target at every sample; /proc is read only of those that are
new, that changed, or that ran.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import (
    AbstractSet,
    Any,
    Deque,
    Dict,
    FrozenSet,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

from udsprobe.kernel.proc.procfs import Process, Procfs
from udsprobe.kernel.tables.starts_and_exits import ExitBook, StartBook
from udsprobe.printable import printable
from udsprobe.sample import ExitCounts, StartCounts, TargetReading

EXITED_SHOWN_MAX = 64
# A program that runs can write another command line over its own; reading one takes some 10 µs.
CMDLINES_PER_READ = 200
_FDS_UNKNOWN = 0xFFFFFFFF
_NO_LIMIT = (1 << 64) - 1
# Of /proc/PID/stat: USER_HZ is 100 everywhere we run.
NS_PER_TICK = 10_000_000


class TargetNames(NamedTuple):
    """Values of `enum via` and `enum stopped_by` → their names in a report."""

    vias: Mapping[int, str]
    stops: Mapping[int, str]


@dataclass(frozen=True)
class ProcessesSeen:
    """What the kernel half says of processes since the last time.

    Attributes:
        changed: pid → `struct process_record` of living targets, where another than before.
        table: pid → `struct process_state` of all, the dead included, when any may have ended;
            None when none has.
    """

    changed: Mapping[int, Any]
    table: Optional[Mapping[int, Any]] = None


class ProcessCounts(NamedTuple):
    """What is known of a target without /proc: calls that got no descriptor, its program's name."""

    via: int
    program: bytes
    emfile: int = 0
    enfile: int = 0


class ProcRecord(NamedTuple):
    """A living target: what `struct process_record` has where an iterator writes it."""

    started_ns: int
    cgroups: int
    fds_limit: int
    emfile: int
    enfile: int
    parent: int
    threads: int
    fds_open: int
    netns: int
    via: int
    stopped: int
    tracer: int
    comm: bytes
    program: bytes
    exited_ns: int = 0
    started: int = 0
    start_eagain: int = 0
    start_enomem: int = 0


def proc_record(
    process: Process, procfs: Procfs, counted: ProcessCounts, stops: Mapping[str, int]
) -> ProcRecord:
    """By /proc, where no iterator tells.

    Args:
        stops: state in /proc/PID/stat → value of `enum stopped_by`; of a freezer it does not tell.
    """
    limit = procfs.fds_limit(process.pid)
    return ProcRecord(
        started_ns=process.start_ticks * NS_PER_TICK,
        # Nobody tells which are in the same ones: each is looked at by itself.
        cgroups=process.pid,
        fds_limit=_NO_LIMIT if limit is None else limit,
        emfile=counted.emfile,
        enfile=counted.enfile,
        parent=process.ppid,
        threads=process.threads,
        fds_open=_FDS_UNKNOWN,
        netns=procfs.netns(process.pid) or 0,
        via=counted.via,
        stopped=stops.get(process.state, 0),
        tracer=procfs.tracer(process.pid) or 0,
        comm=process.comm_raw,
        program=counted.program,
    )


@dataclass
class _Places:
    """Where living targets are, by what the kernel has for names of it."""

    netns: Dict[int, int] = field(default_factory=dict)
    cgroups: Dict[int, int] = field(default_factory=dict)

    def put(self, pid: int, record: Any) -> bool:
        """Whether it is in other cgroups than before."""
        before = self.cgroups.get(pid, record.cgroups)
        is_new = pid not in self.cgroups
        self.netns[pid], self.cgroups[pid] = record.netns, record.cgroups
        return is_new or before != record.cgroups

    def forget(self, pid: int) -> None:
        self.netns.pop(pid, None)
        self.cgroups.pop(pid, None)


class TargetBook:
    """Remembers every target long enough to report it.

    Args:
        procfs: for command lines and cgroups.
    """

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        self._alive: Dict[int, TargetReading] = {}
        self._held: Dict[int, str] = {}
        self._exited: Deque[TargetReading] = deque(maxlen=EXITED_SHOWN_MAX)
        self._places = _Places()
        self._cgroup_paths: Dict[int, str] = {}
        self._groups: Optional[Dict[int, Set[int]]] = None
        self._cmdlines_due: Dict[int, None] = {}
        # Another program than when it was looked at last, whatever its command line.
        self._languages_due: Set[int] = set()
        self._pids: Optional[FrozenSet[int]] = None
        self._readings: Optional[Tuple[TargetReading, ...]] = None
        self._exits = ExitBook()
        self._starts = StartBook(procfs)

    def expect(self, pid: int, via: str) -> None:
        """Look at a chosen process before it is observed: it may be gone soon."""
        reading = self._procfs.target(pid, via)
        if reading is not None:
            self._alive[pid] = reading
            # Again, once it is observed: what it does until then is not seen.
            self._cmdlines_due[pid] = None
            self._touched()

    def expect_program(self, pid: int, name: str, cmdline: str) -> None:
        """A chosen process will become this program; say so even if it is over at once."""
        self._alive[pid] = replace(self._alive[pid], comm=name, cmdline=cmdline, language=None)
        self._languages_due.add(pid)
        self._held[pid] = name
        self._touched()

    def update(self, seen: ProcessesSeen, ran: AbstractSet[int], names: TargetNames) -> None:
        """Take in the kernel half's word.

        Args:
            ran: processes that did anything since the last time.
        """
        self._cgroup_paths.clear()
        for pid, record in seen.changed.items():
            self._take_in(pid, record, names)
        if seen.table is not None:
            self._take_away(seen.table, names.vias)
        for pid in ran:
            if pid in self._alive:
                self._cmdlines_due[pid] = None
        self._read_cmdlines()

    def alive(self) -> FrozenSet[int]:
        """PIDs of the targets that have not exited."""
        if self._pids is None:
            self._pids = frozenset(self._alive)
        return self._pids

    def readings(self) -> Tuple[TargetReading, ...]:
        """The living by PID, then the last 64 that exited."""
        if self._readings is None:
            living = (self._alive[pid] for pid in sorted(self._alive))
            self._readings = (*living, *self._exited)
        return self._readings

    def exits(self) -> Tuple[ExitCounts, ...]:
        """How those ended that did not end with status 0."""
        return self._exits.counts()

    def starts(self) -> Tuple[StartCounts, ...]:
        """Threads and processes that they started, or could not start."""
        return self._starts.counts(self.alive())

    def netns(self) -> Mapping[int, int]:
        """Inode number of each living target's network namespace; 0 is not known."""
        return self._places.netns

    def by_cgroups(self) -> Mapping[int, AbstractSet[int]]:
        """Living targets that share their cgroups of every hierarchy, under a number for them."""
        if self._groups is None:
            self._groups = {}
            for pid, cgroups in self._places.cgroups.items():
                self._groups.setdefault(cgroups, set()).add(pid)
        return self._groups

    def _touched(self) -> None:
        self._pids = self._readings = None

    def _take_in(self, pid: int, record: Any, names: TargetNames) -> None:
        self._touched()
        start_ticks = record.started_ns // NS_PER_TICK
        known = self._alive.get(pid)
        if known is not None and known.start_ticks not in (None, start_ticks):
            self._end(pid, replace(self._alive.pop(pid), state="exited", **_HELD_BY_NOBODY))
            known = None
        self._starts.take(pid, record.program, record)
        moved = self._places.put(pid, record)
        if moved:
            self._groups = None
        known = known or _unread(pid, record.program, names.vias[record.via])
        if not self._is_awaited(pid, printable(record.program)):
            stopped = names.stops.get(record.stopped) if record.stopped else None
            tracer = self._procfs.process(record.tracer) if record.tracer else None
            found = replace(
                self._reading(pid, record, known, moved=moved),
                stopped=stopped,
                tracer_pid=record.tracer or None,
                tracer_comm=None if tracer is None else tracer.comm,
            )
            self._alive[pid] = found
            if found.cmdline is None or found.comm != known.comm:
                self._cmdlines_due[pid] = None
                self._languages_due.add(pid)

    def _is_awaited(self, pid: int, program: str) -> bool:
        """Whether it has yet to become the program it was started for."""
        if self._held.get(pid, program) != program:
            return True
        self._held.pop(pid, None)
        return False

    def _reading(
        self, pid: int, record: Any, known: TargetReading, *, moved: bool
    ) -> TargetReading:
        comm = printable(record.comm)
        # Whoever starts a program puts it into its cgroup first.
        is_there = known.cgroup is not None and known.comm == comm and not moved
        return TargetReading(
            pid=pid,
            comm=comm,
            cmdline=known.cmdline,
            threads=record.threads,
            state="running",
            fds_open=self._fds_open(pid, record),
            fds_limit=None if record.fds_limit == _NO_LIMIT else record.fds_limit,
            via=known.via,
            fds_refused=_refusals(record),
            start_ticks=record.started_ns // NS_PER_TICK,
            parent=record.parent,
            cgroup=known.cgroup if is_there else self._cgroup(pid, record.cgroups),
            language=known.language,
        )

    def _cgroup(self, pid: int, cgroups: int) -> Optional[str]:
        """Read once for all that are in the same ones now."""
        path = self._cgroup_paths.get(cgroups)
        if path is None:
            path = self._procfs.cgroup(pid)
            if path is not None:
                self._cgroup_paths[cgroups] = path
        return path

    def _fds_open(self, pid: int, record: Any) -> Optional[int]:
        known: int = record.fds_open
        return self._procfs.fds_open(pid) if known == _FDS_UNKNOWN else known

    def _read_cmdlines(self) -> None:
        """Those never read at once, the others in turn."""
        turn = 0
        for pid in list(self._cmdlines_due):
            known = self._alive.get(pid)
            if known is None or pid in self._held:
                del self._cmdlines_due[pid]
                continue
            if known.cmdline is not None:
                turn += 1
                if turn > CMDLINES_PER_READ:
                    continue
            del self._cmdlines_due[pid]
            cmdline = self._procfs.cmdline(pid)
            if cmdline is None or (cmdline == known.cmdline and pid not in self._languages_due):
                continue
            self._languages_due.discard(pid)
            language = self._procfs.language(pid)
            self._alive[pid] = replace(known, cmdline=cmdline, language=language)
            self._touched()

    def _take_away(self, table: Mapping[int, Any], vias: Mapping[int, str]) -> None:
        for pid, process in table.items():
            if process.exited_ns:
                known = self._alive.pop(pid, None)
                known = known or _unread(pid, process.comm, vias[process.via])
                ended = _exited(known, printable(process.comm))
                self._starts.take(pid, process.comm, process, process.parent)
                self._end(pid, replace(ended, fds_refused=_refusals(process)))
                self._exits.take(process)
        for pid in self._alive.keys() - table.keys():
            self._end(pid, replace(self._alive.pop(pid), state="exited", **_HELD_BY_NOBODY))

    def _end(self, pid: int, last: TargetReading) -> None:
        self._exited.append(last)
        self._places.forget(pid)
        self._starts.forget(pid)
        self._languages_due.discard(pid)
        self._groups = None
        self._touched()


_HELD_BY_NOBODY: Mapping[str, Any] = {"stopped": None, "tracer_pid": None, "tracer_comm": None}


def _refusals(counts: Any) -> Dict[str, int]:
    found = {"EMFILE": counts.emfile, "ENFILE": counts.enfile}
    return {name: n for name, n in found.items() if n}


def _exited(known: TargetReading, comm: str) -> TargetReading:
    # Another name is another program since we looked: its command line was never read.
    cmdline = known.cmdline if comm == known.comm else None
    return replace(known, state="exited", comm=comm, cmdline=cmdline, **_HELD_BY_NOBODY)


def _unread(pid: int, comm: bytes, via: str) -> TargetReading:
    return TargetReading(
        pid=pid,
        comm=printable(comm),
        cmdline=None,
        threads=0,
        state="running",
        fds_open=None,
        fds_limit=None,
        via=via,
    )
