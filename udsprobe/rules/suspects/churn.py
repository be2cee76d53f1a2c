"""Connections opened for each request that could be kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import List, Optional, Sequence, Tuple

from udsprobe.model.report import (
    Action,
    Connect,
    Evidence,
    Listener,
    Peer,
    Report,
    ServedBy,
    Syscall,
    Upstream,
)
from udsprobe.rules.accounts.service import (
    ON_CPU,
    Service,
    lists_the_busiest,
    move_bytes,
    serving_threads,
    stayed_us,
    whole_service,
    without_row,
)
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import WARNING, Suspect
from udsprobe.rules.thresholds import (
    ACCEPTS_PER_REQUEST_MIN,
    CHURN_CONNECTIONS_PER_S_MIN,
    CHURN_CPU_SHARE_MIN,
    CHURN_CPUS_MIN,
    NEAR_LIMIT,
    REQUESTS_MIN,
)
from udsprobe.rules.wording import count, evidence, percent

# Made once for each connection, not for each request.
_CONNECTION_CALLS = (
    *("accept", "accept4", "connect", "socket", "close", "shutdown"),
    *("setsockopt", "getsockopt", "getsockname", "getpeername"),
)

# Some are made at its begin and at its end.
_CALLS_EACH_MAX = 2


def accepted_churn(report: Report, service: Service) -> List[Suspect]:
    """What clients open to a service."""
    listeners = [row for row in report.listeners or [] if _is_of(row, service)]
    busiest = max(listeners, key=lambda row: row.accepted or 0, default=None)
    accepted = sum(row.accepted or 0 for row in listeners)
    if busiest is None or not _is_churn(report, accepted, service.count):
        return []
    who = _client(report, service)
    name = f"{who.comm} {who.pid}" if who is not None and who.comm else "a client"
    subject = f"{busiest.transport}:{busiest.address}"
    share = connection_cpu_share(report, service)
    has_login = choice.login_server(report, busiest) is not None
    login = " (those of its login included)" if has_login else ""
    found = _suspect(
        subject=subject,
        headline=f"{name} opens {_each(accepted, service.count)}{login} to {subject}",
        report=report,
        opened=accepted,
        requests=service.count,
        actions=choice.keeping_clients(report, busiest, who.comm if who is not None else None),
        is_dear=share >= CHURN_CPU_SHARE_MIN,
    )
    says = f"{percent(share)} of the CPU time is in calls that only open and close connections"
    limit = CHURN_CPU_SHARE_MIN if share >= CHURN_CPU_SHARE_MIN else None
    cost = evidence("connection_cpu_share", share, "of 1", says, limit)
    pids = service.pids or frozenset()
    near = min(found.near or 0.0, share / CHURN_CPU_SHARE_MIN)
    found = replace(found, evidence=(*found.evidence, cost), pids=pids, near=near)
    return [_with_processes(found, share, report, service)]


def _with_processes(found: Suspect, share: float, report: Report, service: Service) -> Suspect:
    """What a process or a thread for each connection adds to that."""
    spent_us, made_us = service.spent_us(*ON_CPU), made_for_connections_us(report, service)
    cpus = made_us / 1e6 / report.window.duration_s
    if not spent_us or share + made_us / spent_us < CHURN_CPU_SHARE_MIN or cpus < CHURN_CPUS_MIN:
        return found
    says = (
        f"{percent(made_us / spent_us)} of the CPU time goes into processes or threads that "
        "start and end with connections"
    )
    fact = evidence("made_for_connections_cpus", cpus, "CPUs", says, CHURN_CPUS_MIN)
    near = max(found.near or 0.0, cpus / CHURN_CPUS_MIN)
    return replace(found, is_pressure=True, evidence=(*found.evidence, fact), near=near)


def connection_cpu_share(report: Report, service: Service) -> float:
    """The part of the service's CPU time in calls that only a new or a closed connection needs."""
    spent_us = service.spent_us(*ON_CPU)
    opened = sum(row.accepted or 0 for row in report.listeners or [] if _is_of(row, service))
    return min(1.0, _calls_us(report, opened) / spent_us) if spent_us else 0.0


def _calls_us(report: Report, connections: int) -> float:
    """CPU time of the targets in calls that so many new or closed connections need."""
    calls = [row for row in report.syscalls or [] if _is_for_connections(row)]
    return sum(_cpu_us(row, _CALLS_EACH_MAX * connections) for row in calls)


