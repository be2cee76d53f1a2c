"""Verdicts without a culprit: healthy, with the headroom of each; unknown, and what is missing."""

from __future__ import annotations

from typing import Iterable, List, Mapping, NamedTuple, Optional, Tuple

from udsprobe.model.action import LOOKS
from udsprobe.model.report import (
    Action,
    Evidence,
    Listener,
    Report,
    ServedBy,
    ThreadTime,
    Verdict,
    Waiting,
)
from udsprobe.model.threads.thread_time import busy_share
from udsprobe.rules.accounts.authors import DOING
from udsprobe.rules.accounts.lock_use import busiest_lock
from udsprobe.rules.accounts.other_clients import Sender, is_ssh, waits_for_others, who_sends
from udsprobe.rules.accounts.request_time import RequestTime, request_time
from udsprobe.rules.accounts.saturation import is_busy_for_nobody
from udsprobe.rules.accounts.service import Service, in_erlang, in_virtual_threads, serving_threads
from udsprobe.rules.accounts.transport_share import TransportShare
from udsprobe.rules.causes import HEALTHY, UNKNOWN
from udsprobe.rules.harm import NOBODY, not_enough_seen
from udsprobe.rules.nearness import clearness
from udsprobe.rules.peers.readers import busy_s, held_share, holds_bytes
from udsprobe.rules.remedy import choice
from udsprobe.rules.servers import IN_GOROUTINES, carries_sessions, is_go
from udsprobe.rules.suspects.own_asks import TOLD_MAX, OwnAsks, own_asks
from udsprobe.rules.suspects.processing import is_enough
from udsprobe.rules.thresholds import (
    CONTENTION_US_MIN,
    HUNG_US_MIN,
    NEAR_LIMIT,
    REQUESTS_MIN,
    STREAM_CALLS_MIN,
    THREAD_BUSY_MIN,
    WAIT_SHARE_MIN,
)
from udsprobe.rules.upstreams import MostAsked, asks_only, most_asked, times, times_in_turn
from udsprobe.rules.wording import at_most, count, duration, evidence, percent, place


def unknown(report: Report, service: Service, share: TransportShare) -> Optional[Verdict]:
    """Too little traffic to say; None when there is enough."""
    if is_enough(request_time(service)) or _socket_calls(report) >= STREAM_CALLS_MIN:
        return None
    owed = owed_replies(report) or asked_before(report)
    if asks_only(service) and not owed:
        return None
    if _has_no_socket(report):
        return _no_socket(share)
    asks = own_asks(report)
    elsewhere = _served_elsewhere(report)
    owed += [*(each.fact for each in asks), *(fact for fact, _ in elsewhere)]
    missing = REQUESTS_MIN - service.count
    says = f"{count(service.count, 'request')} served, {REQUESTS_MIN} are needed"
    return Verdict(
        cause="unknown",
        transport_bound=False,
        transport_share_pct=share.share_pct,
        max_gain_pct=share.max_gain_pct,
        confidence=0.0,
        summary=f"{_told(owed)}Too little traffic to say: {service.count} of {REQUESTS_MIN} "
        f"requests seen, {missing} more are needed.",
        subject=None,
        evidence=[
            *owed,
            evidence("requests", service.count, "requests", says, REQUESTS_MIN),
        ],
        actions=_actions_of(asks) or _looks_at_owing(report) or [at for _, at in elsewhere],
        class_=UNKNOWN,
        harm=not_enough_seen(owed[0].says if owed else f"{count(service.count, 'request')} seen"),
    )


