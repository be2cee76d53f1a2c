"""A pool of threads that works for an event loop: what it did while the loop waited for it.

Such threads serve nobody themselves: they are handed a request, and wake the loop, which replies
(a web framework's thread pool, a runtime's for calls that block). So does a pool of processes that
stay (Python's `ProcessPoolExecutor`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Set, Tuple, TypeVar

from udsprobe.model.report import Author, RootAuthor, Wait
from udsprobe.model.threads.thread_time import THREADS_SHOWN_MAX
from udsprobe.rules.accounts.authors import (
    PROGRAM,
    last_author,
    thread_in_chain,
    waited_us,
    waits_of,
    was,
)
from udsprobe.rules.accounts.service import Service, is_polling, serving_threads
from udsprobe.rules.thresholds import AUTHOR_SHARE_MIN, THREAD_BUSY_MIN
from udsprobe.rules.wording import percent

# What an author did → the part of request time that it is. One that waited for a lock may have
# had nothing to do.
_PART_OF = {
    "cpu": "cpu",
    "runq": "runq",
    "sleep": "sleep",
    "child": "sleep",
    "pipe": "sleep",
    "disk": "disk",
    "recv": "upstream",
    "connect": "upstream",
    "send": "send",
}
_BUSY = ("cpu", "runq")
# Of a process that stays: for work it waits at a pipe or a socket.
_WORKING = (*_BUSY, "sleep", "child", "disk")
_FREE = ("blocked_lock", "blocked_poll", "sys_poll")

_Helper = TypeVar("_Helper", bound=Author)


@dataclass(frozen=True)
class OwnPool:
    """Threads that a loop waits for.

    Attributes:
        did: what they did in most of that time, with what it is; did_share: in which part.
        full: how many there are, where all are busy and more requests are in progress than that.
        are_processes: of one thread each, and not threads of the loop's process.
    """

    did: Author
    did_share: float
    full: Optional[int]
    are_processes: bool = False

    def clause(self) -> str:
        """`its own threads, all 40 busy: 97 % of that time asleep by a timer (…)`."""
        every = {None: "", 1: ", the only one busy"}.get(self.full, f", all {self.full} busy")
        what = "processes" if self.are_processes else "threads"
        return f"its own {what}{every}: {percent(self.did_share)} of that time {was(self.did)}"


def behind_loops(service: Service, polled_us: float) -> Dict[str, float]:
    """What own threads, and processes that stay, did while loops waited for them, by part of
    request time, in µs.

    Children that were started for requests are told by name where they sleep (`last_author`).

    Args:
        polled_us: request time in which the loops were in their pollers.
    """
    ended = _ended(service, polled_us)
    told = [(each, _PART_OF.get(each.was or "")) for each in ended.by_own]
    told += [(each, _PART_OF[each.was]) for each in ended.by_workers if each.was in _WORKING]
    told += [(each, each.was) for each in ended.by_children if each.was in _BUSY]
    parts: Dict[str, float] = {}
    for each, part in told:
        if part is not None:
            parts[part] = parts.get(part, 0.0) + each.total_us
    if ended.by_asked_us:
        # Threads that were in a receive call are told by that already, and by their roots.
        parts["upstream"] = max(parts.get("upstream", 0.0), ended.by_asked_us)
    # Roots are known of what is behind the longest authors as well.
    whole_us = max(ended.known_us, sum(parts.values()))
    return {part: polled_us * us / whole_us for part, us in parts.items()}


def behind_sleeps(service: Service, slept_us: float) -> Dict[str, float]:
    """What targets that serve nobody computed while who serves slept for them: for a child, a pipe,
    a semaphore, an eventfd. By part of request time, in µs.

    Args:
        slept_us: request time of the part `sleep`.
    """
    rows = waits_of(service, "sleep", slept_us)
    whole_us = sum(waited_us(service, row) for row in rows)
    ended = _by_helpers(service, [each for row in rows for each in row.roots])
    parts = {name: sum(each.total_us for each in ended if each.was == name) for name in _BUSY}
    return {name: slept_us * us / whole_us for name, us in parts.items()} if whole_us else {}


def own_pool(service: Service, part: str, polled_us: float) -> Optional[OwnPool]:
    """The threads or processes that loops wait for, where these slept so for most of the time.

    Args:
        part: of request time, `sleep` or `disk`. polled_us: as of `behind_loops`.
    """
    ended = _ended(service, polled_us)
    pools = (_slept(service, ended.by_own, part), _slept(service, ended.by_workers, part, True))
    found = max(
        (each for each in pools if each is not None), key=lambda each: each[0], default=None
    )
    if found is None or found[0] < AUTHOR_SHARE_MIN * ended.known_us:
        return None
    return found[1]


def _slept(
    service: Service, ended: Sequence[Author], part: str, are_processes: bool = False
) -> Optional[Tuple[float, OwnPool]]:
    """How long those slept so who ended waits, in µs, and who they are; None: they did not."""
    slept = [each for each in ended if _PART_OF.get(each.was or "") == part]
    if are_processes:
        slept = [each for each in slept if each.was in _WORKING]
    if not slept:
        return None
    slept_us = sum(each.total_us for each in slept)
    return slept_us, OwnPool(
        did=max(slept, key=lambda each: each.total_us),
        did_share=slept_us / sum(each.total_us for each in ended),
        full=_all_busy(service, {each.pid for each in ended}),
        are_processes=are_processes,
    )


def full_own_pool(service: Service, app_us: float) -> Optional[int]:
    """How many threads it has, where loops wait for them most of their time, all of them are busy
    and more requests are in progress.

    Args:
        app_us: request time in which the loops may have been in their pollers.
    """
    ended = _ended(service, app_us)
    if 2 * sum(each.total_us for each in ended.by_own) < ended.known_us or not ended.by_own:
        return None
    return _all_busy(service, {each.pid for each in ended.by_own})


@dataclass(frozen=True)
class _Ended:
    """Waits of loops by who ended them, less those behind the longest, of whom nothing is told.

    Attributes:
        by_workers: by other processes that serve nobody, perhaps through own threads;
            by_children: by those of a program that come and go.
        by_asked_us: of what own threads ended, the part in which an upstream let them wait.
    """

    by_own: List[Author]
    by_workers: List[RootAuthor]
    by_children: List[Author]
    by_asked_us: float
    known_us: float


def _ended(service: Service, polled_us: float) -> _Ended:
    rows, loops = waits_of(service, "timer", polled_us), _loops(service)
    own, through = _by_own(rows, loops), _through_loops(service, rows, loops)
    behind_us = sum(a.total_us for row in rows for a in row.authors if a.by == "others")
    behind_us += _by_loops_us(rows, loops) - sum(each.total_us for each in through)
    known_us = sum(waited_us(service, row) for row in rows) - behind_us
    helpers = _by_helpers(service, [each for row in rows for each in row.authors])
    # A process for each request is told by its program's name.
    stay = {thread.pid for thread in service.long_lived()}
    children = [each for each in helpers if each.pid not in stay]
    workers = _by_helpers(service, [each for row in rows for each in row.roots if each.pid in stay])
    own = [*_without_relays(own, workers), *through]
    told_us = sum(each.total_us for each in (*own, *workers, *children))
    by_asked_us = _by_asked_us(service, rows, loops)
    return _Ended(own, workers, children, by_asked_us, max(known_us, told_us))


def _without_relays(own: Sequence[Author], workers: Sequence[RootAuthor]) -> List[Author]:
    """Without the threads that only wait for those processes, and wake the loop for them."""
    relays = {each.via[0] for each in workers if each.via}
    return [each for each in own if each.was in _PART_OF or thread_in_chain(each) not in relays]


def _by_own(rows: Sequence[Wait], loops: Set[Tuple[int, int]]) -> List[Author]:
    return [
        each
        for row in rows
        for each in row.authors
        if each.by == "thread" and each.pid == row.pid and each.total_us > 0
        if (each.pid, each.tid) not in loops
    ]


def _through_loops(
    service: Service, rows: Sequence[Wait], loops: Set[Tuple[int, int]]
) -> List[Author]:
    """Loops of one program wake each other: who woke the one that woke.

    A runtime of several (Tokio) has one in the poller, and parks the others at a lock.
    """
    names = _names(service, loops)
    return [
        root
        for row in rows
        for root in row.roots
        if root.by == "thread" and root.pid == row.pid and root.total_us > 0
        if root.via and names.issuperset(root.via) and (root.pid, root.tid) not in loops
    ]


def _names(service: Service, loops: Set[Tuple[int, int]]) -> Set[str]:
    return {thread_in_chain(each) for each in service.threads if (each.pid, each.tid) in loops}


def _by_loops_us(rows: Sequence[Wait], loops: Set[Tuple[int, int]]) -> float:
    ended = (each for row in rows for each in row.authors if each.pid == row.pid)
    return sum(each.total_us for each in ended if (each.pid, each.tid) in loops)


def behind_parked(service: Service, lock_us: float) -> Dict[str, float]:
    """What several own threads slept for while loops were parked at a lock until one woke them, by
    part of request time, in µs. A lock that one thread holds has that one's name instead.

    Args:
        lock_us: request time of the part `lock`.
    """
    loops, rows = _loops(service), waits_of(service, "lock", lock_us)
    whole_us = sum(waited_us(service, row) for row in rows)
    if not loops or not whole_us or last_author(service, "lock", lock_us) is not None:
        return {}
    parked = [row for row in rows if (row.pid, row.tid) in loops]
    ended = [*_by_own(parked, loops), *_through_loops(service, parked, loops)]
    slept: Dict[str, List[Author]] = {}
    for each in ended:
        part = _PART_OF.get(each.was or "")
        if part in ("sleep", "disk"):
            slept.setdefault(part, []).append(each)
    return {
        part: lock_us * sum(each.total_us for each in authors) / whole_us
        for part, authors in slept.items()
        if len({each.tid for each in authors}) > 1
    }


def _by_asked_us(service: Service, rows: Sequence[Wait], loops: Set[Tuple[int, int]]) -> float:
    """A client library that polls one connection waits for what is at its other end."""
    asked = service.partners - service.clients
    names = _names(service, loops)
    return sum(
        root.total_us
        for row in rows
        for root in row.roots
        if root.pid is not None and (row.pid, root.pid) in asked
        if len(root.via) == 1 and root.via[0] not in names
    )


def _by_helpers(service: Service, authors: Sequence[_Helper]) -> List[_Helper]:
    """Targets that serve nobody, each for a request or a few: a child, and children of that."""
    others = {pid for each in service.partners for pid in each}
    others |= {thread.pid for thread in serving_threads(service)}
    return [
        each
        for each in authors
        if each.is_target and each.total_us > 0
        if each.by == PROGRAM or (each.by == "thread" and each.pid not in others)
    ]


def _loops(service: Service) -> Set[Tuple[int, int]]:
    """A worker with a loop of its own, that serves nobody (Node's), is none of them; nor is a
    thread that polls a connection to a database, and leaves the reply to another."""
    polling = [t for t in serving_threads(service) if is_polling(t)]
    replying = [t for t in polling if t.tid in service.repliers]
    return {(t.pid, t.tid) for t in replying or polling}


def _all_busy(service: Service, pids: Set[Optional[int]]) -> Optional[int]:
    """How many threads of these processes work for the loops, where none of them has time left.

    One that waits for work does so on a condition, or in a poller of its own. A pool that is not
    full yet has a thread for each request in progress.
    """
    if len(service.threads) >= THREADS_SHOWN_MAX:
        return None
    loops = _loops(service)
    pool = [t for t in service.long_lived() if t.pid in pids and (t.pid, t.tid) not in loops]
    busy = [t for t in pool if sum(t.share.get(n, 0.0) for n in _FREE) <= 1 - THREAD_BUSY_MIN]
    return len(busy) if 2 * len(busy) > len(pool) and service.at_once > len(busy) else None
