"""What is judged together: processes that serve the same requests, and their threads."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, TypeVar

from udsprobe.model.counters import counted_share
from udsprobe.model.report import (
    Connect,
    Hop,
    Latency,
    OwnRequests,
    ProcessTime,
    Report,
    Served,
    ServedBy,
    Stages,
    ThreadTime,
    Time,
    Upstream,
    Wait,
)
from udsprobe.model.requests.reply_pieces import pause_parts_us, paused_us
from udsprobe.model.threads.thread_time import THREADS_SHOWN_MAX, busy_share
from udsprobe.rules.accounts.affinity import allowed_cpus
from udsprobe.rules.accounts.cpu_holders import asked_beside, delivering_runq, foreign_runq
from udsprobe.rules.accounts.other_clients import share_of_other_clients
from udsprobe.rules.peers.connecting import connecting_us
from udsprobe.rules.peers.itself import is_own_listener
from udsprobe.rules.servers import asks_for_lock_again
from udsprobe.rules.thresholds import (
    SERVING_PART_MIN,
    SOCKET_SHARE_MIN,
    TAIL_TIMES_MEDIAN,
    TAIL_US_MIN,
    THREAD_BUSY_MIN,
    THREAD_LIFE_MIN,
    UNLISTED_BUSY_MAX,
)

STAGES = ("accept_wait", "recv_wait", "recv", "app", "send")
# Activities of a thread that a CPU runs.
ON_CPU = ("user", "sys_socket", "sys_poll", "sys_other")
_US_PER_S = 1e6


@dataclass(frozen=True)
class Service:
    """The processes that serve one kind of request.

    Attributes:
        name: of the program.
        pids: None for all targets.
        duration_s: of the window.
        cpus: that they may use.
        count: requests served; latency: of them, None when not measured.
        stage_sums_us: stage → its time, all requests together, in µs.
        app_pct: what the `app` stage consisted of (`requests.served.app_time_pct`).
        handed_over: requests whose `app` stage no single thread tells of; handed_us: of the
            `app` stages that part, in µs.
        at_once: requests that a process had in progress when it began a reply, that one too.
        spent_s: activity → thread-seconds, of all threads.
        foreign_runq: part of the waits for a CPU that others are the reason
            of: not the service, nor who talks to it; 1 when not known.
        delivering_runq: the part in which the kernel moved packets.
        asked_beside: how long whom it asks ran meanwhile, for each second that targets did.
        acceptors: threads that accepted connections; accepted: how many these are.
        polled: loops' threads → how often each went through its poller.
        repliers: threads that sent the replies of requests kept whole.
        others_share: part of the waits in a poller that end with what another client sends.
        paused_us: pauses between the pieces of its replies, all together; they are a part of the
            `app` stage here.
        answers_paused_us: pauses of answers to it, but for those that are pauses of its own.
        connecting_us: its connects that completed in the background took so long, all together.
        itself_us: until answers to requests came that its processes asked themselves, all
            together; `upstream` has none of these.
        waits: of its threads, and who ended them.
        clients: (pid of a process, pid of one at the other end of a connection that it serves);
            partners: of any connection.
        sends_move: senders that sleep wait for readers that copy all the while: the
            transport is at work then, too.
        is_first: the observation began with this window.
        asks_for_lock_again: waits for an interpreter's lock may end by a time limit, too.
    """

    name: str
    pids: Optional[FrozenSet[int]]
    duration_s: float
    cpus: int
    count: int
    latency: Optional[Latency]
    stages: Stages
    stage_sums_us: Mapping[str, float]
    app_pct: Mapping[str, float]
    handed_over: int
    upstream: Tuple[Upstream, ...]
    threads: Tuple[ThreadTime, ...]
    processes: Tuple[ProcessTime, ...]
    spent_s: Mapping[str, float]
    foreign_runq: float = 1.0
    delivering_runq: float = 0.0
    asked_beside: float = 0.0
    acceptors: FrozenSet[int] = frozenset()
    accepted: int = 0
    polled: Mapping[int, int] = field(default_factory=dict)
    repliers: FrozenSet[int] = frozenset()
    sends_move: bool = False
    waits: Tuple[Wait, ...] = ()
    clients: FrozenSet[Tuple[int, int]] = frozenset()
    partners: FrozenSet[Tuple[int, int]] = frozenset()
    at_once: float = 1.0
    others_share: float = 0.0
    connecting_us: float = 0.0
    paused_us: float = 0.0
    answers_paused_us: float = 0.0
    is_first: bool = False
    asks_for_lock_again: bool = False
    handed_us: float = 0.0
    itself_us: float = 0.0

    @property
    def counted_share(self) -> float:
        """The part of the window in which requests end that are counted."""
        if not self.count:
            return 1.0
        app_s = self.stage_sums_us.get("app", 0.0) / self.count / _US_PER_S
        return counted_share(self.duration_s, app_s, self.is_first)

    @property
    def counted_s(self) -> float:
        """How long that is."""
        return self.duration_s * self.counted_share

    @property
    def total_us(self) -> float:
        """Request time, all requests together, the pauses of their replies included."""
        mean = self.latency.mean if self.latency is not None else None
        return (mean or 0.0) * self.count + self.paused_us

    @property
    def upstream_us(self) -> float:
        """Time of its own requests to others, all together, the pauses of answers included."""
        return sum(upstream_us(row) for row in self.upstream)

    def app_us(self, part: str) -> float:
        """What `app_pct` has for a part, of the `app` stages that it is of, in µs."""
        told_us = max(0.0, self.stage_sums_us.get("app", 0.0) - self.handed_us)
        return told_us * self.app_pct.get(part, 0.0) / 100

    def spent_us(self, *activities: str) -> float:
        """Thread time in some activities, added up."""
        return sum(self.spent_s.get(name, 0.0) for name in activities) * _US_PER_S

    @property
    def work_us(self) -> float:
        """CPU time of its threads for each request, on average."""
        return self.spent_us(*ON_CPU) / self.count if self.count else 0.0

    def long_lived(self) -> List[ThreadTime]:
        """Threads that were there for a good part of the window."""
        return [t for t in self.threads if t.observed_s >= THREAD_LIFE_MIN * self.duration_s]


_Told = TypeVar("_Told")


def _once(of: Callable[[Service], _Told]) -> Callable[[Service], _Told]:
    """Asked a dozen times by who judges a service: the answer is kept with it, and not changed."""
    name = of.__name__

    @wraps(of)
    def known(service: Service) -> _Told:
        kept = vars(service)
        if name not in kept:
            kept[name] = of(service)
        found: _Told = kept[name]
        return found

    return known


def lists_the_busiest(time: Time, duration_s: float) -> bool:
    """Whether the threads of a window that are not listed had next to no time of it."""
    if len(time.threads) < THREADS_SHOWN_MAX:
        return True
    last = time.threads[-1]
    return busy_share(last.share) * last.observed_s <= UNLISTED_BUSY_MAX * duration_s


def stayed_us(time: Time, duration_s: float, names: Sequence[str]) -> float:
    """What threads that neither came nor went in the window did of these activities, µs."""
    return sum(
        1e6 * row.observed_s * sum(row.share.get(name, 0.0) for name in names)
        for row in time.threads
        if row.observed_s >= THREAD_LIFE_MIN * duration_s
    )


def tail_us(latency: Optional[Latency]) -> Optional[float]:
    """Their p99, where it is far above the median: some requests are slow, most are not."""
    if latency is None or latency.p99 is None or latency.p50 is None:
        return None
    is_far = latency.p99 >= max(TAIL_US_MIN, TAIL_TIMES_MEDIAN * latency.p50)
    return latency.p99 if is_far else None


def upstream_us(row: Upstream) -> float:
    """Until their answers came, of all requests to one destination, pauses of these included."""
    return answer_mean_us(row) * row.count + paused_us(row)


def answer_mean_us(row: Upstream) -> float:
    """Until an answer came. That it then waits until it is received is the service's own doing."""
    return max(0.0, (row.latency_us.mean or 0.0) - (row.recv_wait_mean_us or 0.0))


