"""Who ended the waits of threads, what they did meanwhile, and whom they waited for themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from udsprobe.model.counters import grown
from udsprobe.model.report import Author, Lock, RootAuthor, Wait
from udsprobe.sample import Sample, WaitCounts

WAITS_SHOWN_MAX = 100
LOCKS_SHOWN_MAX = 20
AUTHORS_SHOWN_MAX = 20
PROGRAMS_SHOWN_MAX = 5
HOPS_MAX = 4
# Smaller parts of a wait are not followed further: of each hop there are a hundred at most.
FOLLOWED_SHARE_MIN = 0.01
OTHERS = "others"
PROGRAM = "program"
THREAD, PROCESS = "thread", "process"
# What somebody else ends. Disks and timers are an end in themselves.
_FOLLOWED = frozenset(
    ("lock", "file_lock", "recv", "send", "poll", "accept", "connect", "child", "pipe", "other")
)
_TIMED = frozenset(("sleep", "lock", "file_lock"))
_NS_PER_US = 1000

_Who = Tuple[int, int]  # pid, tid


class Waits(NamedTuple):
    """`rows`: the longest; `total` is how many there are."""

    rows: List[Wait]
    total: int
    locks: List[Lock]


class _Part(NamedTuple):
    """Of a wait: who ended it, what they did meanwhile, and how long, ns."""

    by: str
    pid: Optional[int]
    tid: Optional[int]
    was: Optional[str]
    call: Optional[str]
    total_ns: int
    comm: Optional[str] = None
    is_target: bool = False
    via: Tuple[_Who, ...] = ()

    @property
    def who(self) -> Optional[_Who]:
        return None if self.pid is None or self.tid is None else (self.pid, self.tid)


class _Row(NamedTuple):
    """The waits of one thread of one kind in the window."""

    who: _Who
    kind: str
    ended: int
    max_ns: int
    parts: List[_Part]
    unknown_ns: int

    @property
    def total_ns(self) -> int:
        return self.unknown_ns + sum(part.total_ns for part in self.parts)


class _Names:
    """Names of threads, as the samples have them."""

    def __init__(self, first: Sample, last: Sample) -> None:
        self._alive = {
            (thread.pid, thread.tid): thread.comm
            for sample in (first, last)
            for thread in sample.threads or ()
        }
        self._comms = dict(self._alive)
        # Of threads that ended, as they were named when they woke somebody.
        for row in last.waits or ():
            if row.author_pid is not None and row.author_tid is not None and row.author_comm:
                who = row.author_pid, row.author_tid
                self._comms.setdefault(who, row.author_comm)
        self._targets = {each.pid for each in last.targets}

    def thread(self, who: Optional[_Who]) -> Optional[str]:
        return None if who is None else self._comms.get(who)

    def alive(self, who: Optional[_Who]) -> Optional[str]:
        """Of a thread that ended before it was met none: it may have had several."""
        return None if who is None else self._alive.get(who)

    def is_target(self, pid: Optional[int]) -> bool:
        return pid in self._targets


def waits(first: Sample, last: Sample) -> Optional[Waits]:
    """The waits that ended in the window, the longest first; None when not measured."""
    if last.waits is None:
        return None
    names = _Names(first, last)
    grew = list(_window(first.waits or (), last.waits))
    rows = sorted(_rows(grew, names), key=lambda row: (-row.total_ns, row.who, row.kind))
    index = {(row.who, row.kind): row for row in rows}
    return Waits(
        rows=[_shown(row, index, names) for row in rows[:WAITS_SHOWN_MAX]],
        total=len(rows),
        locks=_locks(grew, names),
    )


def _window(first: Iterable[WaitCounts], last: Iterable[WaitCounts]) -> Iterator[WaitCounts]:
    """What was added to each row in the window."""
    rows = {_key(row): row for row in last}
    before: Dict[Tuple[object, ...], List[WaitCounts]] = {}
    for row in first:
        key = _key(row)
        # Names that are kept no longer: counted in a row without them from then on.
        kept = (key, _programs_key(row), _authorless(row))
        key = next((each for each in kept if each in rows), _nameless(row.kind))
        before.setdefault(key, []).append(row)
    for key, row in rows.items():
        added = _less(row, before.get(key, []))
        if added.count:
            yield added


def _key(row: WaitCounts) -> Tuple[object, ...]:
    if row.author == PROGRAM:
        return _programs_key(row)
    author = (row.author, row.author_pid, row.author_tid, row.author_started_ns)
    return (row.pid, row.tid, row.started_ns, row.kind, row.object, *author)


def _programs_key(row: WaitCounts) -> Tuple[object, ...]:
    """Of all with that name, once they have ended."""
    program = (row.author_comm, row.author_is_target)
    return (row.pid, row.tid, row.started_ns, row.kind, 0, PROGRAM, *program)


def _authorless(row: WaitCounts) -> Tuple[object, ...]:
    return (row.pid, row.tid, row.started_ns, row.kind, 0, "unknown", None, None, 0)


def _nameless(kind: str) -> Tuple[object, ...]:
    return (0, 0, 0, kind, 0, "unknown", None, None, 0)


def _less(row: WaitCounts, before: List[WaitCounts]) -> WaitCounts:
    if not before:
        return row
    count = grown(f"waits of {row.tid}", row.count, sum(each.count for each in before))
    spent: Dict[str, int] = {}
    for each in before:
        for part in each.parts:
            # All that is known of a row without an author is how long.
            was = "unknown" if row.author == "unknown" else part.was
            spent[was] = spent.get(was, 0) + part.total_ns
    parts = tuple(
        replace(part, total_ns=max(0, part.total_ns - spent.get(part.was, 0))) for part in row.parts
    )
    return replace(row, count=count, parts=parts)


def _rows(grew: Iterable[WaitCounts], names: _Names) -> Iterator[_Row]:
    grouped: Dict[Tuple[_Who, str], List[WaitCounts]] = {}
    for counts in grew:
        grouped.setdefault(((counts.pid, counts.tid), counts.kind), []).append(counts)
    for (who, kind), several in grouped.items():
        yield _Row(
            who,
            kind,
            sum(each.count for each in several),
            max(each.max_ns for each in several),
            _merged(part for each in several for part in _parts(each, names)),
            sum(p.total_ns for each in several if each.author == "unknown" for p in each.parts),
        )


def _parts(counts: WaitCounts, names: _Names) -> Iterator[_Part]:
    if counts.author == "unknown":
        return
    by = _by(counts)
    pid, tid = counts.author_pid, counts.author_tid
    who = None if pid is None or tid is None else (pid, tid)
    comm = names.alive(who) or counts.author_comm
    is_target = counts.author_is_target or names.is_target(pid)
    for part in counts.parts:
        if part.total_ns:
            was = None if part.was == "unknown" else part.was
            yield _Part(by, pid, tid, was, part.call, part.total_ns, comm, is_target)


def _by(counts: WaitCounts) -> str:
    """What ended it, in words; an interrupt may be anybody's."""
    if counts.author in (THREAD, PROGRAM):
        return counts.author
    if counts.author == "peer":
        return PROCESS
    if counts.kind in _TIMED:
        return "timer"
    return "device" if counts.kind == "disk" else "interrupt"


