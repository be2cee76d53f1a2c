"""Accept queues: full, or not emptied."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, Union

from udsprobe.model.action import Action
from udsprobe.model.harm import Harm
from udsprobe.model.report import (
    BlockedConnects,
    Evidence,
    Listener,
    ProcessTime,
    Report,
    ThreadTime,
)
from udsprobe.model.threads.thread_time import busy_share
from udsprobe.rules.accounts.affinity import allowed_cpus
from udsprobe.rules.accounts.service import ON_CPU
from udsprobe.rules.harm import REFUSED, SLOW, STUCK, connects
from udsprobe.rules.peers.kept import keep_others_out, served_at
from udsprobe.rules.peers.stopped import stopped_of, stopped_words
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import CRITICAL, WARNING, Suspect
from udsprobe.rules.thresholds import (
    ACCEPT_WAIT_TIMES_SERVICE,
    ACCEPT_WAIT_US_MIN,
    ALL_THE_TIME_MIN,
    BLOCKED_CONNECTS_SHARE_MIN,
    HUNG_US_MIN,
    QUEUE_OVERLOAD_DEPTH,
    SLOW_REQUESTS_MIN,
    THREAD_BUSY_MIN,
    WAIT_MEAN_US_MIN,
)
from udsprobe.rules.turned_away.full_elsewhere import full_elsewhere
from udsprobe.rules.wording import ACTIVITY_WORDS, count, duration, evidence, percent, place

# Asleep until a connection that was accepted already says something.
_SEATED = ("blocked_poll", "blocked_recv")


def accept_queue_suspects(report: Report) -> List[Suspect]:
    """Listeners of the targets, and those that the targets connect to."""
    suspects: List[Suspect] = []
    for listener in report.listeners or []:
        found = (
            unemptied(report, listener) or queue_full(report, listener) or starved(report, listener)
        )
        if found is not None:
            suspects.append(found)
    elsewhere = [full_elsewhere(report, row) for row in report.connects or []]
    return [*suspects, *(each for each in elsewhere if each is not None)]


def queue_full(report: Report, listener: Listener) -> Optional[Suspect]:
    """Connections were refused, dropped or made to wait for room."""
    refused, blocked = turned_away(listener), listener.blocked_connects
    if blocked is not None and _had_room(listener):
        # Slow calls that had another reason: there was room all the time.
        blocked = None
    waited = (blocked.count or 0) if blocked is not None else 0
    waiting = (blocked.waiting_now or 0) if blocked is not None else 0
    if not refused + waited + waiting:
        return _perhaps_full(report, listener)
    came = (listener.established or 0) + refused
    wait_us = _blocked_mean_us(blocked)
    slowed = waited / came >= BLOCKED_CONNECTS_SHARE_MIN if came else True
    is_pressure = bool(refused or waiting or (slowed and wait_us >= WAIT_MEAN_US_MIN))
    hit = min(1.0, (refused + waited + waiting) / max(came, 1))
    return Suspect(
        cause="accept-queue-full",
        name=f"accept-queue-full:{_subject(listener)}",
        severity=CRITICAL if refused or waiting else WARNING,
        is_pressure=is_pressure,
        share_pct=100 * hit,
        subject=_subject(listener),
        headline=f"{_is_full(listener)}{_too_small(report, listener)}",
        evidence=tuple(_full_evidence(listener, refused, waited, wait_us)),
        actions=choice.queue_full(report, listener),
        seen=refused + waited + waiting,
        harm=_kept_out(listener, refused, waited, waiting, wait_us),
    )


def _blocked_mean_us(blocked: Optional[BlockedConnects]) -> float:
    waits = blocked.wait_us if blocked is not None else None
    return (waits.mean if waits is not None else None) or 0.0


def _perhaps_full(report: Report, listener: Listener) -> Optional[Suspect]:
    """The queue was at its limit, and what connect() returned to the next clients is not seen."""
    if listener.established is None or listener.refused is not None or has_room(listener):
        return None
    if not _is_unix(listener):
        return None
    return Suspect(
        cause="accept-queue-full",
        name=f"accept-queue-full:{_subject(listener)}",
        severity=WARNING,
        is_pressure=False,
        share_pct=0.0,
        subject=_subject(listener),
        headline=f"{_is_full(listener)}; whether clients were refused is not seen in this detail: "
        "--detail full tells",
        evidence=tuple(_full_evidence(listener, 0, 0, 0.0)),
        actions=choice.queue_full(report, listener),
        seen=listener.established,
    )


def unemptied(report: Report, listener: Listener) -> Optional[Suspect]:
    """The queue is full, and not because it is short: nobody takes anything out of it in time."""
    if queue_full(report, listener) is None or _has_work(report, listener):
        return None
    waits_long = _mean_wait_us(listener) >= HUNG_US_MIN
    return starved(report, listener) or (_starving(report, listener) if waits_long else None)


def _has_work(report: Report, listener: Listener) -> bool:
    """A thread that accepts runs, or would if it got a CPU: it is not that it does not want to."""
    rows = _acceptor_threads(report, listener)
    return any(busy_share(row.share) >= THREAD_BUSY_MIN for row in rows)


def _is_full(listener: Listener) -> str:
    depth = listener.depth
    at = depth.max if depth.max is not None else depth.limit
    return f"accept queue of {_subject(listener)} is full at {at}/{depth.limit}"


def _too_small(report: Report, listener: Listener) -> str:
    """`; backlog 4 is too small, node is 12 % busy`."""
    backlog, busiest = listener.backlog, _busiest_acceptor(report, listener)
    said = f"; backlog {backlog.effective} is too small"
    if backlog.clamped_by is not None:
        said = f"; {backlog.clamped_by} cuts its backlog to {backlog.effective}"
    if busiest is None:
        return said
    return f"{said}, {busiest.comm} is {percent(working_share(busiest.share))} busy"


def _busiest_acceptor(report: Report, listener: Listener) -> Optional[ThreadTime]:
    rows = _acceptor_threads(report, listener)
    return max(rows, key=lambda row: working_share(row.share), default=None)


def working_share(share: Mapping[str, float]) -> float:
    """The part of its time in which a thread was on a CPU; waiting for one is no work."""
    return sum(share.get(name, 0.0) for name in ON_CPU)


def _kept_out(listener: Listener, refused: int, waited: int, waiting: int, wait_us: float) -> Harm:
    """Who did not get in: turned away, or made to wait inside connect()."""
    came = (listener.established or 0) + refused
    if refused:
        return connects(REFUSED, refused, came, "refused" if _is_unix(listener) else "dropped")
    kind = STUCK if waiting and not listener.accepted else SLOW
    if not waited:
        says = f"{count(waiting, 'client')} wait in connect()"
        return Harm(kind, None, waiting, None, says)
    many = connects(kind, waited + waiting, max(came, waited + waiting), "wait")
    return replace(many, says=f"{many.says} {duration(wait_us)} for room in the queue")


def _is_unix(listener: Listener) -> bool:
    return listener.transport == "unix"


def accepts_late(report: Report, pids: Optional[FrozenSet[int]]) -> bool:
    """Whether connections to any of these processes (None: all) wait in a queue with room."""
    rows = report.listeners or []
    return any(_is_late(report, row) for row in rows if pids is None or pids & _acceptors(row))


def late_alone(report: Report) -> FrozenSet[int]:
    """Processes with a queue of their own (`SO_REUSEPORT`, say) whose connections wait so."""
    late = [_acceptors(row) for row in report.listeners or [] if _is_late(report, row)]
    return frozenset(pid for pids in late if len(pids) == 1 for pid in pids)


def _is_late(report: Report, listener: Listener) -> bool:
    accepted, mean_us = listener.accepted or 0, _mean_wait_us(listener)
    # Those that still wait have waited in vain, however few got in.
    seen = accepted + ((listener.depth.now or 0) if accepted else 0)
    if seen < SLOW_REQUESTS_MIN or mean_us < ACCEPT_WAIT_US_MIN:
        return False
    return mean_us > ACCEPT_WAIT_TIMES_SERVICE * _burst_us(report, listener)


def _mean_wait_us(listener: Listener) -> float:
    return (listener.wait_us.mean if listener.wait_us is not None else None) or 0.0


def starved(report: Report, listener: Listener) -> Optional[Suspect]:
    """Connections wait in a queue that is not full."""
    # Where nobody tells of accepts, a queue that is not empty is one that is being worked off.
    stuck = listener.accepted == 0 and bool(listener.depth.now)
    if not stuck and not _is_late(report, listener):
        return None
    return _starving(report, listener, stuck)


def _starving(report: Report, listener: Listener, stuck: bool = False) -> Suspect:
    accepted, mean_us = listener.accepted or 0, _mean_wait_us(listener)
    return Suspect(
        cause="accept-starved",
        name=f"accept-starved:{_subject(listener)}",
        severity=CRITICAL if stuck or turned_away(listener) else WARNING,
        is_pressure=True,
        share_pct=100.0,
        subject=_subject(listener),
        headline=_why_not_accepted(report, listener),
        evidence=(*_kept_evidence(report, listener), *_starved_evidence(listener, mean_us)),
        actions=_let_in(report, listener),
        seen=accepted or (listener.depth.now or 0),
        harm=_not_let_in(listener, stuck),
        refuses=keep_others_out(report, listener),
    )


def _why_not_accepted(report: Report, listener: Listener) -> str:
    """The root first: a narrow screen cuts the end."""
    queued, doing = _queued(listener), what_acceptors_do(report, listener)
    at = f"{_subject(listener)}{queued}"
    held = stopped_of(report, listener.pids or ())
    if held is not None:
        return f"{stopped_words(held)} and does not accept at {at}"
    if _is_seated(report, listener):
        return f"the limit of connections or workers is reached at {at}{doing}"
    return f"connections to {at}{',' if queued else ''} are not accepted in time{doing}"


def _let_in(report: Report, listener: Listener) -> Tuple[Action, ...]:
    """An acceptor that may run, more seats, or an acceptor that comes in time."""
    held = stopped_of(report, listener.pids or ())
    if held is not None:
        return choice.stopped(held)
    if _is_seated(report, listener):
        # More seats are taken as the others are.
        in_front = choice.sent_slowly() if _wait_for_rest(report, listener) else ()
        return (*in_front, *choice.seats_taken(report, listener))
    locked = _locked_thread(report, listener) if listener.accepted == 0 else None
    looks = choice.stuck(report, locked.pid) if locked is not None else ()
    if keep_others_out(report, listener):
        # Idle threads of a pool wait for a lock, too.
        return (*choice.seats_taken(report, listener), *looks)
    return (*looks, *choice.accepts_late(report, listener))


def _locked_thread(report: Report, listener: Listener) -> Optional[ThreadTime]:
    """One that may be who should accept, and waits for a lock all the time."""
    rows = _acceptor_threads(report, listener)
    locked = [row for row in rows if row.share.get("blocked_lock", 0.0) >= ALL_THE_TIME_MIN]
    return next(iter(locked), None)


def _queued(listener: Listener) -> str:
    depth = listener.depth
    if depth.max is None or depth.max < depth.limit:
        return ""
    return f", its queue is full at {depth.max}/{depth.limit}"


def _not_let_in(listener: Listener, stuck: bool) -> Harm:
    refused = turned_away(listener)
    if refused:
        return _kept_out(listener, refused, 0, 0, 0.0)
    accepted, waiting = listener.accepted or 0, listener.depth.now or 0
    if listener.blocked_connects is not None:
        waiting += listener.blocked_connects.waiting_now or 0
    if stuck:
        return Harm(STUCK, 100.0, waiting, None, f"{count(waiting, 'connection')} not accepted")
    says = f"connections wait {duration(_mean_wait_us(listener))} on average for accept()"
    return Harm(SLOW, 100.0, accepted, None, says)


def _is_seated(report: Report, listener: Listener) -> bool:
    """Its threads wait for connections that they have: there is no seat for another."""
    if keep_others_out(report, listener) and _locked_thread(report, listener) is None:
        return True
    return _acceptors_mostly(report, listener) in _SEATED


def is_overloaded(listener: Listener) -> bool:
    """The queue is near its limit all the time: more arrives than is taken, no burst."""
    if not listener.depth.histogram:
        # Nothing got in: it is what it is now.
        return (listener.depth.now or 0) >= QUEUE_OVERLOAD_DEPTH * listener.depth.limit
    depths = {int(depth): n for depth, n in (listener.depth.histogram or {}).items()}
    return median_depth(depths) >= QUEUE_OVERLOAD_DEPTH * listener.depth.limit


def is_short(report: Report, listener: Listener) -> bool:
    """Even the last connection of the full queue is accepted soon: who is refused would be, too."""
    accepted, whole_us = listener.accepted or 0, report.window.duration_s * 1e6
    return listener.depth.limit * whole_us < ACCEPT_WAIT_US_MIN * accepted


def median_depth(depths: Mapping[int, int]) -> int:
    """Of the queue after each arrival; 0 when nothing arrived."""
    left = sum(depths.values()) / 2
    for depth in sorted(depths):
        left -= depths[depth]
        if left <= 0:
            return depth
    return 0


def turned_away(listener: Listener) -> int:
    """Connections that the full queue had no room for."""
    refused = (listener.refused or {}).get("EAGAIN", 0)
    if listener.overflows is not None:
        return refused + listener.overflows
    was_full = (listener.depth.max or 0) >= listener.depth.limit
    return refused + ((listener.drops or 0) if was_full else 0)


def has_room(listener: Listener) -> bool:
    """None of the depths that were seen is at the limit."""
    return max(listener.depth.max or 0, listener.depth.now or 0) < listener.depth.limit


def _had_room(listener: Listener) -> bool:
    """All the time: each arrival was seen, and none filled it."""
    return listener.depth.histogram is not None and has_room(listener)


def what_acceptors_do(report: Report, listener: Listener) -> str:
    """`; its threads spend 97 % of the time running its own code`, or nothing."""
    shares = _acceptor_shares(report, listener)
    if not shares:
        return ""
    name, share = max(shares.items(), key=lambda item: item[1])
    words = ACTIVITY_WORDS.get(name, name)
    if _wait_for_rest(report, listener):
        words = "waiting for clients to send the rest of their requests"
    return f"; {_whose_threads(report, listener)} spend {percent(share)} of the time {words}"


def _wait_for_rest(report: Report, listener: Listener) -> bool:
    """They sleep in receive calls, and most of that is within requests that have begun to come."""
    if _acceptors_mostly(report, listener) != "blocked_recv":
        return False
    owners = set(listener.pids or ())
    rows = [row for row in report.requests.served_by or () if row.pid in owners]
    receiving_us = sum((row.stages_mean_us.recv or 0.0) * row.count for row in rows)
    threads = _acceptor_threads(report, listener)
    asleep_s = sum(t.observed_s * t.share.get("blocked_recv", 0.0) for t in threads)
    return 2 * receiving_us > 1e6 * asleep_s


def _whose_threads(report: Report, listener: Listener) -> str:
    """Several processes can listen at one address (SO_REUSEPORT), each with a queue of its own."""
    pids = {thread.pid for thread in _acceptor_threads(report, listener)}
    comms = {target.pid: target.comm for target in report.targets}
    if len(comms) < 2 or len(pids) != 1:
        return "its threads"
    pid = pids.pop()
    return f"the threads of {comms.get(pid, 'process')} {pid}"


def _accepting(listener: Listener) -> FrozenSet[int]:
    """Thread ids."""
    return frozenset(map(int, listener.accepted_by_thread or {}))


def _acceptor_threads(report: Report, listener: Listener) -> List[ThreadTime]:
    threads = report.time.threads if report.time is not None else []
    accepting, owners = _accepting(listener), set(listener.pids or ())
    return [t for t in threads if t.tid in accepting] or [t for t in threads if t.pid in owners]


def _acceptors_mostly(report: Report, listener: Listener) -> Optional[str]:
    """The activity with most of their time; None: nothing is known of them."""
    shares = _acceptor_shares(report, listener)
    return max(shares, key=lambda name: shares[name]) if shares else None


def _acceptor_shares(report: Report, listener: Listener) -> Dict[str, float]:
    chosen = _acceptor_threads(report, listener)
    spent: Dict[str, float] = {}
    for thread in chosen:
        for name, share in thread.share.items():
            spent[name] = spent.get(name, 0.0) + share / len(chosen)
    return spent


def _burst_us(report: Report, listener: Listener) -> float:
    """How long the mean arrival would wait if all before it are served without a pause.

    Threads that accept do so side by side, as far as there are CPUs. A loop is kept by all that it
    serves; who does nothing but accept is kept by no request.
    """
    accepted = listener.accepted or 0
    depths = {int(depth): n for depth, n in (listener.depth.histogram or {}).items()}
    arrivals = sum(depths.values())
    if not accepted or listener.depth.histogram is None:
        return 0.0
    mean_depth = _mean_depth(depths, before=max(0, accepted - arrivals))
    busy_us = sum(busy_share(t.share) * t.observed_s for t in _busy_for_it(report, listener)) * 1e6
    allowed = allowed_cpus(report, _acceptors(listener))
    at_once = max(1, min(len(_accepting(listener)), allowed))
    return mean_depth * busy_us / accepted / at_once


def _busy_for_it(report: Report, listener: Listener) -> Sequence[Union[ThreadTime, ProcessTime]]:
    """The threads that accept; their processes where some of these are not listed."""
    if report.time is None:
        return []
    accepting = _accepting(listener)
    rows = [each for each in report.time.threads if each.tid in accepting]
    if rows and len(rows) == len(accepting):
        return rows
    owners = _acceptors(listener)
    return [each for each in report.time.processes if each.pid in owners]


def _mean_depth(depths: Mapping[int, int], before: int) -> float:
    """Of the queue as each of them came; of those `before` we looked, one behind the other."""
    deep = sum(depth * n for depth, n in depths.items()) + before * (before + 1) / 2
    return deep / (sum(depths.values()) + before)


def _acceptors(listener: Listener) -> FrozenSet[int]:
    return frozenset(listener.pids or ()) | {int(pid) for pid in listener.accepted_by or {}}


def _subject(listener: Listener) -> str:
    return place(listener)


def _full_evidence(listener: Listener, refused: int, waited: int, wait_us: float) -> List[Evidence]:
    depth, limit = listener.depth.max, listener.depth.limit
    facts = []
    if depth is not None:
        says = f"at most {depth} connections queued, the limit is {limit}"
        facts.append(evidence("accept_queue_depth_max", depth, "connections", says, limit))
    if refused:
        says = f"{count(refused, 'connection')} refused or dropped because the queue was full"
        facts.append(evidence("turned_away", refused, "connections", says, 1))
    if waited:
        says = f"{count(waited, 'client')} waited {duration(wait_us)} on average in connect()"
        facts.append(evidence("blocked_connects", waited, "connects", says))
    return facts


def _kept_evidence(report: Report, listener: Listener) -> List[Evidence]:
    if not keep_others_out(report, listener):
        return []
    rows = served_at(report, listener)
    answered = sum(row.requests or 0 for row in rows)
    says = (
        f"{count(answered, 'request')} on {count(len(rows), 'connection')} that it keeps were "
        "answered meanwhile, and no other connection was accepted"
    )
    return [evidence("answered_on_kept", answered, "requests", says)]


def _starved_evidence(listener: Listener, mean_us: float) -> List[Evidence]:
    facts = []
    if listener.accepted:
        says = f"{count(listener.accepted, 'connection')} waited {duration(mean_us)} on average"
        facts.append(evidence("accept_wait_us", mean_us, "µs", says, ACCEPT_WAIT_US_MIN))
    if listener.depth.max is not None:
        state = "not full" if has_room(listener) else "full"
        says = f"at most {listener.depth.max} queued, the limit is {listener.depth.limit}: {state}"
        facts.append(evidence("accept_queue_depth_max", listener.depth.max, "connections", says))
    return facts