def services(report: Report) -> List[Service]:
    """Each server of a chain among the targets, the outermost first; else all targets as one."""
    hops = [hop for hop in report.requests.hops or [] if hop.count]
    if len(hops) < 2:
        return [whole_service(report)]
    return [_of_hop(report, hop) for hop in hops]


def processes_of(report: Report, service: Service) -> List[ServedBy]:
    """The processes of the service that have clients."""
    rows = report.requests.served_by or ()
    return [row for row in rows if service.pids is None or row.pid in service.pids]


def of_one_process(report: Report, row: ServedBy) -> Service:
    """The requests and the time of one of several processes."""
    mean_us = row.latency_us.mean
    hop = Hop(row.pid, [row.pid], row.comm, None, row.count, mean_us, None, None, [])
    return _of_hop(report, hop)


def _with_pauses(service: Service, rows: Sequence[ServedBy]) -> Service:
    """The time in which a reply that has begun pauses is the program's as that before it is."""
    answers_us = sum(paused_us(row) for row in service.upstream)
    paused = pause_parts_us(rows, answers_us)
    service = replace(service, answers_paused_us=max(0.0, answers_us - paused.get("upstream", 0.0)))
    replies_us = sum(paused.values())
    if not replies_us:
        return service
    app_us = service.stage_sums_us.get("app", 0.0)
    parts = {name: service.app_us(name) for name in service.app_pct}
    for name, us in paused.items():
        parts[name] = parts.get(name, 0.0) + us
    told_us = sum(parts.values())
    return replace(
        service,
        paused_us=replies_us,
        stage_sums_us={**service.stage_sums_us, "app": app_us + replies_us},
        app_pct={name: 100 * us / told_us for name, us in parts.items()},
    )


