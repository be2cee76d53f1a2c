"""Accept queues: full, or not emptied."""

from __future__ import annotations

import shlex
from typing import Dict, FrozenSet, List, Mapping, Optional, Tuple

from udsprobe.model.report import Action, Connect, Evidence, Listener, Report
from udsprobe.model.thread_time import busy_share
from udsprobe.rules.programs import backlog_line
from udsprobe.rules.suspect import CRITICAL, WARNING, Suspect
from udsprobe.rules.thresholds import (
    ACCEPT_WAIT_TIMES_SERVICE,
    ACCEPT_WAIT_US_MIN,
    BLOCKED_CONNECTS_SHARE_MIN,
    QUEUE_OVERLOAD_DEPTH,
    SLOW_REQUESTS_MIN,
    WAIT_MEAN_US_MIN,
)
from udsprobe.rules.wording import ACTIVITY_WORDS, count, duration, evidence, percent

BACKLOG_STEP = 4
BACKLOG_MIN = 1024


def accept_queue_suspects(report: Report) -> List[Suspect]:
    """Listeners of the targets, and those that the targets connect to."""
    suspects: List[Suspect] = []
    for listener in report.listeners or []:
        found = queue_full(report, listener) or starved(report, listener)
        if found is not None:
            suspects.append(found)
    suspects += [each for row in report.connects or [] for each in _full_elsewhere(row)]
    return suspects


def queue_full(report: Report, listener: Listener) -> Optional[Suspect]:
    """Connections were refused, dropped or made to wait for room."""
    refused, blocked = turned_away(listener), listener.blocked_connects
    if blocked is not None and _had_room(listener):
        # Slow calls that had another reason: there was room all the time.
        blocked = None
    waited = blocked.count if blocked is not None else 0
    waiting = blocked.waiting_now if blocked is not None else 0
    if not refused + waited + waiting:
        return None
    came = (listener.established or 0) + refused
    wait_us = (blocked.wait_us.mean if blocked is not None else None) or 0.0
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
        headline=f"accept queue of {_subject(listener)} is full at "
        f"{listener.depth.max if listener.depth.max is not None else listener.depth.limit}"
        f"/{listener.depth.limit}: {_consequences(refused, waited, waiting)}",
        evidence=tuple(_full_evidence(listener, refused, waited, wait_us)),
        actions=tuple(_full_actions(report, listener)),
        seen=refused + waited + waiting,
    )


def accepts_late(report: Report, pids: Optional[FrozenSet[int]]) -> bool:
    """Whether connections to any of these processes (None: all) wait in a queue with room."""
    rows = report.listeners or []
    return any(_is_late(report, row) for row in rows if pids is None or pids & _acceptors(row))


def _is_late(report: Report, listener: Listener) -> bool:
    accepted, mean_us = listener.accepted or 0, _mean_wait_us(listener)
    if accepted < SLOW_REQUESTS_MIN or mean_us < ACCEPT_WAIT_US_MIN:
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
    accepted, mean_us = listener.accepted or 0, _mean_wait_us(listener)
    doing = what_acceptors_do(report, listener)
    waits = f"{count(listener.depth.now or 0, 'connection')} in the queue, none accepted"
    if not stuck:
        waits = f"connections wait {duration(mean_us)} in the mean"
    return Suspect(
        cause="accept-starved",
        name=f"accept-starved:{_subject(listener)}",
        severity=CRITICAL if stuck else WARNING,
        is_pressure=True,
        share_pct=100.0,
        subject=_subject(listener),
        headline=f"nobody accepts at {_subject(listener)} in time: {waits}{doing}",
        evidence=tuple(_starved_evidence(listener, mean_us)),
        actions=(
            Action(
                "accept in a thread or loop that does nothing else, or start more workers",
                "the queue has room; who takes connections out of it comes too late",
            ),
        ),
        seen=accepted or (listener.depth.now or 0),
    )


def is_overloaded(listener: Listener) -> bool:
    """The queue is near its limit all the time: more arrives than is taken, no burst."""
    depths = {int(depth): n for depth, n in (listener.depth.histogram or {}).items()}
    return median_depth(depths) >= QUEUE_OVERLOAD_DEPTH * listener.depth.limit


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


def _had_room(listener: Listener) -> bool:
    """All the time: each arrival was seen, and none filled it."""
    depth = listener.depth
    return depth.histogram is not None and (depth.max or 0) < depth.limit


def what_acceptors_do(report: Report, listener: Listener) -> str:
    """`; its thread node 4711 is 97 % running its own code`, or nothing."""
    shares = _acceptor_shares(report, listener)
    if not shares:
        return ""
    name, share = max(shares.items(), key=lambda item: item[1])
    return f"; its threads are {percent(share)} of the time {ACTIVITY_WORDS.get(name, name)}"


def _acceptor_shares(report: Report, listener: Listener) -> Dict[str, float]:
    threads = report.time.threads if report.time is not None else []
    accepting = {int(tid) for tid in listener.accepted_by_thread or {}}
    owners = set(listener.pids or ())
    chosen = [t for t in threads if t.tid in accepting] or [t for t in threads if t.pid in owners]
    spent: Dict[str, float] = {}
    for thread in chosen:
        for name, share in thread.share.items():
            spent[name] = spent.get(name, 0.0) + share / len(chosen)
    return spent


