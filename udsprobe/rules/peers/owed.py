"""Replies that are owed, and the waits that go on and can be why.

A wait holds up a reply when its thread has the request. Of a process of one thread that is the only
one there can be. Of others it is a thread that takes requests from its clients itself, as long as
no thread of the process polls for all of them: there, whoever sleeps may just have no work; but not
one that writes to a full pipe, mostly of a log, with whatever lock it has meanwhile. A process that
may not run waits for that, whatever its threads are in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, List, Optional, Tuple

from udsprobe.model.report import Report, ServedBy, Waiting, WaitNow
from udsprobe.rules.peers.late import hung_after_us
from udsprobe.rules.peers.stalled import (
    AT_WORK,
    FOR_OTHERS,
    is_at_full_pipe,
    left_waiting,
    what_stalls,
)
from udsprobe.rules.thresholds import HUNG_US_MIN

OWED, EARLY = "owed", "early"


@dataclass(frozen=True)
class HeldUp:
    """A process that owes replies for longer than it takes for others, and why.

    Attributes:
        owed: requests without a reply. waits: of the threads that can have them, the longest first.
        how: `OWED`, or they came before we did: `UNREAD`, `BEFORE`, or `EARLY`, where that they did
            is concluded from the waits.
        late_us: from which age on a reply is late.
        meanwhile: the only thread of the process that is in the middle of something else, if any.
    """

    pid: int
    comm: str
    owed: Waiting
    waits: Tuple[WaitNow, ...]
    how: str = OWED
    late_us: float = HUNG_US_MIN
    meanwhile: Optional[WaitNow] = None

    @property
    def oldest_us(self) -> float:
        """Of the requests."""
        return self.owed.oldest_us or 0.0

    def first(self, kind: str) -> Optional[WaitNow]:
        """The longest of the waits `upstream`, `send`, `lock`, or `work`: of any other kind."""
        return next((each for each in self.waits if kind_of(each) == kind), None)


def kind_of(wait: WaitNow) -> str:
    """`upstream`, `send`, `lock`; `work` for any other."""
    if wait.kind in FOR_OTHERS:
        return "upstream"
    return wait.kind if wait.kind in ("send", "lock") else "work"


def held_up(report: Report) -> List[HeldUp]:
    """The processes whose replies are held up by waits that go on, the oldest first."""
    rows: Dict[int, List[WaitNow]] = {}
    for each in report.waits_now or []:
        rows.setdefault(each.pid, []).append(each)
    served = {row.pid: row for row in report.requests.served_by or []}
    found = [_process(report, served.get(pid), waits) for pid, waits in rows.items()]
    return sorted((each for each in found if each is not None), key=lambda each: -each.oldest_us)


def _process(report: Report, row: Optional[ServedBy], waits: List[WaitNow]) -> Optional[HeldUp]:
    if any(each.pid == waits[0].pid and each.stopped for each in report.targets):
        return None
    found = _held_up(report, row, waits)
    full = _longest([each for each in waits if is_at_full_pipe(each)])
    if found is None:
        return _behind_a_pipe(report, row, full) if full else None
    others = tuple(each for each in found.waits if each not in full)
    return replace(found, waits=(*full, *others))


def _longest(waits: List[WaitNow]) -> Tuple[WaitNow, ...]:
    return tuple(sorted(waits, key=lambda each: -each.lasted_us))


def _behind_a_pipe(
    report: Report, row: Optional[ServedBy], full: Tuple[WaitNow, ...]
) -> Optional[HeldUp]:
    """A server whose threads are taken for all requests, and one writes to a full pipe."""
    if row is None or not any(each.is_serving or not row.count for each in full):
        return None
    late_us = hung_after_us(report, full[0].comm)
    late = [each for each in (row.unanswered, row.abandoned) if each is not None and each.count]
    owed = max(late, key=lambda each: each.oldest_us or 0.0, default=None)
    if owed is None or (owed.oldest_us or 0.0) < late_us:
        return None
    return HeldUp(row.pid, full[0].comm, owed, full, late_us=late_us)


def _held_up(report: Report, row: Optional[ServedBy], waits: List[WaitNow]) -> Optional[HeldUp]:
    first = waits[0]
    is_alone = is_of_one_thread(report, first.pid)
    if not first.replies_owed:
        return _stalled(report, row, waits) or (_early(report, first) if is_alone else None)
    why = [each for each in waits if (_is_no_wait_for_clients if is_alone else _has_it)(each)]
    if not is_alone and _has_event_loop(report, first.pid, waits):
        return None
    owed = _owed(row, first.replies_owed, why)
    oldest_us, late_us = owed.oldest_us or 0.0, hung_after_us(report, first.comm)
    # A wait of before the request came is none for it.
    why = [each for each in why if each.lasted_us <= oldest_us]
    if not why or oldest_us < late_us:
        return None
    meanwhile = _meanwhile(waits, why)
    return HeldUp(first.pid, first.comm, owed, _longest(why), late_us=late_us, meanwhile=meanwhile)


def _stalled(report: Report, row: Optional[ServedBy], waits: List[WaitNow]) -> Optional[HeldUp]:
    found = None if row is None else left_waiting(row)
    if row is None or found is None:
        return None
    how, owed = found
    why = what_stalls(report, row, waits, how)
    if not why:
        return None
    return HeldUp(row.pid, row.comm or waits[0].comm, owed, _longest(why), how)


def is_of_one_thread(report: Report, pid: int) -> bool:
    """The process has one thread now."""
    return any(each.pid == pid and each.threads == 1 for each in report.targets)


def _owed(row: Optional[ServedBy], replies: int, why: List[WaitNow]) -> Waiting:
    """Also of a process that never replied: such a thread is in the middle of a request."""
    if row is not None:
        return row.unanswered
    return Waiting(replies, max((each.lasted_us for each in why), default=None))


def _early(report: Report, wait: WaitNow) -> Optional[HeldUp]:
    """It has a client, has moved no byte since we came, and is busy with something else.

    Who just sleeps may have nothing to do, but not while connections wait to be accepted.
    """
    if wait.is_serving:
        return None
    is_at_work = wait.kind in ("lock", *AT_WORK) or wait.polls_clients is False
    if wait.kind == "sleep" and not_let_in(report, wait.pid):
        is_at_work = True
    if wait.connection == "served" and is_at_work:
        return HeldUp(wait.pid, wait.comm, Waiting(1, wait.lasted_us), (wait,), how=EARLY)
    if wait.kind in FOR_OTHERS and wait.connection == "upstream" and wait.clients:
        return HeldUp(
            wait.pid, wait.comm, Waiting(wait.clients, wait.lasted_us), (wait,), how=EARLY
        )
    return None


def not_let_in(report: Report, pid: int) -> int:
    """Connections that wait at a listener of the process, of which none was accepted meanwhile."""
    rows = [row for row in report.listeners or () if pid in (row.pids or ())]
    return sum(row.depth.now or 0 for row in rows if row.accepted == 0)


def _is_no_wait_for_clients(wait: WaitNow) -> bool:
    if wait.kind == "poll":
        return wait.polls_clients is False
    if wait.kind in FOR_OTHERS:
        return wait.connection == "upstream"
    return wait.kind != "accept"


def _has_it(wait: WaitNow) -> bool:
    return wait.is_serving and wait.kind != "poll" and _is_no_wait_for_clients(wait)


def _has_event_loop(report: Report, pid: int, waits: List[WaitNow]) -> bool:
    """One of its threads polls for many clients: another one that sleeps may have no work."""
    if any(each.is_serving and _is_epoll(each.call) for each in waits):
        return True
    if not any(_is_epoll(row.name) and row.calls for row in report.syscalls or []):
        return False
    asleep = {each.tid for each in waits}
    threads = report.time.threads if report.time is not None else []
    return any(
        each.share.get("sys_poll", 0.0) > 0 and each.share.get("sys_socket", 0.0) > 0
        for each in threads
        if each.pid == pid and each.tid not in asleep
    )


def _is_epoll(call: Optional[str]) -> bool:
    return call is not None and call.startswith("epoll_")


def _meanwhile(waits: List[WaitNow], why: List[WaitNow]) -> Optional[WaitNow]:
    """Who may have what they wait for: a thread that waits for no lock, and for no work."""
    found = [each for each in waits if each not in why and each.kind in AT_WORK]
    return found[0] if len(found) == 1 else None