def whole_service(report: Report) -> Service:
    """All targets as one."""
    served, time = report.requests.served, report.time
    service = Service(
        name=_name(report).rstrip(),
        pids=None,
        duration_s=report.window.duration_s,
        is_first=report.window.is_first,
        asks_for_lock_again=asks_for_lock_again(report, None),
        cpus=allowed_cpus(report),
        count=served.count if served is not None else 0,
        latency=served.latency_us if served is not None else None,
        stages=served.stages_us if served is not None else Stages(),
        stage_sums_us=_stage_sums(served),
        app_pct=(served.app_time_pct if served is not None else None) or {},
        handed_over=sum(row.handed_over or 0 for row in report.requests.served_by or ()),
        handed_us=_handed_us(report.requests.served_by or (), _stage_sums(served)),
        at_once=_at_once(report.requests.served_by or ()),
        upstream=_of_others(report),
        itself_us=_itself_us(report, report.requests.served_by or ()),
        threads=tuple(time.threads) if time is not None else (),
        processes=tuple(time.processes) if time is not None else (),
        spent_s={k: v * time.total_s for k, v in time.total.items()} if time else {},
        foreign_runq=foreign_runq(report),
        delivering_runq=delivering_runq(report),
        asked_beside=asked_beside(report),
        acceptors=_acceptors(report),
        accepted=accepted_by(report, None),
        polled=_polled(report),
        repliers=_repliers(report),
        others_share=share_of_other_clients(report, None),
        connecting_us=sum(map(connecting_us, report.connects or ())),
        waits=tuple(report.waits or ()),
        clients=_partners(report, "served"),
        partners=_partners(report, "served", "upstream", "unknown"),
    )
    return _with_pauses(service, report.requests.served_by or ())


def _partners(report: Report, *roles: str) -> FrozenSet[Tuple[int, int]]:
    return frozenset(
        (row.pid, row.peer.pid)
        for row in report.connections or ()
        if row.role in roles and row.peer is not None and row.peer.pid
    )