def _cpu_us(row: Syscall, most: int) -> float:
    """Of a call that is made so often for connections at most; the rest is for requests."""
    cpu_us = row.cpu_us or 0.0
    return cpu_us * min(1.0, most / row.calls) if row.calls else cpu_us


def is_most_of_the_work(service: Service) -> bool:
    """Threads compute for connections, outside of requests, as much as inside of them or more.

    What a program keeps for a connection is set up before its first request is read, and taken
    down after the last reply; inside of requests is what handlers do. A thread with several
    requests in hand computes for one of them at a time: where an event loop receives some and
    then replies to each, the work for one lies within the others.
    """
    sums = service.stage_sums_us
    inside_us = service.app_us("cpu") / _in_hand(service)
    moving_us = sums.get("recv", 0.0) + sums.get("send", 0.0) + service.spent_us("sys_poll")
    return service.spent_us(*ON_CPU) - inside_us - moving_us >= inside_us


def _in_hand(service: Service) -> float:
    """Requests of one thread, when it replies to one of them."""
    threads = serving_threads(service)
    processes = {thread.pid for thread in threads}
    each = max(1.0, len(threads) / len(processes)) if processes else 1.0
    return max(1.0, service.at_once / each)


def made_for_connections_us(report: Report, service: Service) -> float:
    """CPU time, µs, of threads that came or went in the window, but for what requests took.

    A server that forks for each connection spends it on fork, start and exit. 0
    where the busiest threads are not all listed, and for one of several services.
    """
    time = report.time
    if service.pids is not None or time is None:
        return 0.0
    if not lists_the_busiest(time, service.duration_s):
        return 0.0
    brief = [row for row in service.threads if row not in service.long_lived()]
    if not move_bytes([*brief, without_row(service)]):
        return 0.0
    stayed = stayed_us(time, service.duration_s, ON_CPU)
    return max(0.0, service.spent_us(*ON_CPU) - stayed - service.app_us("cpu"))


def _is_for_connections(row: Syscall) -> bool:
    return row.name == "epoll_ctl" or (row.name in _CONNECTION_CALLS and row.transport != "other")


def opened_churn(report: Report) -> List[Suspect]:
    """What the targets open to others."""
    found = [_opened(report, row) for row in report.connects or []]
    return [each for each in found if each is not None]


def _is_of(listener: Listener, service: Service) -> bool:
    owners = {*(listener.pids or ()), *map(int, listener.accepted_by or {})}
    return service.pids is None or bool(owners & service.pids)


def _opened(report: Report, row: Connect) -> Optional[Suspect]:
    """A target that connects again for each of its own requests."""
    asked = [
        each
        for each in report.requests.upstream or []
        if (each.transport, each.address) == (row.transport, row.address)
    ]
    requests = sum(each.count - (each.logins or 0) for each in asked)
    failed = sum(n for error, n in row.errors.items() if error != "EINPROGRESS")
    opened = row.calls - failed
    if row.transport == "udp" or not _is_churn(report, opened, requests):
        return None
    subject = f"{row.transport}:{row.address}"
    asker = _asker(report, row)
    client = asker.comm if asker is not None and asker.comm else _program(report)
    pids = frozenset((asker.pid,)) if asker is not None else None
    return _suspect(
        subject=subject,
        headline=f"{client or 'the target'} opens {_each(opened, requests)} to {subject}",
        report=report,
        opened=opened,
        requests=requests,
        actions=choice.kept_connections(report, row, pids, _answering(asked)),
        is_dear=_is_dear(report, row, asked),
    )


def most_opened(report: Report, suspects: Sequence[Suspect]) -> Optional[Suspect]:
    """Of those that churn, where most connections are opened; of several alike the innermost.

    Each request opens one there, while all others wait for it; and who keeps connections to a
    server of few workers (PHP-FPM) takes these.
    """
    churns = [each for each in suspects if each.cause == "connection-churn"]
    most = max((each.seen for each in churns), default=0)
    alike = [each for each in churns if each.seen >= (1 - NEAR_LIMIT) * most]
    return max(alike, key=lambda each: (_depth(report, each), each.seen), default=None)


def _depth(report: Report, churn: Suspect) -> int:
    """How far in the chain of targets the server is to which connections are opened."""
    where = (churn.subject or "").partition(":")[2]
    hops = [hop.address for hop in report.requests.hops or ()]
    return hops.index(where) if where in hops else len(hops)


