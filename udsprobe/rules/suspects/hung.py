"""Servers that answer nobody: nothing completes, so no request tells of it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from udsprobe.model.harm import Harm
from udsprobe.model.report import Evidence, Report, ServedBy, ThreadTime, Waiting
from udsprobe.model.threads.thread_time import busy_share
from udsprobe.rules.accounts.cpu_holders import foreign_runq
from udsprobe.rules.accounts.service import is_serving
from udsprobe.rules.harm import STUCK
from udsprobe.rules.peers.asked import Asked, without_answer
from udsprobe.rules.peers.late import hung_after_us
from udsprobe.rules.peers.owed import is_of_one_thread
from udsprobe.rules.peers.stalled import BEFORE, asked_before_words, left_waiting
from udsprobe.rules.peers.stopped import stopped_of, stopped_words
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import CRITICAL, Suspect
from udsprobe.rules.thresholds import HUNG_US_MIN, REQUESTS_MIN, THREAD_BUSY_MIN
from udsprobe.rules.wording import ACTIVITY_WORDS, count, duration, evidence, percent, process

# For nobody who may ask it something.
_ELSEWHERE = ("blocked_lock", "blocked_disk", "blocked_other", "blocked_connect")
_ASLEEP = (*_ELSEWHERE, "blocked_recv")
_NUMBER = re.compile(r"\d[\d.,]*")


class _Owed(NamedTuple):
    """What is waited for, in words, and how much of it there is."""

    one: str
    many: str
    how: str
    waiting: Waiting


class _Found(NamedTuple):
    """Of one process, called `comm`."""

    comm: Optional[str]
    suspect: Suspect
    owed: _Owed

    def but(self, **changes: Any) -> _Found:
        """The same with another suspect."""
        return self._replace(suspect=replace(self.suspect, **changes))


def hung_suspects(report: Report) -> List[Suspect]:
    """Processes with requests that nobody begins with, or that never end.

    One for all processes of one name that do the same; but each that may not run has its own
    remedy.
    """
    alike: Dict[Tuple[Optional[str], str, str, str], List[_Found]] = {}
    held: List[Suspect] = []
    for row in report.requests.served_by or []:
        stopped = _stopped(report, row)
        if stopped is not None:
            held.append(stopped.suspect)
            continue
        found = _hung(report, row)
        if found is not None:
            metric = found.suspect.evidence[0].metric
            key = (found.comm, found.suspect.cause, metric, _does(found))
            alike.setdefault(key, []).append(found)
    return [*held, *(_together(each) for each in alike.values())]


def _does(found: _Found) -> str:
    """Its headline without numbers; whom it asks has one, too."""
    suspect = found.suspect
    asked = (suspect.subject or "") if suspect.cause == "upstream-wait" else ""
    return _NUMBER.sub("", suspect.headline) + asked


def _together(members: List[_Found]) -> Suspect:
    first, *others = sorted(members, key=lambda each: -(each.owed.waiting.oldest_us or 0.0))
    if not others:
        return first.suspect
    more = count(len(others), "more process", "more processes")
    all_owed = sum(each.owed.waiting.count for each in members)
    waiting = Waiting(all_owed, first.owed.waiting.oldest_us)
    return replace(
        first.suspect,
        headline=f"{first.suspect.headline}, and {more} like it",
        harm=_stuck(first.owed._replace(waiting=waiting)),
        seen=sum(each.suspect.seen for each in members),
        pids=frozenset(pid for each in members for pid in each.suspect.pids),
    )


def _hung(report: Report, row: ServedBy) -> Optional[_Found]:
    rules = (_asking, _computing, _unread, _unanswered, _left)
    if row.count >= REQUESTS_MIN:
        return None
    return next(filter(None, (rule(report, row) for rule in rules)), None)


def _stopped(report: Report, row: ServedBy) -> Optional[_Found]:
    """It may not run, and has requests."""
    held = stopped_of(report, [row.pid])
    waiting = max(row.in_progress, row.unread, key=lambda each: each.oldest_us or 0.0)
    oldest_us = waiting.oldest_us or 0.0
    if held is None or oldest_us < HUNG_US_MIN:
        return None
    how = "without a reply" if waiting is row.in_progress else "unread"
    says = f"{count(waiting.count, 'request')} {how}, the oldest for {duration(oldest_us)}"
    fact = evidence("stopped_oldest_us", oldest_us, "µs", says, HUNG_US_MIN)
    owed = _Owed("request", "requests", how, waiting)
    found = _found(report, row, "app-blocked", stopped_words(held), fact, owed)
    return found.but(actions=choice.stopped(held))


def _asking(report: Report, row: ServedBy) -> Optional[_Found]:
    """Its own requests get no answer, and it owes replies."""
    least_us = hung_after_us(report, row.comm)
    oldest_us = row.asking.oldest_us or 0.0
    if oldest_us < least_us or not row.in_progress.count:
        return None
    says = f"{count(row.asking.count, 'own request')} without a reply, the oldest for "
    fact = evidence("asking_oldest_us", oldest_us, "µs", says + duration(oldest_us), least_us)
    asked = without_answer(report, row)
    who = "an upstream" if asked is None else asked.where
    found = _found(
        report,
        row,
        "upstream-wait",
        f"{name_of(row)} has waited {duration(oldest_us)} for {who}{_pool(row, asked)}",
        fact,
        _Owed("reply", "replies", "outstanding", row.in_progress),
    )
    return found if asked is None else _with_upstream(found, asked)


def _with_upstream(found: _Found, asked: Asked) -> _Found:
    actions = choice.upstream(asked.pid, asked.who, asked.address)
    return found.but(
        name=f"{found.suspect.cause}:{asked.address}",
        subject=asked.address,
        actions=(*actions, *found.suspect.actions),
        waits_for=asked.pids,
    )


def _pool(row: ServedBy, asked: Optional[Asked]) -> str:
    """All connections to it are taken, and more requests are there than these."""
    if asked is None or asked.connections is None or row.asking.count < asked.connections:
        return ""
    queued = row.in_progress.count - row.asking.count
    if queued <= 0:
        return ""
    size = count(asked.connections, "connection")
    each = "it is" if asked.connections == 1 else "all are"
    queue = count(queued, "request waits", "requests wait")
    return f", and has {size} to it: {each} taken, and {queue} for one"


def _computing(report: Report, row: ServedBy) -> Optional[_Found]:
    """A thread that serves computes on and on, while requests wait for it."""
    oldest_us = max(row.in_progress.oldest_us or 0.0, row.unread.oldest_us or 0.0)
    busiest = max(_servers(report, row.pid), key=lambda each: busy_share(each.share), default=None)
    if busiest is None or not _computes(report, busiest, oldest_us):
        return None
    waiting = row.in_progress if row.in_progress.count else row.unread
    subject, busy = f"{busiest.comm} thread {busiest.tid}", busy_share(busiest.share)
    says = f"{subject} is {percent(busy)} busy, mostly with its own code"
    fact = evidence("busy_share", busy, "of 1", says, THREAD_BUSY_MIN)
    owed = _Owed("request", "requests", "without a reply", waiting)
    found = _found(report, row, "app-cpu", says, fact, owed)
    actions = choice.busy(report, row.pid, busiest.tid, busiest.comm)
    return found.but(name=f"app-cpu:{subject}", subject=subject, actions=actions)


def _servers(report: Report, pid: int) -> List[ThreadTime]:
    """The threads of a process that serve, or all where none is seen to.

    Who computes all the time makes no call that shows it, and another thread that polls may poll
    for no client at all: Node's signal watcher.
    """
    others = {each.tid for each in report.waits_now or [] if each.polls_clients is False}
    threads = report.time.threads if report.time is not None else []
    own = [each for each in threads if each.pid == pid and each.tid not in others]
    return [each for each in own if is_serving(each)] or own


def _computes(report: Report, thread: ThreadTime, waited_us: float) -> bool:
    """It wants a CPU all the time, and has had one for so long that it hangs without strangers too.

    Waiting for a CPU that no stranger holds is its own demand.
    """
    busy, waits = busy_share(thread.share), thread.share.get("runq", 0.0)
    strange = foreign_runq(report) * waits
    own = thread.share.get("user", 0.0) + waits - strange
    is_most = 2 * own > busy - strange
    return busy >= THREAD_BUSY_MIN and is_most and own * waited_us >= HUNG_US_MIN


def _unread(report: Report, row: ServedBy) -> Optional[_Found]:
    least_us = hung_after_us(report, row.comm)
    oldest_us = row.unread.oldest_us or 0.0
    doing, share = does(report, row.pid)
    is_free = doing == "blocked_poll" and row.count > 0
    if oldest_us < least_us or is_free or doing in ("user", "runq"):
        return None
    says = f"{count(row.unread.count, 'request')} unread, the oldest for {duration(oldest_us)}"
    fact = evidence("unread_oldest_us", oldest_us, "µs", says, least_us)
    return _found(
        report,
        row,
        "app-blocked",
        f"{name_of(row)} does not read its requests; its threads spend {percent(share)} "
        f"of the time {ACTIVITY_WORDS.get(doing, doing)}",
        fact,
        _Owed("request", "requests", "unread", row.unread),
        # Who reads nothing accepts nothing either; that both is so is no chain.
        overloads=False,
    )


def _unanswered(report: Report, row: ServedBy) -> Optional[_Found]:
    least_us = hung_after_us(report, row.comm)
    oldest_us = row.in_progress.oldest_us or 0.0
    doing, share = does(report, row.pid)
    if oldest_us < least_us or doing not in _ASLEEP or share < THREAD_BUSY_MIN:
        return None
    says = (
        f"{count(row.in_progress.count, 'request')} without a reply, the oldest for "
        f"{duration(oldest_us)}"
    )
    fact = evidence("in_progress_oldest_us", oldest_us, "µs", says, least_us)
    return _found(
        report,
        row,
        "app-blocked",
        f"{name_of(row)} is {ACTIVITY_WORDS.get(doing, doing)}",
        fact,
        _Owed("request", "requests", "without a reply", row.in_progress),
    )


def _left(report: Report, row: ServedBy) -> Optional[_Found]:
    """Asked before we came; its one thread has slept since, time after time, and looked at nobody.

    A sleep that goes on is judged by itself (`stuck`).
    """
    found = left_waiting(row)
    doing, share = does(report, row.pid)
    if found is None or doing not in _ELSEWHERE or share < THREAD_BUSY_MIN:
        return None
    how, waiting = found
    if how != BEFORE or not is_of_one_thread(report, row.pid) or _attends(report, row.pid):
        return None
    says = asked_before_words(waiting.count, waiting.oldest_us or 0.0)
    return _found(
        report,
        row,
        "app-blocked",
        f"{name_of(row)} is {ACTIVITY_WORDS.get(doing, doing)}",
        evidence("in_progress_oldest_us", waiting.oldest_us or 0.0, "µs", says, HUNG_US_MIN),
        _Owed("reply", "replies", "outstanding", waiting),
    )


def _attends(report: Report, pid: int) -> bool:
    """It looks at its sockets between two sleeps: a message may have needed no reply."""
    threads = report.time.threads if report.time is not None else []
    looks = ("sys_poll", "sys_socket", "blocked_poll", "blocked_recv", "blocked_accept")
    return any(
        each.share.get(name, 0.0) > 0 for each in threads if each.pid == pid for name in looks
    )


def _stuck(owed: _Owed) -> Harm:
    since_s = (owed.waiting.oldest_us or 0.0) / 1e6
    many = count(owed.waiting.count, owed.one, owed.many)
    says = f"{many} {owed.how}, the oldest for {duration(since_s * 1e6)}"
    return Harm(STUCK, None, owed.waiting.count, since_s, says)


def _found(
    report: Report,
    row: ServedBy,
    cause: str,
    headline: str,
    fact: Evidence,
    owed: _Owed,
    overloads: bool = True,
) -> _Found:
    suspect = Suspect(
        cause=cause,
        name=f"{cause}:{name_of(row)}",
        severity=CRITICAL,
        is_pressure=True,
        share_pct=100.0,
        subject=name_of(row),
        headline=headline,
        evidence=(fact,),
        actions=choice.stuck(report, row.pid),
        seen=_seen(row),
        overloads=overloads,
        pids=frozenset([row.pid]),
        harm=_stuck(owed),
    )
    return _Found(row.comm, suspect, owed)


def _seen(row: ServedBy) -> int:
    """More the more there are, and the longer they wait."""
    owed = [row.in_progress, row.unread, row.asking]
    owed += [] if row.asked_before is None else [row.asked_before]
    longest_s = max(each.oldest_us or 0.0 for each in owed) / 1e6
    return round(sum(each.count for each in owed) * max(1.0, longest_s))


def does(report: Report, pid: int) -> Tuple[str, float]:
    """The activity that its threads that serve did most, and the part of their time.

    `""` where no time of threads is known.
    """
    shares: Dict[str, float] = {}
    for thread in _servers(report, pid):
        for name, share in thread.share.items():
            shares[name] = shares.get(name, 0.0) + share * thread.observed_s
    whole = sum(shares.values())
    if not whole:
        return "", 0.0
    name = max(shares, key=lambda each: shares[each])
    return name, shares[name] / whole


def name_of(row: ServedBy) -> str:
    """`node 4711`."""
    return process(row.pid, row.comm)