def _served_elsewhere(report: Report) -> List[Tuple[Evidence, Action]]:
    """Connections that processes accepted which are no targets, where these are most: of workers
    that share a listener some are observed, and have little to do."""
    rows = [row for row in report.listeners or [] if row.established and row.depth.now is not None]
    if not rows:
        return []
    row = max(rows, key=_accepted_elsewhere)
    others = _accepted_elsewhere(row)
    if others <= (row.accepted or 0):
        return []
    says = (
        f"{others:,} of {count(row.established or 0, 'connection')} to {place(row)} were accepted "
        "by processes that are not observed"
    )
    fact = evidence("accepted_elsewhere", others, "connections", says)
    return [(fact, each) for each in choice.served_elsewhere(row.address)]


def _accepted_elsewhere(row: Listener) -> int:
    """Of those that came, without the ones that wait."""
    return (row.established or 0) - (row.accepted or 0) - (row.depth.now or 0)


def _has_no_socket(report: Report) -> bool:
    """Nothing that could carry a request was seen, and all that could have been was measured."""
    kinds = (report.listeners, report.connections, report.syscalls)
    return not any(each is None for each in kinds) and not (
        report.listeners
        or report.connections_total
        or any(row.transport != "other" for row in report.syscalls or [])
    )


def _no_socket(share: TransportShare) -> Verdict:
    says = "no target listens, has a connection, or has called a socket"
    return Verdict(
        cause="unknown",
        transport_bound=False,
        transport_share_pct=share.share_pct,
        max_gain_pct=share.max_gain_pct,
        confidence=0.0,
        summary="No target has a socket, so there is no request to judge; `udsprobe listeners` "
        "says which processes serve.",
        subject=None,
        evidence=[evidence("sockets", 0, "sockets", says)],
        class_=UNKNOWN,
        harm=not_enough_seen("no target has a socket"),
    )


def _told(facts: List[Evidence]) -> str:
    return "".join(f"{fact.says[0].upper()}{fact.says[1:]}. " for fact in facts)


def _may_owe(report: Report) -> List[ServedBy]:
    """Who serves requests; what a session of SSH has received last need not have an answer."""
    rows = report.requests.served_by or []
    return [row for row in rows if not carries_sessions(row.comm)]


def owed_replies(report: Report) -> List[Evidence]:
    """Requests that wait for their reply for long: nobody completes, and long polls look so."""
    served = _may_owe(report)
    owed = _for_long(row.unanswered for row in served)
    if owed is None:
        return []
    says = (
        f"{count(owed.count, 'reply is', 'replies are')} outstanding, the oldest for "
        f"{duration(owed.oldest_us or 0.0)}: "
        "long polls, or requests that hang"
    )
    gone = sum(row.abandoned.count for row in served if row.abandoned)
    if gone:
        says += f"; the clients of {gone:,} have closed their end"
    return [evidence("replies_owed", owed.count, "replies", says)]


def asked_before(report: Report) -> List[Evidence]:
    """Clients that had spoken last when we came, and have no answer since."""
    asked = _for_long(row.asked_before for row in _may_owe(report))
    if asked is None:
        return []
    says = (
        f"on {count(asked.count, 'connection')} the client has spoken last, the longest ago "
        f"{duration(asked.oldest_us or 0.0)}, before this observation began: requests that hang, "
        "long polls, or messages that need no reply"
    )
    return [evidence("asked_before", asked.count, "connections", says)]


def _behind(report: Report) -> List[OwnAsks]:
    """What processes wait for themselves whose clients wait for long: a proxy's, upstream.

    They asked after their clients did, as far as the kernel's ticks tell. Where these speak HTTP/2,
    their last frame may be one that nobody answers.
    """
    found: List[OwnAsks] = []
    for row in report.requests.served_by or []:
        waiting = _for_long([row.unanswered]) or _for_long([row.asked_before])
        if waiting is not None and not row.multiplexed:
            since_us = (waiting.oldest_us or 0.0) + HUNG_US_MIN
            asks = own_asks(report, of=[row.pid])
            found += [each for each in asks if each.fact.value <= since_us]
    return sorted(found, key=lambda each: -each.fact.value)[:TOLD_MAX]


