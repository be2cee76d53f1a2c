"""Waits and their authors in words: who waits for whom, and what that one did meanwhile.

A wake proves who woke, not who held a lock: nothing here says more.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from udsprobe.model.report import Author, Report, RootAuthor, Wait, WaitNow
from udsprobe.rules.accounts.authors import author_name, thread_name, was
from udsprobe.views.fields import numbers
from udsprobe.views.fields.escape import visible

WAITS_FOR = {
    # A thread without work sleeps for the same kind of word in memory.
    "lock": "a lock or work",
    "file_lock": "a file lock",
    "recv": "bytes",
    "send": "room to send",
    "accept": "connections",
    "connect": "a connection",
    "poll": "events",
    "disk": "a disk",
    "child": "a child",
    "sleep": "a time",
    "pipe": "a pipe",
    "other": "something else",
}
_NO_THREAD = {
    "timer": "a timer",
    "device": "a device",
    "interrupt": "a timer or a packet",
    "others": "others",
}
# A thread that waits for work to come is not held up.
_IDLE = frozenset(("poll", "accept", "sleep"))
WORTH_TELLING_US = 1000.0


def told(report: Report, rows: int) -> List[Wait]:
    """The longest waits for somebody, not for work to come."""
    found = [
        row
        for row in report.waits or []
        if row.pid and row.kind not in _IDLE and row.total_us >= WORTH_TELLING_US
    ]
    return found[:rows]


def told_now(report: Report, rows: int) -> List[WaitNow]:
    """The first of those that go on while their processes owe replies."""
    return [row for row in report.waits_now or [] if row.replies_owed][:rows]


def sentence_now(row: WaitNow) -> str:
    """`worker 4711/4718 has waited 41 s for a lock or work (futex), …: not known yet who …`."""
    who = thread(row.comm, row.pid, row.tid)
    what = WAITS_FOR.get(row.kind, row.kind)
    call = "" if row.call is None else f" ({row.call})"
    owed = row.replies_owed or 0
    owes = f", and its process owes {owed:,} {'reply' if owed == 1 else 'replies'}" if owed else ""
    head = f"{who} has waited {numbers.duration(row.lasted_us)} for {what}{call}{owes}"
    return f"{head}: {outlook(row)}"


def outlook(row: WaitNow) -> str:
    """`not known yet who will end it; last woken there by …; its client is app 300`."""
    return "; ".join(("not known yet who will end it", *_other_end(row)))


def _other_end(row: WaitNow) -> List[str]:
    found = []
    waker, peer = row.last_woken_by, row.peer
    if waker is not None:
        found.append(f"last woken there by {thread(waker.comm, waker.pid, waker.tid)}")
    if peer is not None:
        name = (
            visible(peer.address or "") if peer.pid is None else thread(peer.comm, peer.pid, None)
        )
        whose = {"served": "its client is", "upstream": "its upstream is"}
        found.append(f"{whose.get(row.connection or '', 'at the other end is')} {name}")
    if row.held_by is not None:
        does = "reads that pipe" if row.kind == "pipe" else "holds it"
        found.append(f"{thread(row.held_by.comm, row.held_by.pid, None)} {does}")
    return found


def sentence(row: Wait) -> str:
    """`worker 4711/4718 waited 3.4 s for a lock or work: woken by …, 80 % on the disk (fsync)`."""
    who = thread(row.comm, row.pid, row.tid)
    what = WAITS_FOR.get(row.kind, row.kind)
    times = "" if row.count == 1 else f" ({row.count:,} times)"
    head = f"{who} waited {numbers.duration(row.total_us)} for {what}{times}"
    return f"{head}: {by_whom(row)}"


def by_whom(row: Wait) -> str:
    """`woken by …, 80 % on the disk (fsync); behind that …`."""
    first = _longest(row.authors)
    if first is None:
        return "not known who ended it"
    said = [f"woken by {author(first)}{_did(row, row.authors, first)}"]
    root = _root(row)
    if root is not None:
        said.append(f"behind that {author(root)}{_did(row, row.roots, root)}")
    return "; ".join(said)


def author(part: Author) -> str:
    """`worker 4711/4718`, `postgres 512`, `a timer`."""
    if part.by in _NO_THREAD:
        return _NO_THREAD[part.by]
    return visible(author_name(part))


def thread(comm: Optional[str], pid: Optional[int], tid: Optional[int]) -> str:
    """`worker 4711/4718`, safe to print."""
    return visible(thread_name(comm, pid, tid))


def _longest(parts: Sequence[Author]) -> Optional[Author]:
    """Of the author with most of the time, what it did most."""
    spent: Dict[Tuple[object, ...], float] = {}
    for part in parts:
        who = _who(part)
        spent[who] = spent.get(who, 0.0) + part.total_us
    if not spent:
        return None
    most = max(spent, key=lambda who: spent[who])
    return next(part for part in parts if _who(part) == most)


def _who(part: Author) -> Tuple[object, ...]:
    return (part.by, part.pid, part.tid, None if part.pid else part.comm)


def _did(row: Wait, parts: Sequence[Author], most: Author) -> str:
    if most.was is None or not row.total_us:
        return ""
    spent_us = sum(
        part.total_us for part in parts if (_who(part), part.was) == (_who(most), most.was)
    )
    return f", {numbers.spoken(100 * spent_us / row.total_us)} % {was(most)}"


def _root(row: Wait) -> Optional[RootAuthor]:
    """The last of the longest chain, where it has more than one hop."""
    found = _longest(row.roots)
    return found if isinstance(found, RootAuthor) and found.via else None