def _burst_us(report: Report, listener: Listener) -> float:
    """How long the mean arrival would wait if all before it are served without a pause."""
    accepted = listener.accepted or 0
    depths = {int(depth): n for depth, n in (listener.depth.histogram or {}).items()}
    arrivals = sum(depths.values())
    if not accepted or not arrivals:
        return 0.0
    mean_depth = sum(depth * n for depth, n in depths.items()) / arrivals
    owners = _acceptors(listener)
    processes = report.time.processes if report.time is not None else []
    busy_us = sum(busy_share(p.share) * p.observed_s * 1e6 for p in processes if p.pid in owners)
    return mean_depth * busy_us / accepted


def _acceptors(listener: Listener) -> FrozenSet[int]:
    return frozenset(listener.pids or ()) | {int(pid) for pid in listener.accepted_by or {}}


def _subject(listener: Listener) -> str:
    return f"{listener.transport}:{listener.address}"


def _consequences(refused: int, waited: int, waiting: int) -> str:
    parts = []
    if refused:
        parts.append(f"{count(refused, 'connection')} refused or dropped")
    if waited:
        parts.append(f"{count(waited, 'client')} waited in connect()")
    if waiting:
        parts.append(f"{count(waiting, 'client')} waiting in connect() now")
    return ", ".join(parts)


def _full_evidence(listener: Listener, refused: int, waited: int, wait_us: float) -> List[Evidence]:
    depth, limit = listener.depth.max, listener.depth.limit
    facts = []
    if depth is not None:
        says = f"{depth} connections queued at the most, {limit} fit"
        facts.append(evidence("accept_queue_depth_max", depth, "connections", says, limit))
    if refused:
        says = f"{count(refused, 'connection')} refused or dropped for want of room"
        facts.append(evidence("turned_away", refused, "connections", says, 1))
    if waited:
        says = f"{count(waited, 'client')} waited {duration(wait_us)} in the mean in connect()"
        facts.append(evidence("blocked_connects", waited, "connects", says))
    return facts


def _starved_evidence(listener: Listener, mean_us: float) -> List[Evidence]:
    facts = []
    if listener.accepted:
        says = f"{count(listener.accepted, 'connection')} waited {duration(mean_us)} in the mean"
        facts.append(evidence("accept_wait_us", mean_us, "µs", says, ACCEPT_WAIT_US_MIN))
    if listener.depth.max is not None:
        says = f"{listener.depth.max} queued at the most, {listener.depth.limit} fit: not full"
        facts.append(evidence("accept_queue_depth_max", listener.depth.max, "connections", says))
    return facts


def _full_actions(report: Report, listener: Listener) -> List[Action]:
    backlog = listener.backlog
    more = max(BACKLOG_MIN, BACKLOG_STEP * backlog.effective)
    program = _program(report, listener)
    raise_it = Action(
        backlog_line(program, more), "the server asks for that many places in its queue"
    )
    somaxconn = Action(
        f"sysctl -w net.core.somaxconn={more}  (in the server's network namespace; "
        "then restart the server: listen() reads it once)",
        "the kernel cuts what the server asks for to this limit",
    )
    if backlog.clamped_by is not None:
        return [somaxconn]
    if backlog.equals_somaxconn:
        return [somaxconn, raise_it]
    return [raise_it]


def _program(report: Report, listener: Listener) -> str:
    owners = set(listener.pids or ())
    return next((t.comm for t in report.targets if t.pid in owners), "")


def _full_elsewhere(row: Connect) -> List[Suspect]:
    """The queue that a target found full when it wanted to connect."""
    refused = row.errors.get("EAGAIN", 0) if row.transport == "unix" else 0
    mean_us = row.latency_us.mean or 0.0
    slow = row.transport == "unix" and row.calls and mean_us >= WAIT_MEAN_US_MIN
    if not refused and not slow:
        return []
    subject = f"{row.transport}:{row.address}"
    where = shlex.quote(row.address)
    what = f"{count(refused, 'connect')} of {row.calls:,} failed with EAGAIN"
    if not refused:
        what = f"connect() takes {duration(mean_us)} in the mean"
    facts: Tuple[Evidence, ...] = (
        evidence("connects_refused", refused, "connects", f"{what}: no room in the queue", 1),
        evidence("connect_mean_us", mean_us, "µs", f"connect() took {duration(mean_us)}"),
    )
    return [
        Suspect(
            cause="accept-queue-full",
            name=f"accept-queue-full:{subject}",
            severity=CRITICAL if refused else WARNING,
            is_pressure=True,
            share_pct=100 * (refused / row.calls if refused else 1.0),
            subject=subject,
            headline=f"the accept queue of {subject}, which the target connects to, is full: "
            f"{what}",
            evidence=facts,
            actions=(
                Action(
                    f"udsprobe listeners | grep -F {where}; then udsprobe attach "
                    f"--listener {where}",
                    "shows the limit of that queue and what its server does instead of accepting",
                ),
            ),
            seen=refused or row.calls,
        )
    ]