def is_serving(thread: ThreadTime) -> bool:
    """Requests pass through it: it polls, or moves bytes on sockets, or waits for them.

    A thread of a pool that now and then writes to wake the loop does not.
    """
    share = thread.share
    waits = ("sys_poll", "blocked_poll", "blocked_recv", "blocked_accept", "blocked_send")
    return share.get("sys_socket", 0.0) >= SOCKET_SHARE_MIN or any(
        share.get(name, 0.0) > 0 for name in waits
    )


def move_bytes(threads: Sequence[ThreadTime]) -> bool:
    """A part of their CPU time is in calls on sockets: they are there for connections, and not, as
    processes of CGI, for requests."""
    on_cpu_s = sum(row.observed_s * row.share.get(name, 0.0) for row in threads for name in ON_CPU)
    moving_s = sum(row.observed_s * row.share.get("sys_socket", 0.0) for row in threads)
    return moving_s >= SOCKET_SHARE_MIN * on_cpu_s > 0


def is_polling(thread: ThreadTime) -> bool:
    """It waits in a poller, as event loops do."""
    return thread.share.get("sys_poll", 0.0) + thread.share.get("blocked_poll", 0.0) > 0


@_once
def serving_threads(service: Service) -> List[ThreadTime]:
    """The threads that requests pass through.

    Those with a good part of all socket calls: runtimes have threads of their
    own that poll and never see a request. Who replied serves, however little it does
    besides: a thread of a pool that sleeps in each request, say. One that hands connections to
    threads that reply serves nothing itself.
    """
    serving = [t for t in service.threads if is_serving(t) or t.tid in service.repliers]
    serving = [t for t in serving if not _hands_over(service, t)] or serving
    moved = {t.tid: t.share.get("sys_socket", 0.0) * t.observed_s for t in serving}
    least = SERVING_PART_MIN * max(moved.values(), default=0.0)
    return [t for t in serving if moved[t.tid] >= least and moved[t.tid] > 0] or serving


# Of java.lang.VirtualThread, as far as the kernel keeps names: those that carry them, and one that
# ends their sleeps (-unparker, JDK 21 and later) or their waits for each other (-unblocker, 24).
_CARRIERS, _OF_VIRTUAL_THREADS = "ForkJoinPool-", "VirtualThread-u"


@_once
def in_virtual_threads(service: Service) -> bool:
    """Virtual threads of Java answer, or processes of Erlang: the threads that carry them sleep for
    their scheduler, whatever a virtual one waits for."""
    return in_erlang(service) or _in_java(service)


# Of the virtual machine of Erlang and Elixir (erts/emulator/beam/erl_process.c).
_SCHEDULER = re.compile(r"\d+_scheduler|erts_sched_\d+")


@_once
def in_erlang(service: Service) -> bool:
    """Processes of Erlang answer."""
    return any(_SCHEDULER.match(t.comm) for t in service.threads if t.tid in service.repliers)


def _in_java(service: Service) -> bool:
    if not any(t.comm.startswith(_OF_VIRTUAL_THREADS) for t in service.threads):
        return False
    return any(t.comm.startswith(_CARRIERS) for t in service.threads if t.tid in service.repliers)


def _hands_over(service: Service, thread: ThreadTime) -> bool:
    """A lock keeps it until a thread of the pool is free; or it polls, and those that reply do
    not, and receive what they reply to themselves."""
    kept = thread.share.get("blocked_lock", 0.0) >= THREAD_BUSY_MIN
    if kept and thread.tid in service.acceptors:
        return True
    idles = thread.share.get("blocked_poll", 0.0) >= THREAD_BUSY_MIN
    if not idles or 2 * service.handed_over > service.count:
        return False
    repliers = [t for t in service.threads if t.tid in service.repliers]
    return bool(repliers) and not any(map(is_polling, repliers))


def _acceptors(report: Report) -> FrozenSet[int]:
    rows = report.listeners or []
    return frozenset(int(tid) for row in rows for tid in row.accepted_by_thread or {})