def _actions_of(asks: List[OwnAsks]) -> List[Action]:
    return [action for each in asks for action in each.actions]


def _looks_at_owing(report: Report) -> List[Action]:
    """Where its clients may wait for ever; of long polls it shows that they are that.

    Nothing says that anybody suffers, so nothing is changed for it, or ended to look at it.
    """
    waiting = [
        (_for_long([row.unanswered]) or _for_long([row.asked_before]), row.pid)
        for row in _may_owe(report)
    ]
    oldest = [(each.oldest_us or 0.0, pid) for each, pid in waiting if each is not None]
    found = choice.stuck(report, max(oldest)[1]) if oldest else ()
    return [each for each in found if each.effect == LOOKS]


def _for_long(rows: Iterable[Optional[Waiting]]) -> Optional[Waiting]:
    """All of them together; None where none has waited for a second."""
    known = [row for row in rows if row is not None and row.count]
    oldest_us = max((row.oldest_us or 0.0 for row in known), default=0.0)
    if oldest_us < HUNG_US_MIN:
        return None
    return Waiting(sum(row.count for row in known), oldest_us)


def untold(report: Report) -> Verdict:
    """What requests spend their time on is not measured: no cause is named, and none excluded."""
    return Verdict(
        cause="unknown",
        transport_bound=False,
        transport_share_pct=None,
        max_gain_pct=None,
        confidence=0.0,
        summary=f"What requests spend their time on is not measured {_where_not(report)}: no limit "
        f"was seen to be reached, which does not prove health{_way_to_more(report)}.",
        subject=None,
        evidence=[*_queue_room(report), *_descriptor_room(report)],
        class_=UNKNOWN,
        harm=not_enough_seen(),
    )


def _where_not(report: Report) -> str:
    return "in detail light" if report.probe.detail == "light" else "here"


def _way_to_more(report: Report) -> str:
    return "; --detail full measures it" if report.probe.detail == "light" else ""


def healthy(
    report: Report,
    service: Service,
    time: RequestTime,
    share: TransportShare,
    near: Mapping[str, float],
) -> Verdict:
    """Nothing is significant; says how far away each limit is."""
    asks = _behind(report)
    before = asked_before(report)
    owed = [*owed_replies(report), *(before if asks else [])]
    told = [*owed, *(each.fact for each in asks)]
    facts = [*(told if asks else [*owed, *before]), *_thread_room(report, service, time)]
    facts += [*_queue_room(report), *_descriptor_room(report)]
    locks = _lock_room(report, service)
    facts += [*locks, *_reader_room(report)]
    cause, value = _nearest(near)
    asked = asks_only(service)
    sender = _sender(report, service, time)
    asleep = _asleep_itself(service) if asked is not None else None
    where = _asks(asked, asleep) if asked else _where(report, service, time, share, sender)
    gain = ""
    if share.max_gain_pct is not None:
        gain = f" A free transport would save {at_most(share.max_gain_pct / 100)} of request time."
    return Verdict(
        cause="healthy",
        transport_bound=False,
        transport_share_pct=share.share_pct,
        max_gain_pct=share.max_gain_pct,
        confidence=_confidence(_amount(report, service, asked, owed), value),
        summary=f"No bottleneck: {_with_owed(where, told)}{_near_words(cause, value)}"
        f"{_lock_words(locks)}{gain}",
        subject=None,
        evidence=[*(asked.facts if asked else ()), *_sender_facts(sender), *facts],
        actions=[*_actions_of(asks), *_looks(report, asked, asleep, sender)],
        class_=HEALTHY,
        harm=NOBODY,
    )


def _nearest(near: Mapping[str, float]) -> Tuple[str, float]:
    """What is next to be called pressure; a figure beyond its limit has another reason not to."""
    below = {cause: value for cause, value in near.items() if value < 1}
    cause = max(below, key=lambda name: below[name], default="")
    value = below.get(cause, 0.0)
    return (cause, value) if value >= 1 - NEAR_LIMIT else ("", 0.0)


