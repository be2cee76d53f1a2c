"""Requests that are stuck now: judged by the waits that go on, as completed ones by theirs.

Who will end such a wait nobody knows yet. So the subject is whoever is known to be at the other
end: the upstream, the reader, the process that holds a file lock or reads a full pipe; else the
thread that waits.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Optional, Tuple

from udsprobe.model.action import Action
from udsprobe.model.harm import Harm
from udsprobe.model.report import Evidence, Peer, Report, WaitNow
from udsprobe.rules.accounts.authors import DOING, thread_name
from udsprobe.rules.harm import STUCK
from udsprobe.rules.peers.owed import EARLY, HeldUp, held_up, kind_of, not_let_in
from udsprobe.rules.peers.stalled import BEFORE, UNREAD, asked_before_words, is_at_full_pipe
from udsprobe.rules.remedy import choice
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.suspects.suspect import CRITICAL, WARNING, Suspect
from udsprobe.rules.thresholds import STUCK_SHARE_MIN
from udsprobe.rules.wording import count, duration, evidence, process

# Of a process whose threads wait for several, what the others wait for.
_ROOTS = (
    *(("upstream", "upstream-wait"), ("work", "app-blocked")),
    *(("send", "send-blocked"), ("lock", "app-blocked")),
)
_US_PER_S = 1e6

_Alike = Tuple[str, str, str]


def stuck_suspects(report: Report) -> List[Suspect]:
    """One for all processes of one name that wait for the same kind of thing."""
    groups: Dict[_Alike, List[Tuple[HeldUp, WaitNow]]] = {}
    for each in held_up(report):
        cause, wait = _root(each)
        groups.setdefault((cause, each.comm, wait.kind), []).append((each, wait))
    return [_suspect(report, alike[0], members) for alike, members in groups.items()]


def _root(each: HeldUp) -> Tuple[str, WaitNow]:
    if is_at_full_pipe(each.waits[0]):
        return "app-blocked", each.waits[0]
    for kind, cause in _ROOTS:
        found = each.first(kind)
        if found is not None:
            return cause, found
    raise AssertionError("it is held up by something")


def _suspect(report: Report, cause: str, members: List[Tuple[HeldUp, WaitNow]]) -> Suspect:
    oldest, wait = members[0]
    pids = frozenset(each.pid for each, _ in members)
    harm = _harm(report, [each for each, _ in members])
    subject = _other_end(wait) or thread_name(wait.comm, wait.pid, wait.tid)
    return Suspect(
        cause=cause,
        name=f"{cause}:{subject}",
        severity=CRITICAL if _presses(harm) else WARNING,
        is_pressure=_presses(harm),
        share_pct=harm.share_pct or 0.0,
        subject=subject,
        headline=f"{_headline(report, wait)}{_and_others(len(members) - 1)}",
        evidence=tuple(_facts(oldest, wait, [each for each, _ in members])),
        actions=_actions(report, cause, wait),
        seen=_seen(report, [each for each, _ in members]),
        overloads=True,
        pids=pids,
        waits_for=_waits_for(wait),
        harm=harm,
    )


def _presses(harm: Harm) -> bool:
    return (harm.share_pct or 0.0) >= 100 * STUCK_SHARE_MIN


def _seen(report: Report, members: List[HeldUp]) -> int:
    """More the more there are, and the longer they wait; one that is concluded is one, and whoever
    waits to be accepted there bears it out."""
    if all(each.how == EARLY for each in members):
        return len(members) + max(not_let_in(report, each.pid) for each in members)
    longest_s = max(each.oldest_us for each in members) / _US_PER_S
    return round(sum(each.owed.count for each in members) * longest_s)


def _harm(report: Report, members: List[HeldUp]) -> Harm:
    served = report.requests.served
    owed = sum(each.owed.count for each in members)
    share = owed / (owed + (served.count if served is not None else 0))
    since_s = max(each.oldest_us for each in members) / _US_PER_S
    unread = all(each.how == UNREAD for each in members)
    what = "request unread" if unread else "reply outstanding"
    many = "requests unread" if unread else "replies outstanding"
    says = f"{count(owed, what, many)}, the oldest for {duration(_US_PER_S * since_s)}"
    if all(each.how == EARLY or _is_since_before(report, each) for each in members):
        says += " or longer"
    return Harm(STUCK, 100 * share, owed, since_s, says)


def _is_since_before(report: Report, each: HeldUp) -> bool:
    """What was unread already has been since we came, for all that is known."""
    return each.how == UNREAD and each.oldest_us >= _US_PER_S * report.window.duration_s


def _headline(report: Report, wait: WaitNow) -> str:
    who = thread_name(wait.comm, wait.pid, wait.tid)
    call = "" if wait.call is None else f" ({wait.call})"
    since_before = wait.lasted_us >= _US_PER_S * report.window.duration_s
    lasted = f"{duration(wait.lasted_us)}{' or longer' if since_before else ''}"
    doing = "waiting at a full pipe" if is_at_full_pipe(wait) else DOING.get(wait.kind, wait.kind)
    what = f"{who} has been {doing}{call} for {lasted}"
    return f"{what}{_whose_turn(wait)}"


def _whose_turn(wait: WaitNow) -> str:
    """What is known of who ends it."""
    end = _other_end(wait)
    if kind_of(wait) == "upstream":
        return f": {end or 'its upstream'} has sent nothing since"
    if kind_of(wait) == "send":
        return f": {end or 'its reader'} does not read"
    if is_at_full_pipe(wait):
        return f": {end or 'whoever has its other end'} does not read it"
    if wait.kind == "file_lock" and end is not None:
        return f", which {end} holds"
    if wait.polls_clients is False:
        return ", of which none can be its client's; who will end that is not known yet"
    return "; who will end that is not known yet"


def _other_end(wait: WaitNow) -> Optional[str]:
    """Who is known to have it in hand."""
    if wait.kind == "file_lock" or is_at_full_pipe(wait):
        return _name(wait.held_by)
    return _name(wait.peer) if kind_of(wait) in ("upstream", "send") else None


def _name(peer: Optional[Peer]) -> Optional[str]:
    if peer is None or not peer.pid:
        return None if peer is None else peer.address
    return process(peer.pid, peer.comm)


def _and_others(others: int) -> str:
    return f", and {count(others, 'more process', 'more processes')} like it" if others else ""


def _owed_words(oldest: HeldUp, owed: int) -> str:
    age = duration(oldest.oldest_us)
    if oldest.how == UNREAD:
        return f"{count(owed, 'request')} unread, the oldest for {age}"
    if oldest.how == BEFORE:
        return asked_before_words(owed, oldest.oldest_us)
    if oldest.how == EARLY:
        return (
            f"{count(owed, 'connection')} whose process has moved no byte, nor waited for any, "
            f"since this observation began: a request from before"
        )
    return f"{count(owed, 'request')} without a reply, the oldest for {age}"


def _facts(oldest: HeldUp, wait: WaitNow, members: List[HeldUp]) -> List[Evidence]:
    owed = sum(each.owed.count for each in members)
    says = _owed_words(oldest, owed)
    facts = [evidence("in_progress_oldest_us", oldest.oldest_us, "µs", says, oldest.late_us)]
    many = len(oldest.waits)
    if many > 1:
        says = f"{count(many, 'thread')} of it that may have one wait"
        facts.append(evidence("waiting_threads", many, "threads", says))
    facts += _woken_before(wait) + _meanwhile(oldest) + _client(wait)
    return facts


def _woken_before(wait: WaitNow) -> List[Evidence]:
    waker = wait.last_woken_by
    if waker is None:
        return []
    who = thread_name(waker.comm, waker.pid, waker.tid)
    says = f"the last wait for that lock ended when {who} woke who waited; it need not hold it now"
    return [evidence("last_woken_by", waker.tid or 0, "thread", says)]


def _meanwhile(oldest: HeldUp) -> List[Evidence]:
    other = oldest.meanwhile
    if other is None:
        return []
    who = thread_name(other.comm, other.pid, other.tid)
    call = "" if other.call is None else f" ({other.call})"
    says = (
        f"another thread of the process, {who}, has been {DOING.get(other.kind, other.kind)}{call} "
        f"for {duration(other.lasted_us)}"
    )
    return [evidence("other_thread_us", other.lasted_us, "µs", says)]


def _client(wait: WaitNow) -> List[Evidence]:
    name = _name(wait.peer) if wait.connection == "served" else None
    if name is None:
        return []
    says = f"{name} waits for the reply"
    return [evidence("client", (wait.peer.pid if wait.peer else 0) or 0, "pid", says)]


def _waits_for(wait: WaitNow) -> FrozenSet[int]:
    peer = wait.peer if kind_of(wait) == "upstream" else wait.held_by
    return frozenset([peer.pid] if peer is not None and peer.pid else [])


def _place(report: Report, wait: WaitNow) -> Optional[str]:
    """Where it asks: `tcp:127.0.0.1:5432`; None: not known."""
    address = None if wait.peer is None else wait.peer.address
    rows = [row for row in report.connections or [] if row.pid == wait.pid and row.peer is not None]
    found = {row.transport for row in rows if row.peer and row.peer.address == address}
    return f"{found.pop()}:{address}" if address and len(found) == 1 else None


def _let_read(wait: WaitNow) -> Tuple[Action, ...]:
    pid = None if wait.held_by is None else wait.held_by.pid
    return remedies(
        "pipe-unread", pid=wait.pid, peer_pid=pid, who=_other_end(wait) or "whoever reads it"
    )


def _actions(report: Report, cause: str, wait: WaitNow) -> Tuple[Action, ...]:
    if is_at_full_pipe(wait):
        return _let_read(wait)
    peer = wait.peer or wait.held_by
    if cause == "app-blocked" and wait.held_by is None:
        return choice.stuck(report, wait.pid)
    who = _other_end(wait) or "it"
    pid = None if peer is None or not peer.pid else peer.pid
    where = _place(report, wait) if cause == "upstream-wait" else None
    if where is not None:
        looks = choice.upstream(pid, who if pid else where, where)
        return (*looks[:1], *choice.stuck(report, wait.pid))
    kind = "reader-unix" if cause == "send-blocked" else "upstream"
    if wait.held_by is not None:
        kind, pid = "holder", wait.held_by.pid
    return (*remedies(kind, peer_pid=pid, who=who)[:1], *choice.stuck(report, wait.pid))