def _is_dear(report: Report, row: Connect, asked: Sequence[Upstream]) -> bool:
    """Opening and closing has a part that is worth saving: of the time of these requests, by the
    wait for a connection and the calls for it; or of the CPU time of the targets, by those calls.
    True where that is not measured."""
    ran_us = whole_service(report).spent_us(*ON_CPU)
    if not ran_us or not row.calls:
        return True
    opened = sum(each.calls for each in report.connects or [])
    cpu_us = _calls_us(report, opened) * row.calls / opened
    later = row.connected_later_us
    spent_us = cpu_us + (row.latency_us.mean or 0.0) * row.calls
    spent_us += (later.mean or 0.0) * later.count if later is not None else 0.0
    answers_us = sum((each.latency_us.mean or 0.0) * each.count for each in asked)
    return cpu_us >= CHURN_CPU_SHARE_MIN * ran_us or spent_us >= CHURN_CPU_SHARE_MIN * (
        spent_us + answers_us
    )


def _is_churn(report: Report, opened: int, requests: int) -> bool:
    if requests < REQUESTS_MIN or not report.window.duration_s:
        return False
    return opened >= REQUESTS_MIN and opened / requests >= ACCEPTS_PER_REQUEST_MIN


def _answering(asked: Sequence[Upstream]) -> Optional[str]:
    """What answers there calls itself."""
    return next((each.peer.comm for each in asked if each.peer and each.peer.comm), None)


def _each(opened: int, requests: int) -> str:
    if opened >= 0.9 * requests:
        return "a connection for each request"
    return f"a connection for every {round(requests / opened, 1):g} requests"


def _suspect(
    subject: str,
    headline: str,
    report: Report,
    opened: int,
    requests: int,
    actions: Tuple[Action, ...],
    is_dear: bool = True,
) -> Suspect:
    ratio, rate = opened / requests, opened / report.window.duration_s
    return Suspect(
        cause="connection-churn",
        name=f"connection-churn:{subject}",
        severity=WARNING,
        is_pressure=is_dear and rate >= CHURN_CONNECTIONS_PER_S_MIN,
        share_pct=100 * min(1.0, ratio),
        subject=subject,
        headline=headline,
        evidence=_evidence(opened, requests, rate),
        actions=actions,
        seen=opened,
        near=min(ratio / ACCEPTS_PER_REQUEST_MIN, rate / CHURN_CONNECTIONS_PER_S_MIN),
    )


def _evidence(opened: int, requests: int, rate: float) -> Tuple[Evidence, ...]:
    many = f"{count(opened, 'connection')} for {count(requests, 'request')}"
    quick = f"{rate:,.0f} connections per second"
    return (
        evidence(
            "connections_per_request", opened / requests, "of 1", many, ACCEPTS_PER_REQUEST_MIN
        ),
        evidence("connections_per_s", rate, "1/s", quick, CHURN_CONNECTIONS_PER_S_MIN),
    )


def _client(report: Report, service: Service) -> Optional[Peer]:
    """Who is at the other end of most requests that were kept and the first of a new connection:
    others may keep more connections open, and open none. Where such are not known, of most served
    connections that are open now; where these are as short as their requests, of all kept ones."""
    kept = [*(report.requests.slowest or []), *(report.requests.sampled or [])]
    first = [row for row in kept if row.stages_us.accept_wait is not None]
    served = [row for row in report.connections or [] if row.role == "served"]
    for rows in (first, served, kept):
        peers = [
            row.peer
            for row in rows
            if row.peer is not None and row.peer.pid
            if service.pids is None or row.pid in service.pids
        ]
        if peers:
            # Of TCP each connection's other end has an address of its own.
            ends = Counter(peer.pid for peer in peers)
            return max(peers, key=lambda peer: ends[peer.pid])
    return None


def _asker(report: Report, row: Connect) -> Optional[ServedBy]:
    """Of the processes that serve, the one that asks most there."""
    there = (row.transport, row.address)
    asked = [
        (sum(own.count for own in each.upstream if (own.transport, own.address) == there), each)
        for each in report.requests.served_by or ()
    ]
    count, most = max(asked, key=lambda one: one[0], default=(0, None))
    return most if count else None


def _program(report: Report) -> Optional[str]:
    """Who asks others, of a chain of targets; else who serves most, where one does: the first
    target may be a shell that has started it."""
    asking = [hop for hop in report.requests.hops or () if hop.next and hop.comm]
    if asking:
        return max(asking, key=lambda hop: hop.count).comm
    served = max(report.requests.served_by or (), key=lambda row: row.count, default=None)
    if served is not None and served.comm:
        return served.comm
    return report.targets[0].comm if report.targets else None