def _near_words(cause: str, value: float) -> str:
    return f" Near a limit: {cause} is at {percent(value)} of it." if cause else ""


def _with_owed(where: str, owed: List[Evidence]) -> str:
    return "; ".join((where.rstrip("."), *(fact.says for fact in owed))) + "."


def _seen(service: Service, owed: List[Evidence]) -> float:
    """How much was seen, of 1: less where part of the requests may hang."""
    missing = REQUESTS_MIN + sum(fact.value for fact in owed)
    return (service.count + 1) / (service.count + 1 + missing)


def _confidence(amount: float, near: float) -> float:
    return round(min(0.99, amount * (0.5 + 0.5 * clearness(near))), 2)


def _amount(
    report: Report, service: Service, asked: Optional[MostAsked], owed: List[Evidence]
) -> float:
    if asked is not None:
        return ASKS_ONLY_SURE
    return PUSHES_ONLY_SURE if _pushes(report, service) and not owed else _seen(service, owed)


# It waits for slow answers, or for work: nothing tells which.
ASKS_ONLY_SURE = 0.5
# What it sends may come late: nobody asks for it, so nothing tells when it was due.
PUSHES_ONLY_SURE = 0.5
_NOTHING = "nothing is saturated, refused or blocked"


def _asks(asked: MostAsked, asleep: Optional[_Asleep]) -> str:
    """Of a worker, a job, a client: whether it waits for slow answers or for work is not known."""
    many = count(asked.count, "request")
    took = f"its own {many} to {asked.where} took {duration(asked.mean_us)} on average"
    rests = "" if asleep is None else f", {asleep.clause()}"
    return f"it served no request; {took}{rests}, and {_NOTHING} here."


class _Asleep(NamedTuple):
    """What a thread waits for that is neither an answer nor work, and for how much of the time."""

    thread: ThreadTime
    kind: str
    share: float

    def clause(self) -> str:
        """`worker 4711 was asleep by a timer for 80 % of the time`."""
        who = f"{self.thread.comm} {self.thread.tid}"
        return f"{who} was {DOING[self.kind]} for {percent(self.share)} of the time"


_OF_ITS_OWN = ("sleep", "child", "disk")


def _asleep_itself(service: Service) -> Optional[_Asleep]:
    """The thread that asks, where it does so for most of the time."""
    threads = serving_threads(service)
    asks = max(threads, key=lambda t: t.share.get("sys_socket", 0.0) * t.observed_s, default=None)
    if asks is None or not asks.observed_s:
        return None
    own = [row for row in service.waits if (row.pid, row.tid) == (asks.pid, asks.tid)]
    longest = max(
        (row for row in own if row.kind in _OF_ITS_OWN), key=lambda row: row.total_us, default=None
    )
    share = longest.total_us / 1e6 / asks.observed_s if longest is not None else 0.0
    if longest is None or share < WAIT_SHARE_MIN:
        return None
    return _Asleep(asks, longest.kind, min(1.0, share))


def _looks(
    report: Report,
    asked: Optional[MostAsked],
    asleep: Optional[_Asleep],
    sender: Optional[Sender],
) -> Tuple[Action, ...]:
    """Where to look if somebody waits all the same."""
    if asked is None:
        return choice.sender(sender.pid, sender.who) if sender is not None else ()
    if asleep is not None:
        return choice.sleeps(report, asleep.thread.pid, on_disk=asleep.kind == "disk")
    return asked.actions()


def _carried(report: Report, service: Service) -> Optional[str]:
    """What waits inside of the program, where threads carry it; None where they wait themselves."""
    if is_go(report, service.pids):
        return "goroutines"
    if in_virtual_threads(service):
        return "processes of Erlang" if in_erlang(service) else "virtual threads"
    return None


