"""Who ended the waits of targets' threads (bpf/wakers.bpf.h), by name."""

from __future__ import annotations

import ctypes
import os
from dataclasses import replace
from pathlib import Path
from typing import (
    Any,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

from udsprobe.kernel.abilities import preempt_count
from udsprobe.kernel.abilities.plan import WAKER_PROGRAM
from udsprobe.kernel.abilities.syscall_table import SyscallTable
from udsprobe.kernel.objects.alongside import Work
from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.tables.counters import Counters, call_name, enum_names
from udsprobe.kernel.tables.cpu_holders import OUTSIDE
from udsprobe.printable import printable
from udsprobe.sample import WaitCounts, WaitPart

# Each is in every sample. When there are more, those of or by threads that ended leave.
ROWS_KEPT_MAX = 1024
# The kernel's map holds 8192.
LOOK_ABOVE_MAX = 6000
# Of one thread's waits of one kind, when processes that ended are told by name only.
PROGRAMS_KEPT_MAX = 3
_TASKS = Path("/proc")

_Waiter = Tuple[int, int, int]  # pid, tid, started_ns
_NOBODY: _Waiter = (0, 0, 0)


class _Program(NamedTuple):
    """Of authors that ended: what is kept of them."""

    comm: str
    is_target: bool


class _Rest(NamedTuple):
    """A row of several: of one kind, of one thread or none, and of one program or none."""

    waiter: _Waiter
    kind: str
    program: Optional[_Program] = None


class Wakers:
    """What it takes that a program at the tracepoint can tell interrupts from threads.

    Args:
        attached: names of the event programs to be attached.
    """

    def __init__(self, attached: FrozenSet[str]) -> None:
        self._attached = attached
        self._distance: Optional[int] = None

    def besides(self, work: Work) -> Work:
        """`work`, and looking up where the kernel keeps what it takes."""

        def both() -> None:
            if WAKER_PROGRAM in self._attached:
                self._distance = preempt_count.distance()
            work()

        return both

    def ready(self, loaded: FrozenSet[str], counters: Counters) -> FrozenSet[str]:
        """The programs to attach, those at wakes only where it is known."""
        if self._distance is None:
            return loaded - {WAKER_PROGRAM}
        counters.say_preempt_count_is_at(self._distance)
        return loaded


class WaitTable:
    """Reads the waits and their authors.

    When there are very many, those of threads that ended, and those that find no room, become one
    row for each kind of wait, without names. Those of a thread that lives, which threads ended that
    are gone by now, become one row for each kind and name of these, of three names at the most, and
    one without authors for all others.

    Args:
        loaded: the object that counts.
        tables: native and 32-bit system-call numbers.
        procfs: for names of processes at the other end of connections.
    """

    def __init__(
        self, loaded: ProbeObject, tables: Tuple[SyscallTable, SyscallTable], procfs: Procfs
    ) -> None:
        self._object = loaded
        self._procfs = procfs
        self._tables = tables
        btf = loaded.btf
        self._key, self._counts = btf.structure("wait_key"), btf.structure("wait_counts")
        doing = enum_names(btf.enum("doing"), "DOING_")
        self._doing = {at: name for at, name in doing.items() if name != "max"}
        self._authors = enum_names(btf.enum("author"), "AUTHOR_")
        self._outside = btf.enum("limits")["PID_OUTSIDE"]
        self._numbers = btf.enum("call_number")
        self._peers: Dict[int, Optional[str]] = {}
        self._kept: Set[bytes] = set()
        self._unnamed: Set[bytes] = set()
        self._rest: Dict[_Rest, WaitCounts] = {}
        self._rows: Dict[bytes, Tuple[bytes, WaitCounts]] = {}
        self._look_above = ROWS_KEPT_MAX

    def read(self) -> Tuple[WaitCounts, ...]:
        """All waits so far that are over."""
        raw = self._entries()
        if len(raw) > self._look_above:
            self._forget_ended(raw)
        self._choose(raw)
        self._rows = {key: self._rows[key] for key in raw if key in self._rows}
        rows, rest = [], dict(self._rest)
        for key, counts in raw.items():
            row = self._row(key, counts)
            without = _Rest(_waiter(row), row.kind)
            if key not in self._kept:
                _add(rest, _Rest(_NOBODY, row.kind), row)
            elif _is_without_author(row) and without in rest:
                _add(rest, without, row)
            else:
                rows.append(row)
        return (*rows, *rest.values())

    def _entries(self) -> Dict[bytes, bytes]:
        sizes = ctypes.sizeof(self._key), ctypes.sizeof(self._counts)
        return dict(self._object.entries("waits", *sizes))

    def _choose(self, raw: Mapping[bytes, bytes]) -> None:
        """A row that is named once stays so, and one that is not never becomes so."""
        self._kept &= raw.keys()
        self._unnamed &= raw.keys()
        for key in raw.keys() - self._kept - self._unnamed:
            chosen = self._kept if len(self._kept) < ROWS_KEPT_MAX else self._unnamed
            chosen.add(key)

    def _forget_ended(self, raw: Dict[bytes, bytes]) -> None:
        threads = _Threads()
        self._forget_those_of_ended(threads)
        gone: Dict[_Rest, List[WaitCounts]] = {}
        for key in list(raw):
            row = self._row(key, raw[key])
            lives = threads.lives(row.pid, row.tid)
            if lives and (row.author_comm == OUTSIDE or threads.lives(*_author(row))):
                continue
            named = lives and key not in self._unnamed
            place = _by_program(row) if named else _Rest(_NOBODY, row.kind)
            gone.setdefault(place, []).append(row)
            del raw[key]
            self._object.delete("waits", key)
        for place in sorted(gone, key=lambda each: -sum(map(_total_ns, gone[each]))):
            allowed = self._allowed(place)
            for row in gone[place]:
                _add(self._rest, allowed, row)
        # Not at every sample where that many live.
        self._look_above = max(ROWS_KEPT_MAX, min(2 * len(raw), LOOK_ABOVE_MAX))

    def _forget_those_of_ended(self, threads: _Threads) -> None:
        """Rows without authors, of threads that have ended since."""
        before, self._rest = self._rest, {}
        for place, row in before.items():
            lives = place.waiter == _NOBODY or threads.lives(row.pid, row.tid)
            _add(self._rest, place if lives else _Rest(_NOBODY, row.kind), row)

    def _allowed(self, place: _Rest) -> _Rest:
        """Without the program where those of others came first."""
        without = place._replace(program=None)
        known = [each for each in self._rest if each.program and each[:2] == place[:2]]
        return place if place in known or len(known) < PROGRAMS_KEPT_MAX else without

    def _row(self, key: bytes, raw: bytes) -> WaitCounts:
        """The same object as before where nothing was added."""
        known = self._rows.get(key)
        if known is None or known[0] != raw:
            known = (raw, self._decoded(key, raw))
            self._rows[key] = known
        return known[1]

    def _decoded(self, raw_key: bytes, raw: bytes) -> WaitCounts:
        key = self._key.from_buffer_copy(raw_key)
        counts = self._counts.from_buffer_copy(raw)
        author = self._authors[key.author]
        comm = printable(counts.comm) or None
        if author == "peer":
            comm = self._peer(key.author_tgid)
        elif key.author_tgid & self._outside:
            comm = OUTSIDE
        return WaitCounts(
            pid=counts.tgid,
            tid=key.tid,
            started_ns=key.started_ns,
            kind=self._doing[key.doing],
            object=key.object,
            author=author,
            author_pid=key.author_tgid & ~self._outside or None,
            author_tid=key.author_tid & ~self._outside or None,
            author_started_ns=key.author_started_ns,
            author_comm=comm,
            author_is_target=bool(counts.is_target),
            count=counts.count,
            max_ns=counts.max_ns,
            last_ns=counts.last_ns,
            parts=tuple(self._parts(counts)),
        )

    def _parts(self, counts: Any) -> Iterator[WaitPart]:
        for at, name in self._doing.items():
            if counts.was_ns[at]:
                sleeps = name not in ("cpu", "runq", "unknown")
                yield WaitPart(
                    name, counts.was_ns[at], self._call(counts.calls[at]) if sleeps else None
                )

    def _call(self, number: int) -> Optional[str]:
        return call_name(number, self._tables, self._numbers)

    def _peer(self, pid: int) -> Optional[str]:
        if pid not in self._peers:
            process = self._procfs.process(pid)
            self._peers[pid] = None if process is None else process.comm
        return self._peers[pid]


class _Threads:
    """Which threads live, each looked at once."""

    def __init__(self) -> None:
        self._lives: Dict[Tuple[int, Optional[int]], bool] = {}

    def lives(self, pid: Optional[int], tid: Optional[int]) -> bool:
        """A process where `tid` is None. Nobody never ends."""
        if pid is None:
            return True
        if (pid, tid) not in self._lives:
            process = _TASKS / str(pid)
            place = process if tid is None else process / "task" / str(tid)
            self._lives[pid, tid] = os.path.exists(place)
        return self._lives[pid, tid]


def _waiter(row: WaitCounts) -> _Waiter:
    return row.pid, row.tid, row.started_ns


def _by_program(row: WaitCounts) -> _Rest:
    """Where one whose author has ended is counted."""
    known = row.author == "thread" and row.author_comm
    program = _Program(row.author_comm or "", row.author_is_target) if known else None
    return _Rest(_waiter(row), row.kind, program)


def _author(row: WaitCounts) -> Tuple[Optional[int], Optional[int]]:
    return row.author_pid, row.author_tid


def _is_without_author(row: WaitCounts) -> bool:
    return row.author == "unknown" and not row.object


def _add(rest: Dict[_Rest, WaitCounts], place: _Rest, row: WaitCounts) -> None:
    before = rest.get(place)
    pid, tid, started_ns = place.waiter
    several = (row,) if before is None else (before, row)
    parts = [part for each in several for part in each.parts]
    rest[place] = WaitCounts(
        pid=pid,
        tid=tid,
        started_ns=started_ns,
        kind=place.kind,
        object=0,
        author="program" if place.program else "unknown",
        author_pid=None,
        author_tid=None,
        author_started_ns=0,
        author_comm=place.program.comm if place.program else None,
        author_is_target=place.program is not None and place.program.is_target,
        count=sum(each.count for each in several),
        max_ns=max(each.max_ns for each in several),
        last_ns=max(each.last_ns for each in several),
        parts=_together(parts) if place.program else _without_what(parts),
    )


def _together(parts: Iterable[WaitPart]) -> Tuple[WaitPart, ...]:
    """One of each kind."""
    found: Dict[str, WaitPart] = {}
    for part in parts:
        known = found.get(part.was)
        total_ns = part.total_ns + (known.total_ns if known else 0)
        found[part.was] = replace(known or part, total_ns=total_ns)
    return tuple(found.values())


def _without_what(parts: Iterable[WaitPart]) -> Tuple[WaitPart, ...]:
    return (WaitPart("unknown", sum(part.total_ns for part in parts), None),)


def _total_ns(row: WaitCounts) -> int:
    return sum(part.total_ns for part in row.parts)