def accepted_by(report: Report, pids: Optional[FrozenSet[int]]) -> int:
    """How many connections these processes accepted; None: all of them."""
    rows = report.listeners or []
    if pids is None:
        return sum(row.accepted or 0 for row in rows)
    by_process = (item for row in rows for item in (row.accepted_by or {}).items())
    return sum(many for pid, many in by_process if int(pid) in pids)


def _polled(report: Report) -> Dict[int, int]:
    loops = report.time.loops if report.time is not None else None
    return {loop.tid: loop.iterations for loop in loops or []}


def _repliers(report: Report) -> FrozenSet[int]:
    kept = [*(report.requests.slowest or ()), *(report.requests.sampled or ())]
    return frozenset(request.tid for request in kept)


@_once
def serving_time(service: Service) -> List[ThreadTime]:
    """The rows of `serving_threads`, and one of all threads that have none, if those serve too.

    Where a thread serves one connection and ends with it, most of the window's requests were
    served by threads that are gone, while those that live may have begun a moment ago.
    """
    listed = serving_threads(service)
    rest = without_row(service)
    moved_s = rest.share["sys_socket"] * rest.observed_s
    most_s = max((t.share.get("sys_socket", 0.0) * t.observed_s for t in listed), default=0.0)
    if not is_serving(rest) or not moved_s or moved_s < SERVING_PART_MIN * most_s:
        return listed
    return [*listed, rest]


@_once
def without_row(service: Service) -> ThreadTime:
    """Threads that ended and those too many to be listed, as one; `tid` 0."""
    spent = dict.fromkeys(ON_CPU, 0.0)
    for name, seconds in service.spent_s.items():
        listed_s = sum(t.share.get(name, 0.0) * t.observed_s for t in service.threads)
        spent[name] = max(0.0, seconds - listed_s)
    whole_s = sum(spent.values())
    share = {name: seconds / whole_s if whole_s else 0.0 for name, seconds in spent.items()}
    return ThreadTime(0, 0, service.name, whole_s, share)


def _of_hop(report: Report, hop: Hop) -> Service:
    pids = frozenset(hop.pids)
    rows = [row for row in report.requests.served_by or () if row.pid in pids]
    upstream = _asked_others(report, rows)
    time = report.time
    processes = [p for p in (time.processes if time is not None else ()) if p.pid in pids]
    service = Service(
        name=(hop.comm or "").rstrip() or f"pid {hop.pid}",
        pids=pids,
        duration_s=report.window.duration_s,
        is_first=report.window.is_first,
        asks_for_lock_again=asks_for_lock_again(report, pids),
        cpus=allowed_cpus(report, pids),
        count=hop.count,
        latency=Latency(hop.count, hop.latency_mean_us),
        stages=Stages(),
        stage_sums_us={name: _sum_of_stage(rows, name) for name in STAGES},
        app_pct=_app_pct(rows),
        handed_over=sum(row.handed_over or 0 for row in rows),
        handed_us=_handed_us(rows, {"app": _sum_of_stage(rows, "app")}),
        at_once=_at_once(rows),
        upstream=upstream,
        itself_us=_itself_us(report, rows),
        threads=tuple(t for t in (time.threads if time is not None else ()) if t.pid in pids),
        processes=tuple(processes),
        spent_s=_spent_s(processes),
        foreign_runq=foreign_runq(report),
        delivering_runq=delivering_runq(report),
        asked_beside=asked_beside(report),
        acceptors=_acceptors(report),
        accepted=accepted_by(report, pids),
        polled=_polled(report),
        repliers=_repliers(report),
        others_share=share_of_other_clients(report, pids),
        connecting_us=sum(map(connecting_us, _connects_to(report, upstream))),
        waits=tuple(row for row in report.waits or () if row.pid in pids),
        clients=_partners(report, "served"),
        partners=_partners(report, "served", "upstream", "unknown"),
    )
    return _with_pauses(service, rows)


def _at_once(rows: Sequence[ServedBy]) -> float:
    """One at a time where it is not measured."""
    count = sum(row.count for row in rows)
    return sum((row.at_once or 1.0) * row.count for row in rows) / count if count else 1.0