def _merged(parts: Iterable[_Part]) -> List[_Part]:
    """One for each author and what they did, the longest first."""
    found: Dict[Tuple[object, ...], _Part] = {}
    for part in parts:
        program = part.comm if part.by == PROGRAM else None
        key = (part.by, part.pid, part.tid, program, part.was, part.via)
        known = found.get(key)
        if known is None:
            found[key] = part
        else:
            longer = max(known, part, key=lambda each: each.total_ns)
            found[key] = longer._replace(total_ns=known.total_ns + part.total_ns)
    return sorted(found.values(), key=_order)


def _order(part: _Part) -> Tuple[int, int, int, str]:
    return -part.total_ns, part.pid or 0, part.tid or 0, part.was or ""


def _capped(parts: List[_Part]) -> List[_Part]:
    """Those behind the longest become one for each program, and then one for each thing that they
    did, so that sums stay sums."""
    behind = parts[AUTHORS_SHOWN_MAX:]
    programs = _programs(behind)[:PROGRAMS_SHOWN_MAX]
    rest: Dict[Optional[str], int] = {}
    for part in behind:
        rest[part.was] = rest.get(part.was, 0) + part.total_ns
    for part in programs:
        rest[part.was] -= part.total_ns
    others = [_Part(OTHERS, None, None, was, None, ns) for was, ns in rest.items() if ns]
    return [*parts[:AUTHORS_SHOWN_MAX], *programs, *sorted(others, key=_order)]