def _where(
    report: Report,
    service: Service,
    time: RequestTime,
    transport: TransportShare,
    sender: Optional[Sender],
) -> str:
    if not time.count:
        return f"no request-reply turns were seen{_sends(report, service)}, and {_NOTHING}."
    largest = _largest(time)
    mean = duration(time.total_us / time.count)
    words = {
        "cpu": "its own CPU time",
        "transport": "moving bytes",
        "runq": "waiting for a CPU",
        "upstream": _upstream_words(service, time),
        "lock": "locks",
        "disk": "the disk",
        "timer": "waiting in its poller",
        "sleep": "sleeping",
        "send": "readers",
        "accept": "accept()",
        "client": "waiting for clients to send the rest of their requests",
        "other_clients": "waiting for what another client"
        f"{f', {sender.who},' if sender else ''} sends: a blocking queue, a long poll, a replica "
        "that confirms",
    }
    if is_ssh(report, service.pids):
        words["other_clients"] = "waiting for what its users' commands do, or users type"
    inside = _carried(report, service)
    if inside is not None:
        words.update(dict.fromkeys(IN_GOROUTINES, f"waits of its {inside}"))
    part = time.share(largest)
    if largest == "transport" and transport.max_gain_pct is not None:
        part = transport.max_gain_pct / 100  # the one figure that is told of it
    told = f"a request takes {mean}, {percent(part)} of it {words[largest]}"
    return f"{told}{_last_byte(report, time)}{_why_no_wait(time)}."


def _upstream_words(service: Service, time: RequestTime) -> str:
    """Of a request that asks again and again, how often: no illness while it is short, and what
    grows with the rows that it asks for."""
    asked = most_asked(service)
    each = times_in_turn(service, asked, time.sum_us("upstream")) if asked is not None else None
    if asked is None or each is None:
        return "its upstreams"
    return f"waiting for {asked.who}, which it asks {times(each)} times"


def _sends(report: Report, service: Service) -> str:
    """What was sent where nobody asked: some of it may be of handshakes."""
    pushed, served = _pushes(report, service), report.requests.served
    if not pushed:
        return ""
    handshakes = (served.tls_handshakes if served is not None else None) or 0
    messages = f"{count(pushed, 'message')} were sent"
    if not handshakes:
        return f": {messages} unasked (pushes, streams)"
    return f": {count(handshakes, 'TLS handshake')} of clients, and {messages}, theirs among them"


def _largest(time: RequestTime) -> str:
    """The part of request time that is the largest."""
    return max(time.parts_us, key=lambda name: time.parts_us[name])


def _sender(report: Report, service: Service, time: RequestTime) -> Optional[Sender]:
    """Who sends what most of the time of requests is waited for; None where they do not wait so,
    and of Kafka, where a time limit ends fetches as well, and of SSH."""
    if (
        not time.count
        or _largest(time) != "other_clients"
        or waits_for_others(report, service.pids)
    ):
        return None
    return who_sends(service.waits, service.clients)


def _sender_facts(sender: Optional[Sender]) -> Tuple[Evidence, ...]:
    if sender is None:
        return ()
    says = f"{sender.who} ends {percent(sender.share)} of the waits for clients in its poller"
    return (evidence("waits_author_share", sender.share, "of 1", says),)


def _last_byte(report: Report, time: RequestTime) -> str:
    """Where moving on the rest of replies takes most of what their clients wait for."""
    rows = [row.in_pieces for row in report.requests.served_by or [] if row.in_pieces]
    many = sum(row.count for row in rows)
    whole_us = sum((row.transfer_mean_us or 0.0) * row.count for row in rows)
    if not many or whole_us <= time.total_us:
        return ""
    return f", and its reply {duration(whole_us / many)} from the first byte to the last"


