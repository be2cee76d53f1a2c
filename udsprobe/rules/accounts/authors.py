"""Whom the waits of requests were for: the last of a chain of authors, where it is known.

Knows waits by thread, not by request. So they tell of requests only where the threads that serve
waited hardly longer than the requests: otherwise most of it was a wait for work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, Union

from udsprobe.model.report import Author, Evidence, RootAuthor, ThreadTime, Wait
from udsprobe.rules.accounts.service import Service, is_polling, serving_threads
from udsprobe.rules.thresholds import (
    AUTHOR_KNOWN_MIN,
    AUTHOR_SHARE_MIN,
    THREAD_BUSY_MIN,
    WAITED_TIMES_REQUESTS_MAX,
)
from udsprobe.rules.wording import duration, evidence, percent

DOING = {
    "cpu": "on a CPU",
    "runq": "ready to run, without a CPU",
    "lock": "waiting for a lock",
    "file_lock": "waiting for a file lock",
    "recv": "waiting for bytes",
    "send": "waiting for room to send",
    "accept": "waiting for connections",
    "connect": "waiting to connect",
    "poll": "waiting for events",
    "disk": "on the disk",
    "child": "waiting for a child",
    "sleep": "asleep by a timer",
    "pipe": "waiting at a pipe",
    "other": "asleep for something else",
}
KINDS = {
    "lock": ("lock", "file_lock"),
    "timer": ("poll",),
    "sleep": ("child", "pipe", "sleep", "other"),
}
"""Part of request time → kinds of waits."""
# In which a thread waits for its client to speak as well.
_FOR_CLIENTS = ("poll", "recv")
# What an author can be busy with, a part of request time as well.
_BUSY = ("cpu", "runq")

AUTHOR_SHARE = "waits_author_share"
# Of `Author.by`.
PROGRAM = "program"
_OTHERS = "others"
_SOMEBODY = ("thread", "process", PROGRAM)

_Who = Tuple[Union[int, str, None], Optional[int]]


@dataclass(frozen=True)
class LastAuthor:
    """Who ended most of the waits, perhaps through others, and what it did most meanwhile.

    Attributes:
        share: of the time waited, that this author ended; did_share: in which it did that.
        followed: of all that time, of how much the chains were followed to their ends.
        server: whose client it is, where it made everybody wait by its silence; silent_us: which
            lasted so long at the most.
    """

    author: Author
    share: float
    did_share: float
    server: Optional[str] = None
    silent_us: float = 0.0
    followed: float = 1.0
    in_turns: Optional[str] = None

    @property
    def is_program(self) -> bool:
        """It is a process for each request."""
        return self.author.by == PROGRAM

    @property
    def name(self) -> str:
        """`worker 4711/4718`."""
        if self.in_turns is not None:
            return f"another of its {self.in_turns}"
        return author_name(self.author)

    def clause(self) -> str:
        """`woken by worker 4711/4718, which was 80 % on the disk (fsync)`."""
        if self.server is not None:
            silent = f"had said nothing for up to {duration(self.silent_us)}"
            return f"woken by {self.server}, whose client {self.name} {silent}"
        did = was(self.author)
        verb = "were" if self.is_program else "was"
        said = f", which {verb} {percent(self.did_share)} of that time {did}" if did else ""
        return f"woken by {self.name}{said}"

    def fact(self) -> Evidence:
        """That one, as evidence."""
        wakes = "wake" if self.is_program else "wakes"
        says = f"{percent(self.share)} of these waits end when {self.name} {wakes} who waits"
        if self.followed < 1:
            says += f", as far as they were followed to their ends ({percent(self.followed)})"
        return evidence(AUTHOR_SHARE, self.share, "of 1", says, AUTHOR_SHARE_MIN)


def last_author(service: Service, part: str, part_us: float) -> Optional[LastAuthor]:
    """Of the waits that are this part of request time; None where nobody stands out.

    Args:
        part: `lock`, `timer` or `sleep`. part_us: how much of request time it is.
    """
    rows = waits_of(service, part, part_us)
    all_us = sum(waited_us(service, row) for row in rows) + _of_the_ended_us(service, part)
    told = [each for row in rows for each in _for_requests(service, row)]
    ended = [each for each in told if not (part == "lock" and _goes_on(each))]
    whole_us = all_us - (_sum(told) - _sum(ended))
    if whole_us < AUTHOR_KNOWN_MIN * all_us:
        return None
    spent = _by_author(ended)
    # Threads that serve wait for each other: each is an author then, and none is the root.
    waited: Dict[_Who, float] = {(row.pid, row.tid): waited_us(service, row) for row in rows}
    roots = [parts for who, parts in spent.items() if 2 * waited.get(who, 0.0) < _sum(parts)]
    most = max(roots, key=_sum, default=[])
    in_turns = None
    if not most or _sum(most) < AUTHOR_SHARE_MIN * whole_us:
        most = _taking_turns(ended, waited)
        in_turns = "threads" if len({pid for pid, _ in waited}) == 1 else "processes"
    if not most or _sum(most) < AUTHOR_SHARE_MIN * whole_us:
        return None
    found = _told(service, most, _sum(most) / whole_us)
    return replace(found, followed=whole_us / all_us, in_turns=in_turns)


def _of_the_ended_us(service: Service, part: str) -> float:
    """Waits of threads whose names are kept no longer: of those nothing is told.

    Where each connection has a thread of its own most of them are.
    """
    kinds = () if part == "timer" else KINDS.get(part, ())
    return sum(row.total_us for row in service.waits if not row.pid and row.kind in kinds)


def _by_author(parts: Sequence[RootAuthor]) -> Dict[_Who, List[RootAuthor]]:
    """Of a program that has a process for each request all of them are one."""
    programs = {each.comm for each in parts if each.by == PROGRAM}
    spent: Dict[_Who, List[RootAuthor]] = {}
    for each in parts:
        if each.by in _SOMEBODY:
            is_one_of_many = each.comm in programs
            who = (each.comm, None) if is_one_of_many else (each.pid, each.tid)
            spent.setdefault(who, []).append(each)
    return spent


def _taking_turns(ended: Sequence[RootAuthor], waited: Mapping[_Who, float]) -> List[RootAuthor]:
    """The parts that are of those who wait themselves, where they are most of all with names."""
    named = [each for each in ended if each.by in _SOMEBODY]
    own = [each for each in named if (each.pid, each.tid) in waited]
    if 2 * _sum(own) < _sum(named):
        return []
    return [*own, *(each for each in ended if each.by == _OTHERS)]


def _goes_on(part: RootAuthor) -> bool:
    """A chain of waits for locks that ends at one more of them: who waits there holds none.

    Of threads that take turns chains are longer than they are followed, and more than are listed.
    """
    return part.was in KINDS["lock"] or (part.by == _OTHERS and part.was is None)


def _told(service: Service, parts: List[RootAuthor], share: float) -> LastAuthor:
    by_doing: Dict[Optional[str], List[RootAuthor]] = {}
    for each in parts:
        by_doing.setdefault(each.was, []).append(each)
    most = max(by_doing.values(), key=_sum)
    first = max(most, key=lambda each: (each.by != _OTHERS, each.total_us))
    found = LastAuthor(first, share, _sum(most) / _sum(parts))
    silent = _silent_client(service, first)
    return found if silent is None else replace(found, server=silent[0], silent_us=silent[1])


def _silent_client(service: Service, part: RootAuthor) -> Optional[Tuple[str, float]]:
    """Whose client the last author is, and how long it left that one waiting at the most."""
    if part.is_target or not part.via:
        return None
    for row in service.waits:
        if thread_in_chain(row) != part.via[-1] or row.kind not in _FOR_CLIENTS:
            continue
        ended_us = _sum([each for each in row.authors if each.pid == part.pid])
        if (row.pid, part.pid) in service.clients and 2 * ended_us > row.total_us:
            return thread_name(row.comm, row.pid, row.tid), row.max_us
    return None


def busy_authors(service: Service, lock_us: float) -> Optional[Mapping[str, float]]:
    """The part of the waits for locks in which their last authors were busy, by what with.

    None where that is not known of enough of them. Who waited for a lock as well, where a
    chain ends, held none: of many that take turns the chain is longer than it is followed. The
    others speak for that part.
    """
    rows = waits_of(service, "lock", lock_us)
    known = _holders(rows, [each for row in rows for each in row.roots])
    if not known:
        return None
    return {name: _sum([a for a in known if a.was == name]) / _sum(known) for name in _BUSY}


def _holders(rows: Sequence[Wait], ended: Sequence[Author]) -> List[Author]:
    """Of those who ended waits for locks, who did not wait for one itself; nobody where that is
    known of too little of these waits.

    Args:
        ended: the authors of `rows`, or the last ones of their chains.
    """
    told = [each for each in ended if each.by == "thread" and each.was]
    known = [each for each in told if each.was not in KINDS["lock"]]
    whole_us = sum(row.total_us for row in rows) - (_sum(told) - _sum(known))
    is_enough = _sum(known) > 0 and _sum(known) >= AUTHOR_KNOWN_MIN * whole_us
    return known if is_enough else []


def holders_asleep(service: Service, lock_us: float) -> Dict[str, float]:
    """The part of the waits for locks in which who held one slept for another process to read or
    write, by the part of request time that such a sleep is.

    Such a lock is free when that one has done so: a log, say, to which one thread writes at a
    time. Empty where that is not known of enough of these waits.
    """
    rows = waits_of(service, "lock", lock_us)
    holders = _holders(rows, [each for row in rows for each in row.authors])
    if not holders:
        return {}
    return {
        part: _sum([each for each in holders if each.was == kind]) / _sum(holders)
        for kind, part in (("send", "send"), ("pipe", "sleep"))
    }


def who_ended(service: Service, kind: str) -> Optional[LastAuthor]:
    """Who ended most of the waits of one kind themselves; None where nobody did."""
    rows = [row for row in service.waits if row.kind == kind]
    whole_us = sum(row.total_us for row in rows)
    spent = _by_author([RootAuthor(**vars(each)) for row in rows for each in row.authors])
    most = max(spent.values(), key=_sum, default=[])
    if not most or _sum(most) < AUTHOR_SHARE_MIN * whole_us:
        return None
    return _told(service, most, _sum(most) / whole_us)


def always_one_in(service: Service, kinds: Sequence[str]) -> Optional[Tuple[str, float]]:
    """The kind of waits in which there is hardly ever no thread, and how long all of them were.

    Of a runtime with threads of its own making it tells what their waits for each other are for.
    """
    spent = {kind: sum(row.total_us for row in service.waits if row.kind == kind) for kind in kinds}
    most = max(spent, key=lambda kind: spent[kind])
    if spent[most] < THREAD_BUSY_MIN * service.duration_s * 1e6:
        return None
    return most, spent[most]


def waits_of(service: Service, part: str, part_us: float) -> List[Wait]:
    """The waits of the threads that serve, of the kinds that this part of request time is of.

    Where they were longer by far than the requests, some were waits for work: for locks without
    those that a thread ended which receives or accepts and hands over; else none of them.
    """
    serving = {(thread.pid, thread.tid) for thread in serving_threads(service)}
    rows = [
        row
        for row in service.waits
        if (row.pid, row.tid) in serving and row.kind in KINDS.get(part, ())
    ]
    if not _fit(service, rows, part_us) and part == "lock":
        bring_work = _who_bring_work(service)
        rows = [_without(row, bring_work) for row in rows]
    return rows if _fit(service, rows, part_us) else []


def until_timers(service: Service, lock_us: float) -> float:
    """The part of the waits for locks that last until a time: those are sleeps, and nobody's work.

    Their own, or of who ends them at last. None of them where the runtime waits for a lock again
    and again.
    """
    rows = waits_of(service, "lock", lock_us)
    whole_us = sum(row.total_us for row in rows)
    if service.asks_for_lock_again or not whole_us:
        return 0.0
    slept = {(row.pid, row.tid): _by_timers(row) for row in service.waits if row.kind == "lock"}
    roots = [each for row in rows for each in row.roots]
    until_us = _sum([each for each in roots if each.by == "timer"])
    for each in roots:
        if each.by == "thread" and each.was in KINDS["lock"]:
            until_us += each.total_us * slept.get((each.pid or 0, each.tid or 0), 0.0)
    return until_us / whole_us


def _by_timers(row: Wait) -> float:
    """The part of a wait that timers end."""
    ended_us = _sum([each for each in row.authors if each.by == "timer"])
    return ended_us / row.total_us if row.total_us else 0.0


def locked_in_pool_us(service: Service) -> float:
    """Waits for locks and timers of threads that answer what another one received, in µs: those in
    requests.

    Others of them end these, or a timer does; waits for work are ended by who brings it. Where a
    timer ends far more than requests take, it is a time limit of the waits for work. Authors that
    are not told have their part.
    """
    serving = {(t.pid, t.tid) for t in serving_threads(service) if not is_polling(t)}
    rows = [row for row in service.waits if row.kind == "lock" and (row.pid, row.tid) in serving]
    told = [each for row in rows for each in row.authors if each.by != _OTHERS]
    known_us = sum(row.unknown_us for row in rows) + _sum(told)
    if not known_us:
        return 0.0
    whole_us = sum(row.total_us for row in rows)
    by_own_us = _sum([each for each in told if (each.pid, each.tid) in serving])
    by_timers_us = _sum([each for each in told if each.by == "timer"])
    found_us = (by_own_us + by_timers_us) * whole_us / known_us
    if found_us <= WAITED_TIMES_REQUESTS_MAX * service.stage_sums_us.get("app", 0.0):
        return found_us
    return by_own_us * whole_us / known_us


def _fit(service: Service, rows: Sequence[Wait], part_us: float) -> bool:
    whole_us = sum(waited_us(service, row) for row in rows)
    return whole_us <= WAITED_TIMES_REQUESTS_MAX * part_us


def _who_bring_work(service: Service) -> FrozenSet[str]:
    return frozenset(
        thread_in_chain(thread)
        for thread in service.threads
        if is_polling(thread) or thread.tid in service.acceptors - service.repliers
    )


def _without(row: Wait, those: FrozenSet[str]) -> Wait:
    """Without what these ended."""
    authors = [each for each in row.authors if thread_in_chain(each) not in those]
    roots = [
        each
        for each in row.roots
        if (each.via[0] if each.via else thread_in_chain(each)) not in those
    ]
    return replace(row, authors=authors, roots=roots, total_us=row.unknown_us + _sum(authors))


def thread_in_chain(who: Union[Author, Wait, ThreadTime]) -> str:
    """As in `RootAuthor.via`."""
    return f"{who.comm or '?'} {who.pid}/{who.tid}"


def waited_us(service: Service, row: Wait) -> float:
    """How much of a wait can have been in a request, in µs."""
    return row.unknown_us + _sum(_for_requests(service, row))


def _for_requests(service: Service, row: Wait) -> List[RootAuthor]:
    """The parts that can have been in a request, and in no request of its own.

    A poller waits for clients to speak as well, and for upstreams, which have a part of their own.
    """
    if row.kind not in _FOR_CLIENTS:
        return row.roots
    ended = [each for each in row.authors if each.by in _SOMEBODY]
    partners = {other for pid, other in service.partners if pid == row.pid}
    strangers = {each.pid for each in ended if each.pid and not each.is_target}
    # Of a program is known whether it is a target's, and whether that name is an other end's, too.
    asking = {each.comm for each in ended if each.is_target and each.pid in partners}
    return [
        each
        for each in row.roots
        if (
            each.is_target and each.comm not in asking
            if each.by == PROGRAM
            else _first_pid(each) not in partners | strangers
        )
    ]


def _first_pid(part: RootAuthor) -> Optional[int]:
    """The process that ended the wait itself: the first of a chain."""
    return int(part.via[0].rpartition(" ")[2].partition("/")[0]) if part.via else part.pid


def _sum(parts: Sequence[Author]) -> float:
    return sum(part.total_us for part in parts)


def thread_name(comm: Optional[str], pid: Optional[int], tid: Optional[int]) -> str:
    """`worker 4711/4718`; of the first thread of a process, or all of it, `worker 4711`."""
    name = comm if comm is not None else "process" if tid is None else "thread"
    if pid is None:
        return name
    return f"{name} {pid}" if tid in (None, pid) else f"{name} {pid}/{tid}"


def author_name(part: Author) -> str:
    """`worker 4711/4718`, or `slow.cgi processes`."""
    if part.by == PROGRAM:
        return f"{part.comm} processes"
    return thread_name(part.comm, part.pid, part.tid)


def was(part: Author) -> str:
    """`on the disk (fsync)`; empty where it is not known."""
    if part.was is None:
        return ""
    call = "" if part.call is None else f" ({part.call})"
    return f"{DOING.get(part.was, part.was)}{call}"