def _programs(parts: List[_Part]) -> List[_Part]:
    """Processes of one name that did the same, each of which ended few waits: a child for each
    request, say. The longest first."""
    alike: Dict[Tuple[object, ...], List[_Part]] = {}
    for part in parts:
        if part.by in (THREAD, PROGRAM) and part.comm:
            alike.setdefault((part.comm, part.was, part.is_target), []).append(part)
    found = [
        each[0]._replace(
            by=PROGRAM, pid=None, tid=None, via=(), total_ns=sum(part.total_ns for part in each)
        )
        for each in alike.values()
        if len({part.pid for part in each}) > 1 or any(part.by == PROGRAM for part in each)
    ]
    return sorted(found, key=_order)


def _shown(row: _Row, index: Dict[Tuple[_Who, str], _Row], names: _Names) -> Wait:
    pid, tid = row.who
    return Wait(
        pid=pid,
        tid=tid,
        comm=names.thread(row.who),
        kind=row.kind,
        count=row.ended,
        total_us=row.total_ns / _NS_PER_US,
        max_us=row.max_ns / _NS_PER_US,
        authors=[_author(part) for part in _capped(row.parts)],
        unknown_us=row.unknown_ns / _NS_PER_US,
        roots=[_root(part, names) for part in _capped(_roots(row, index))],
    )


def _author(part: _Part) -> Author:
    return Author(
        by=part.by,
        pid=part.pid,
        tid=part.tid,
        comm=part.comm,
        is_target=part.is_target,
        was=part.was,
        call=part.call,
        total_us=part.total_ns / _NS_PER_US,
    )


def _root(part: _Part, names: _Names) -> RootAuthor:
    via = [f"{names.thread(who) or '?'} {who[0]}/{who[1]}" for who in part.via]
    return RootAuthor(**vars(_author(part)), via=via)


def _roots(row: _Row, index: Dict[Tuple[_Who, str], _Row]) -> List[_Part]:
    """Who was last in the chains of waits that made this one, the longest first.

    What an author slept for itself is divided among its own authors, in the proportions of its
    waits of that kind in the window, except those that one who waits for it ended: who is asleep
    ends nobody's wait. The parts add up to those of the row.
    """
    least_ns = row.total_ns * FOLLOWED_SHARE_MIN
    found: List[_Part] = []
    ahead = [part._replace(via=()) for part in row.parts]
    while ahead:
        part = ahead.pop()
        path = (row.who, *part.via)
        if part.total_ns < least_ns or len(part.via) >= HOPS_MAX - 1 or part.who in path:
            found.append(part)
            continue
        for each in _behind(part, index, path):
            (ahead if each.via != part.via else found).append(each)
    return _merged(found)


def _behind(
    part: _Part, index: Dict[Tuple[_Who, str], _Row], path: Tuple[_Who, ...]
) -> Iterator[_Part]:
    """The part itself, or shares of it that are those of its author's own authors."""
    who = part.who
    own = index.get((who, part.was)) if who and part.was in _FOLLOWED else None
    left_ns = part.total_ns
    if own is not None and who is not None:
        parts = [author for author in own.parts if author.who not in (*path, who)]
        whole_ns = own.unknown_ns + sum(author.total_ns for author in parts)
        for author in parts:
            share_ns = part.total_ns * author.total_ns // (whole_ns or 1)
            if author.by not in (THREAD, PROCESS) or not share_ns:
                continue
            left_ns -= share_ns
            yield author._replace(total_ns=share_ns, via=(*part.via, who))
    if left_ns:
        yield part._replace(total_ns=left_ns)


def _locks(grew: List[WaitCounts], names: _Names) -> List[Lock]:
    """Futexes that were waited for longest."""
    grouped: Dict[Tuple[int, int], List[WaitCounts]] = {}
    for counts in grew:
        if counts.kind == "lock" and counts.object:
            grouped.setdefault((counts.pid, counts.object), []).append(counts)
    locks = [_lock(pid, address, several, names) for (pid, address), several in grouped.items()]
    return sorted(locks, key=lambda lock: (-lock.total_us, lock.pid, lock.address))[
        :LOCKS_SHOWN_MAX
    ]


def _lock(pid: int, address: int, several: List[WaitCounts], names: _Names) -> Lock:
    parts = _merged(part for each in several for part in _parts(each, names))
    total_ns = sum(part.total_ns for each in several for part in each.parts)
    woken = [each for each in several if each.author == "thread"]
    last = max(woken, key=lambda each: each.last_ns, default=None)
    return Lock(
        pid=pid,
        address=f"{address:#x}",
        waiters=len({each.tid for each in several}),
        count=sum(each.count for each in several),
        total_us=total_ns / _NS_PER_US,
        authors=[_author(part) for part in _capped(parts)],
        last_woken_by=None if last is None else last.author_tid,
    )