def _why_no_wait(time: RequestTime) -> str:
    """Most of a request is waiting for a CPU, and that is no contention: why."""
    if time.share("runq") < WAIT_SHARE_MIN:
        return ""
    if time.mean_us("runq") < CONTENTION_US_MIN:
        short, limit = duration(time.mean_us("runq")), duration(CONTENTION_US_MIN)
        return f", {short} on average, which is short (pressure begins at {limit})"
    return ", in few stalls that held up many requests: its threads get the CPU they need"


def _lock_room(report: Report, service: Service) -> List[Evidence]:
    """A lock that is hardly ever free is a limit, however short the waits for it are."""
    found = busiest_lock(report, service)
    if found is None or found.share < THREAD_BUSY_MIN:
        return []
    says = (
        f"somebody waits for the lock at {found.lock.address} of process {found.lock.pid} for "
        f"{percent(found.share)} of the time, so it is held as long or longer"
    )
    return [evidence("lock_held_share", found.share, "of 1", says)]


def _reader_room(report: Report) -> List[Evidence]:
    """Whose bytes wait for it to read, though it has hardly slept."""
    rows = [row for row in report.connections or [] if row.role == "served"]
    known = [(row, busy_s(report, row)) for row in rows if holds_bytes(report, row)]
    busy = [(held_share(report, row), row.peer, s) for row, s in known if row.peer and s]
    if not busy:
        return []
    held, reader, busy_for_s = max(busy, key=lambda each: each[0])
    share = min(1.0, busy_for_s / report.window.duration_s)
    says = (
        f"for {percent(held)} of the time replies wait until {reader.comm} {reader.pid} reads "
        f"them, which is {percent(share)} busy"
    )
    return [evidence("held_share", held, "of 1", says)]


def _lock_words(facts: List[Evidence]) -> str:
    return f" Near a limit: {facts[0].says}." if facts else ""


def _thread_room(report: Report, service: Service, time: RequestTime) -> List[Evidence]:
    busiest = report.time.busiest if report.time is not None else None
    if busiest is None:
        return []
    share = busy_share(busiest.share)
    says = f"the busiest thread, {busiest.comm} {busiest.tid}, is {percent(share)} busy"
    if share >= THREAD_BUSY_MIN and is_busy_for_nobody(service, time):
        says += ", most of it with what no request waits for"
    return [evidence("busy_share", share, "of 1", says, THREAD_BUSY_MIN)]


def _queue_room(report: Report) -> List[Evidence]:
    rows = [row for row in report.listeners or [] if row.depth.max is not None]
    if not rows:
        return []
    fullest = max(rows, key=lambda row: (row.depth.max or 0) / max(row.depth.limit, 1))
    depth = fullest.depth
    says = f"accept queue of {place(fullest)}: at most {depth.max}, the limit is {depth.limit}"
    return [evidence("accept_queue_depth_max", depth.max or 0, "connections", says, depth.limit)]


def _descriptor_room(report: Report) -> List[Evidence]:
    known = [t for t in report.targets if t.fds.open is not None and t.fds.limit]
    if not known:
        return []
    fullest = max(known, key=lambda t: (t.fds.open or 0) / (t.fds.limit or 1))
    opened, limit = fullest.fds.open or 0, fullest.fds.limit or 1
    says = f"{fullest.comm} {fullest.pid} has {opened:,} of {limit:,} file descriptors open"
    return [evidence("fds_open", opened, "fds", says, limit)]


def _pushes(report: Report, service: Service) -> int:
    """Send calls of who answers nobody and asks nobody, where they are many; 0 else."""
    sends = _socket_calls(report, ("write", "send"))
    is_alone = not service.count and not any(row.count for row in service.upstream)
    return sends if is_alone and sends >= STREAM_CALLS_MIN else 0


def _socket_calls(
    report: Report, moving: Tuple[str, ...] = ("read", "write", "recv", "send")
) -> int:
    return sum(
        row.calls
        for row in report.syscalls or []
        if row.transport != "other" and row.name.startswith(moving)
    )