def _sum_of_stage(rows: Sequence[ServedBy], name: str) -> float:
    # Only the first request of a connection waits for accept(): how many is not told by process.
    if name == "accept_wait":
        return 0.0
    return sum((getattr(row.stages_mean_us, name) or 0.0) * row.count for row in rows)


def _handed_us(rows: Sequence[ServedBy], stages_us: Mapping[str, float]) -> float:
    """Of rows of servers that ask each other, what is the outermost ones' is no more than that."""
    return min(stages_us.get("app", 0.0), sum(row.handed_over_us or 0.0 for row in rows))


def _app_pct(rows: Sequence[ServedBy]) -> Dict[str, float]:
    weights = [(row.stages_mean_us.app or 0.0) * row.count for row in rows]
    known = [(row.app_time_pct, us) for row, us in zip(rows, weights) if row.app_time_pct]
    whole = sum(us for _, us in known)
    total: Dict[str, float] = {}
    for parts, us in known:
        for name, pct in parts.items():
            total[name] = total.get(name, 0.0) + pct * us / whole if whole else 0.0
    return total


def _asked_others(report: Report, rows: Sequence[ServedBy]) -> Tuple[Upstream, ...]:
    return tuple(
        _as_upstream(report, each)
        for row in rows
        for each in row.upstream
        if not _is_own(report, row, each)
    )


def _connects_to(report: Report, upstream: Sequence[Upstream]) -> List[Connect]:
    asked = {(each.transport, each.address) for each in upstream}
    return [row for row in report.connects or () if (row.transport, row.address) in asked]


def _is_own(report: Report, row: ServedBy, asked: OwnRequests) -> bool:
    return is_own_listener(report, row.pid, asked.transport, asked.address)


def _itself_us(report: Report, rows: Sequence[ServedBy]) -> float:
    """What is asked there is served here, and counted with what is served."""
    asked = (each for row in rows for each in row.upstream if _is_own(report, row, each))
    return sum(each.latency_mean_us * each.count for each in asked)


def _of_others(report: Report) -> Tuple[Upstream, ...]:
    own = {
        (each.transport, each.address)
        for row in report.requests.served_by or ()
        for each in row.upstream
        if _is_own(report, row, each)
    }
    rows = report.requests.upstream or ()
    return tuple(row for row in rows if (row.transport, row.address) not in own)


def _as_upstream(report: Report, row: OwnRequests) -> Upstream:
    latency = Latency(row.count, row.latency_mean_us)
    one = Upstream(row.transport, row.address, row.peer, row.count, latency)
    one = replace(one, recv_wait_mean_us=row.recv_wait_mean_us)
    for all_of_it in report.requests.upstream or ():
        if (all_of_it.transport, all_of_it.address) == (row.transport, row.address):
            pool = all_of_it.connections, all_of_it.busy_pct
            return replace(
                one, connections=pool[0], busy_pct=pool[1], in_pieces=all_of_it.in_pieces
            )
    return one


def _spent_s(processes: Sequence[ProcessTime]) -> Dict[str, float]:
    spent: Dict[str, float] = {}
    for process in processes:
        for name, share in process.share.items():
            spent[name] = spent.get(name, 0.0) + share * process.observed_s
    return spent


def _stage_sums(served: Optional[Served]) -> Dict[str, float]:
    if served is None:
        return {}
    stages = {name: getattr(served.stages_us, name) for name in STAGES}
    return {
        name: stage.count * (stage.mean or 0.0)
        for name, stage in stages.items()
        if stage is not None
    }


def _name(report: Report) -> str:
    """Of who serves most of the requests; where none are served, of the busiest target."""
    rows = report.requests.served_by or ()
    most = max(rows, key=lambda row: row.count, default=None)
    if most is not None and most.count and most.comm:
        return most.comm
    busiest = report.time.busiest if report.time is not None else None
    if busiest is not None:
        for target in report.targets:
            if target.pid == busiest.pid:
                return target.comm
    return report.targets[0].comm if report.targets else "the target"
