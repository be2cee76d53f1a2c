"""What each cause inside a service is about, in words, and what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from udsprobe.model.action import Action
from udsprobe.model.report import (
    CpuHolder,
    Evidence,
    LoweredPriority,
    Report,
    Syscall,
    ThreadTime,
)
from udsprobe.model.threads.cpu_list import cpu_list
from udsprobe.rules.accounts.affinity import confinement
from udsprobe.rules.accounts.asleep import TIMER, slept_in, waited_for
from udsprobe.rules.accounts.authors import (
    DOING,
    LastAuthor,
    always_one_in,
    author_name,
    last_author,
    who_ended,
)
from udsprobe.rules.accounts.cpu_holders import (
    foreign_holders,
    foreign_share,
    has_too_many_threads,
    held_by_targets,
    runnable_per_cpu,
    throttling,
)
from udsprobe.rules.accounts.lock_use import queue_at_locks
from udsprobe.rules.accounts.own_pool import OwnPool, own_pool
from udsprobe.rules.accounts.request_time import RequestTime
from udsprobe.rules.accounts.saturation import Saturation, behind_own_us
from udsprobe.rules.accounts.service import (
    ON_CPU,
    Service,
    in_erlang,
    in_virtual_threads,
    move_bytes,
    serving_threads,
    without_row,
)
from udsprobe.rules.accounts.upstream_pool import (
    all_in_hand,
    at_once,
    full_pool,
    holds_back,
    is_queueing,
)
from udsprobe.rules.peers.connecting import is_of_this_host
from udsprobe.rules.peers.lookups import Lookups, lookups
from udsprobe.rules.remedy import choice, cpus
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.servers import IN_GOROUTINES, is_go
from udsprobe.rules.suspects.buffers import binding_buffer, bytes_per_request
from udsprobe.rules.thresholds import (
    ASKS_IN_LOOP_MIN,
    AUTHOR_SHARE_MIN,
    HOLDER_SHARE_MIN,
    IDLE_ELSEWHERE_PCT_MIN,
    MANY_DESCRIPTORS_MIN,
    RUNNABLE_PER_CPU_MAX,
    THREAD_BUSY_MIN,
    THROTTLED_PERIODS_PCT_MIN,
    WAIT_MEAN_US_MIN,
    WAIT_SHARE_MIN,
)
from udsprobe.rules.upstreams import (
    MostAsked,
    is_sent_unasked,
    most_asked,
    times,
    times_in_turn,
    without_time,
)
from udsprobe.rules.wording import (
    HOLDS_BACK,
    IN_GO,
    IN_POLLER,
    IN_VIRTUAL,
    OWN_TIMER,
    count,
    duration,
    evidence,
    is_name_server,
    percent,
)

# System calls in which a thread sleeps without a poller, a lock or a disk.
_SLEEPS = {
    "clock_nanosleep": f"{OWN_TIMER}clock_nanosleep)",
    "nanosleep": f"{OWN_TIMER}nanosleep)",
    "wait4": "a child process (wait4)",
    "waitid": "a child process (waitid)",
    "rt_sigtimedwait": "a signal (rt_sigtimedwait)",
    "pause": "a signal (pause)",
    "flock": "a file lock (flock)",
    "semtimedop": "a semaphore (semtimedop)",
    "semop": "a semaphore (semop)",
    "msgrcv": "a message queue (msgrcv)",
}
_OF_FILES = ("read", "readv", "write", "writev")
_SPECIAL_FILE = " of a terminal, an eventfd or another special file"
# What only one goroutine at a time can do, of what a thread sleeps in.
_ONE_AT_A_TIME = ("pipe", "disk")
_CALLS_PER_REQUEST_MIN = 0.05


@dataclass(frozen=True)
class Remedy:
    """What a cause is about.

    Attributes:
        headline: one clause. facts: evidence beyond the share of request time.
    """

    subject: Optional[str]
    headline: str
    facts: Tuple[Evidence, ...] = ()
    actions: Tuple[Action, ...] = ()


@dataclass(frozen=True)
class _Case:
    report: Report
    service: Service
    time: RequestTime
    saturated: Optional[Saturation]


def for_cause(
    cause: str,
    report: Report,
    service: Service,
    time: RequestTime,
    saturated: Optional[Saturation],
) -> Remedy:
    """The remedy of one of the causes inside a service."""
    return _REMEDIES[cause](_Case(report, service, time, saturated))


def sleeping_on(report: Report, service: Service, time: RequestTime) -> str:
    """What a service that is asleep in the middle of a request waits for."""
    part = _sleeps_for(time)
    if part == "disk":
        return "the disk"
    if part in IN_GOROUTINES and is_go(report, service.pids):
        return IN_GO
    if part in IN_GOROUTINES and in_virtual_threads(service):
        return IN_VIRTUAL
    if part == "timer":
        return IN_POLLER
    kind = waited_for(service, part, time.asleep_us(part))
    if part == "lock" and kind == TIMER:
        return f"{OWN_TIMER}a futex with a time limit)"
    if part == "lock":
        return _sleep_call(report, ("flock",)) or "a lock (futex)"
    if kind == "pipe":
        return f"a pipe{_direction(report)}"
    call = slept_in(report, service, part)
    if call is None:
        return _sleep_call(report) or "a sleep, a pipe, a child process or a signal"
    if call in _OF_FILES:
        return (
            f"a pipe{_direction(report)}" if _is_at_pipes(service) else f"{call}(){_SPECIAL_FILE}"
        )
    return _SLEEPS.get(call) or f"{call}()"


def _is_at_pipes(service: Service) -> bool:
    """Where threads come and go it is not known who waited, but for what: pipes, or other files."""
    spent = dict.fromkeys(("pipe", "other"), 0.0)
    for row in service.waits:
        if not row.pid and row.kind in spent:
            spent[row.kind] += row.total_us
    return spent["pipe"] > spent["other"]


def _direction(report: Report) -> str:
    """Whether it is full or empty, by the calls that took most of the time."""
    return {True: " that is full", False: " that is empty", None: ""}[_is_writing(report)]


def _is_writing(report: Report) -> Optional[bool]:
    """None where neither is counted."""
    spent = {"write": 0.0, "read": 0.0}
    for row in report.syscalls or ():
        for name in spent:
            if row.transport == "other" and row.name.startswith(name):
                spent[name] += row.wall_us
    return spent["write"] > spent["read"] if any(spent.values()) else None


def _sleeps_for(time: RequestTime) -> str:
    return max(("lock", "disk", "timer", "sleep"), key=lambda name: time.sum_us(name))


def _sleep_call(report: Report, among: Sequence[str] = tuple(_SLEEPS)) -> Optional[str]:
    per_request = report.requests.syscalls_per_request
    calls = per_request.by_syscall if per_request is not None else {}
    known = {name: n for name, n in calls.items() if name in among}
    if not known or max(known.values()) < _CALLS_PER_REQUEST_MIN:
        return None
    return _SLEEPS[max(known, key=lambda name: known[name])]


def _busiest(case: _Case) -> Optional[ThreadTime]:
    return next(iter(serving_threads(case.service) or case.service.threads), None)


def _app_cpu(case: _Case) -> Remedy:
    found, thread = case.saturated, _busiest(case)
    holder = _computing_holder(case) if found is None or found.how != "thread" else None
    if found is None:
        holder = _computing_author(case) or holder
    if holder is not None:
        return holder
    lacks_cpus = found is None and _has_no_cpu_free(case)
    if found is not None:
        pid, tid, comm = found.pid, found.tid, found.comm
        subject = _who_is_busy(found)
        headline = f"{subject} {_is_busy(found)}{_of_its_time(found)}"
    elif thread is not None:
        pid, tid, comm = thread.pid, thread.tid, thread.comm
        subject = f"{comm} thread {tid}"
        does = "wait for a CPU behind each other" if lacks_cpus else "spend their time on the CPU"
        headline = f"requests {does} in {comm}"
    else:
        return Remedy(None, "requests spend their time on a CPU")
    how = "" if found is None else found.how
    actions = (
        *choice.busy(
            case.report,
            pid,
            tid,
            comm,
            of_many=how in _MANY,
            has_all_cpus=how in _OF_HOST or lacks_cpus,
        ),
        *choice.files_to_send(case.report, case.service.pids),
    )
    program = choice.started_for_requests(case.report) if _is_of_children(case.service) else None
    if program is not None:
        actions = (*choice.child_each(program), *actions)
    if program is not None and (found is None or how in _OF_HOST):
        subject = f"{program} processes"
        headline = f"{case.service.name} waits for {subject}, which come and go and compute"
        if found is not None:
            headline = f"{subject} that come and go keep all its CPUs {percent(found.busy)} busy"
    return Remedy(subject, headline, actions=actions)


def _who_is_busy(found: Saturation) -> str:
    if found.how == "thread":
        return f"{found.comm} thread {found.tid}"
    return found.comm if found.how in _MANY else f"{found.comm} {found.pid}"


def _has_no_cpu_free(case: _Case) -> bool:
    """Its threads wait for each other at the CPUs for longer than they run."""
    return behind_own_us(case.report, case.service) > case.service.work_us


def _is_of_children(service: Service) -> bool:
    """Most of its CPU time is that of processes that came and went, without a call on a socket."""
    rest = without_row(service)
    spent_us = 1e6 * rest.observed_s * sum(rest.share.get(name, 0.0) for name in ON_CPU)
    return 2 * spent_us > service.spent_us(*ON_CPU) and not move_bytes([rest])


def _computing_holder(case: _Case) -> Optional[Remedy]:
    """Which threads compute while those that serve wait for a lock: those of a collector, say."""
    if case.time.behind_locks_us < case.time.sum_us("cpu") / 2:
        return None
    # With a name of their own: threads that take turns at serving have one name.
    serving = {_crew(thread) for thread in serving_threads(case.service)}
    if not serving:
        return None
    crews: Dict[str, List[ThreadTime]] = {}
    for thread in case.service.threads:
        if _crew(thread) not in serving:
            crews.setdefault(_crew(thread), []).append(thread)
    crew = max(crews.values(), key=_computed_us, default=[])
    if not crew or _computed_us(crew) < case.service.spent_us(*_COMPUTING) / 2:
        return None
    first = max(crew, key=lambda thread: _computed_us([thread]))
    who = f"{first.comm} thread {first.tid}"
    like_it = f" and {len(crew) - 1} like it" if len(crew) > 1 else ""
    actions = choice.busy(case.report, first.pid, first.tid, first.comm)
    used = _computed_us(crew) / (case.service.duration_s * 1e6)
    does = f"{who}{like_it} ran for {percent(used)} of the time on a CPU"
    return Remedy(who, f"{case.service.name} waits for a lock while {does}", actions=actions)


_COMPUTING = ("user", "sys_other")


def _crew(thread: ThreadTime) -> str:
    """`GC Thread#` of `GC Thread#1`."""
    return thread.comm.rstrip("0123456789")


def _computed_us(threads: Sequence[ThreadTime]) -> float:
    return 1e6 * sum(t.share.get(name, 0.0) * t.observed_s for t in threads for name in _COMPUTING)


def _computing_author(case: _Case) -> Optional[Remedy]:
    """Who computes while requests wait for a lock, where most of their time is that."""
    if case.time.behind_locks_us < case.time.sum_us("cpu") / 2:
        return None
    found = last_author(case.service, "lock", case.time.asleep_us("lock"))
    if found is None or found.author.was != "cpu":
        return None
    author = found.author
    actions = choice.busy(case.report, author.pid or 0, author.tid or 0, author.comm or "")
    headline = f"{case.service.name} waits for a lock: {found.clause()}"
    return Remedy(found.name, headline, (found.fact(),), actions)


# Of `Saturation.how`: no process of them is busy alone; and they have all CPUs.
_MANY, _OF_HOST = ("processes", "crew"), ("host", "crew")


def _is_busy(found: Saturation) -> str:
    if found.with_asked:
        return f"and those that it asks keep all CPUs that it may use {percent(found.busy)} busy"
    if found.how == "crew":
        return f"keeps all CPUs that it may use {percent(found.busy)} busy"
    return f"is {percent(found.busy)} busy"


def _of_its_time(found: Saturation) -> str:
    if found.how == "process":
        return ", its threads contend for one lock"
    if found.how == "processes":
        return ", its processes contend for one lock"
    return "" if found.with_asked else f", {percent(found.kinds['cpu'])} of that in its own code"


def _kinds_of_sleep(case: _Case) -> Tuple[Evidence, ...]:
    parts = sorted(
        ((name, case.time.mean_us(name)) for name in ("lock", "disk", "timer", "sleep")),
        key=lambda part: -part[1],
    )
    return tuple(
        evidence(f"app_{name}_us", us, "µs", f"{duration(us)} per request: {name}")
        for name, us in parts
        if us >= 1
    )


def _app_blocked(case: _Case) -> Remedy:
    on = sleeping_on(case.report, case.service, case.time)
    part = _sleeps_for(case.time)
    thread = _longest_asleep(case, part)
    # Who wakes a thread that carries virtual ones brings it work.
    is_told = on != IN_VIRTUAL
    author = last_author(case.service, part, case.time.asleep_us(part)) if is_told else None
    pid = thread.pid if thread is not None else 0
    facts = _kinds_of_sleep(case)
    asked = lookups(case.report, case.time.count) if part == "timer" and author is None else None
    if asked is not None:
        return _looks_names_up(case, asked, facts, _wakes(case, part, author, pid))
    if on == IN_GO and author is None:
        shared = always_one_in(case.service, _ONE_AT_A_TIME)
        if shared is not None:
            return _one_at_a_time(case, *shared, pid, facts)
    has_pool = author is None and is_told
    pool = own_pool(case.service, part, case.time.sum_us(part)) if has_pool else None
    if pool is not None:
        return _works_in_a_pool(case, pool, pid, facts)
    if part == "timer" and author is None and _is_held_back(case):
        return _held_back(case, on, facts)
    by = "" if author is None else f": {author.clause()}"
    is_in_loop = author is None and part == "sleep" and _is_asleep_in_its_loop(case, _SLEEPS_ITSELF)
    first = choice.loop_sleeps(case.report, case.service.pids) if is_in_loop else ()
    also = "; its event loop serves nobody meanwhile" if is_in_loop else ""
    return Remedy(
        on if author is None else author.name,
        f"{_asleep_words(case, on, part, author)} while requests wait for "
        f"{_what_is_late(case)}{by}{also}",
        facts if author is None else (*facts, author.fact()),
        (*first, *_wakes(case, part, author, pid)),
    )


def _is_held_back(case: _Case) -> bool:
    """By the proxy that it is, and not the rest of its reply (a rate for what it sends)."""
    return holds_back(case.service) and not _is_rest_late(case)


def _held_back(case: _Case, on: str, facts: Tuple[Evidence, ...]) -> Remedy:
    """A proxy lets requests wait that it has not asked an upstream for."""
    asked, in_all = most_asked(case.service), all_in_hand(case.service)
    there = at_once(case.service)
    says = f"of {in_all:.1f} requests in hand {there:.1f} wait for an upstream"
    fact = evidence("held_back", in_all - there, "requests", says)
    quick = ""
    if asked is not None:
        quick = f", {asked.where}, which takes {duration(asked.mean_us)} per request"
    return Remedy(
        on,
        f"{case.service.name} {HOLDS_BACK}: {says}{quick}",
        (fact, *(asked.facts if asked is not None else ()), *facts),
        choice.held_back(case.report, case.service.pids),
    )


def _one_at_a_time(
    case: _Case, kind: str, waited_us: float, pid: int, facts: Tuple[Evidence, ...]
) -> Remedy:
    """What goroutines take turns at: one thread after the other sleeps in there."""
    share = min(1.0, waited_us / 1e6 / case.service.duration_s)
    says = f"for {percent(share)} of the time one of its threads is {DOING[kind]}"
    fact = evidence("asleep_share", share, "of 1", says, THREAD_BUSY_MIN)
    by = who_ended(case.service, kind)
    is_full = kind == "pipe" and by is not None and bool(_is_writing(case.report))
    on = f"a pipe{_direction(case.report)}" if kind == "pipe" else "the disk"
    first = remedies("pipe-full", pid=pid, who=by.name) if by is not None and is_full else ()
    return Remedy(
        on if by is None else by.name,
        f"goroutines of {case.service.name} wait for each other while requests wait for "
        f"{_what_is_late(case)}, one at a time on {on}{'' if by is None else ': ' + by.clause()}",
        (fact, *facts),
        (*first, *choice.sleeps(case.report, pid, on_disk=kind == "disk")),
    )


def _asleep_words(case: _Case, on: str, part: str, author: Optional[LastAuthor]) -> str:
    name = case.service.name
    if on == IN_GO:
        return f"goroutines of {name} wait for {on}"
    if on == IN_VIRTUAL:
        who = "Erlang's processes in" if in_erlang(case.service) else "virtual threads of"
        return f"{who} {name} wait for {on}"
    # Where it is known who ends it, it is no timer.
    where = "in its poller" if author is not None and part == "timer" else f"on {on}"
    locks = _and_locks(case, part)
    return f"{name} sleeps {where}{locks}{',' if locks else ''}"


def _longest_asleep(case: _Case, part: str) -> Optional[ThreadTime]:
    """Where threads without work sleep alike, the busiest is the likelier one to serve."""
    activity = {"sleep": "blocked_other", "disk": "blocked_disk"}.get(part)
    if activity is None:
        return _busiest(case)
    rows = serving_threads(case.service) or case.service.threads
    return max(rows, key=lambda t: t.share.get(activity, 0.0) * t.observed_s, default=None)


def _what_is_late(case: _Case) -> str:
    return "the rest of its reply" if _is_rest_late(case) else "its reply"


def _is_rest_late(case: _Case) -> bool:
    return 2 * case.service.paused_us > case.service.stage_sums_us.get("app", 0.0)


def _works_in_a_pool(case: _Case, pool: OwnPool, pid: int, facts: Tuple[Evidence, ...]) -> Remedy:
    """An event loop hands requests to threads or processes, which sleep."""
    name = case.service.name
    # Of one of them: what it sleeps in is what all of them do.
    worker = pool.did.pid if pool.are_processes and pool.did.pid is not None else pid
    found = choice.sleeps(case.report, worker, on_disk=pool.did.was == "disk")
    more: Tuple[Action, ...] = ()
    if pool.full is not None:
        more = choice.larger_pool(case.report, pid, are_processes=pool.are_processes)
    return Remedy(
        author_name(pool.did) if pool.are_processes else f"{name} {pid}",
        f"{name} waits for {pool.clause()}",
        facts,
        (*found, *more),
    )


def _looks_names_up(
    case: _Case, asked: Lookups, facts: Tuple[Evidence, ...], otherwise: Tuple[Action, ...]
) -> Remedy:
    """It waits for the answers, or for one of few threads that ask."""
    return Remedy(
        asked.where,
        f"{case.service.name} sleeps in its poller while requests wait for its reply, and asks the "
        f"name server {asked.where} {asked.per_request:.1f} times for each of them",
        (asked.fact(), *facts),
        (*choice.lookups(case.report, case.service.pids, asked.where), *otherwise),
    )


def _wakes(case: _Case, part: str, author: Optional[LastAuthor], pid: int) -> Tuple[Action, ...]:
    """What to do about a sleep."""
    if not pid:
        return ()
    is_full = author is not None and _sleeps_at_a_full_pipe(case)
    first = remedies("pipe-full", pid=pid, who=author.name) if author and is_full else ()
    if author is not None and author.is_program:
        first = choice.child_each(author.author.comm or "")
    if in_virtual_threads(case.service) and part in IN_GOROUTINES:
        kind = "erlang-processes" if in_erlang(case.service) else "virtual-threads"
        return remedies(kind, pid=pid)
    written = _written_by(case, author)
    if written:
        return written
    # More threads only wait at that lock, too.
    takes_turns = part == "lock" and queue_at_locks(case.service, case.time)
    is_occupied = case.time.occupied >= THREAD_BUSY_MIN and not takes_turns
    found = choice.sleeps(case.report, pid, on_disk=part == "disk", is_occupied=is_occupied)
    return (*first, *found)


def _written_by(case: _Case, author: Optional[LastAuthor]) -> Tuple[Action, ...]:
    """What to do where most of that sleep is another thread's call that writes to the disk."""
    if author is None or author.share * author.did_share < AUTHOR_SHARE_MIN:
        return ()
    did = author.author
    if did.was != "disk":
        return ()
    return choice.written_first(case.report, did.pid, did.call, author.in_turns is not None)


def _sleeps_at_a_full_pipe(case: _Case) -> bool:
    if _sleeps_for(case.time) != "sleep" or not _is_writing(case.report):
        return False
    return waited_for(case.service, "sleep", case.time.sum_us("sleep")) == "pipe"


def _upstream_wait(case: _Case) -> Remedy:
    asked = most_asked(case.service)
    if asked is None:
        return Remedy(None, f"{case.service.name} waits for another process's reply")
    if is_sent_unasked(case.report, case.service, case.time.sum_us("upstream")):
        return _sent_unasked(case.service, asked)
    busy = without_time(case.report, asked)
    larger: Tuple[Action, ...] = ()
    in_loop = _is_asleep_in_its_loop(case, _ASKS_ITSELF)
    if in_loop:
        larger = choice.loop_waits(case.report, case.service.pids)
    elif _mostly_queues(case):
        larger = _larger_pool(case)
    looks = asked.actions()
    if is_name_server(asked.address):
        looks = choice.lookups(case.report, case.service.pids, asked.address)
    is_first = busy is None and not _asks_together(case.service)
    actions = (*larger, *looks) if is_first else (*looks, *larger)
    often = times_in_turn(case.service, asked, case.time.sum_us("upstream"))
    if often is not None:
        actions = _with_once(asked, often, actions, is_first=not larger)
    also = f"; {asked.who} itself is {percent(busy)} busy" if busy is not None else ""
    where = "in its event loop for" if in_loop else "for"
    queues = "; nobody else is served meanwhile" if in_loop else _pool(case.service)
    return Remedy(
        asked.address,
        f"{case.service.name} waits {where} {asked.where}, {_takes(asked, often)}{queues}{also}",
        asked.facts,
        actions,
    )


def _takes(asked: MostAsked, often: Optional[float]) -> str:
    if often is None:
        return f"which takes {duration(asked.mean_us)} per request"
    each = f"{times(often)} times for each request"
    return f"which it asks {each}, {duration(asked.mean_us)} each time"


def _with_once(
    asked: MostAsked, often: float, others: Tuple[Action, ...], *, is_first: bool
) -> Tuple[Action, ...]:
    """First where one answer alone is nothing, or where it is asked in a loop."""
    once = choice.asks_again(asked.server, asked.who)
    is_best = asked.mean_us < WAIT_MEAN_US_MIN or often >= ASKS_IN_LOOP_MIN
    return (*once, *others) if is_first and is_best else (*others, *once)


def _sent_unasked(service: Service, asked: MostAsked) -> Remedy:
    return Remedy(
        asked.address,
        f"{service.name} waits for what others send through {asked.where}, which itself answers "
        f"in {duration(asked.mean_us)}",
        asked.facts,
        choice.sent_through(asked.pid, asked.who),
    )


# What a thread sleeps in that polls for its clients: calls to an upstream, or a sleep, a child …;
# and the part of the `app` stages that this is.
_ASKS_ITSELF = (("blocked_recv", "blocked_connect"), "upstream")
_SLEEPS_ITSELF = (("blocked_other",), "other")


def _is_asleep_in_its_loop(case: _Case, what: Tuple[Tuple[str, ...], str]) -> bool:
    """A thread that polls sleeps elsewhere, in these, and requests wait for it meanwhile.

    Who comes while it sleeps waits for half of one such sleep on average, at least. Threads of a
    pool poll for one answer, too: for these nobody waits.
    """
    service, time, (activities, part) = case.service, case.time, what
    loops = [t for t in serving_threads(service) if t.tid in service.polled]
    slept = (sum(t.share.get(name, 0.0) for name in activities) for t in loops)
    longest = max(slept, default=0.0)
    if longest < WAIT_SHARE_MIN or not time.count:
        return False
    # Before accept() they wait for a worker that takes one at a time.
    queued_us = (time.queue_us - time.before_us) / time.count
    each_us = service.app_us(part) / service.count if service.count else 0.0
    return queued_us >= max(WAIT_MEAN_US_MIN, longest * each_us / 2)


def _pool(service: Service) -> str:
    full = full_pool(service)
    if full is not None:
        busy = percent((full.busy_pct or 0.0) / 100)
        if _asks_together(service):
            return f", {_over(full.connections or 1)} {busy} busy"
        if full.connections == 1:
            return f", and asks it one request at a time: its one connection is {busy} busy"
        size = count(full.connections or 0, "connection")
        return f", and queues for it: its pool of {size} is full, {busy} busy"
    if is_queueing(service):
        return f", and queues for it: {at_once(service):.1f} requests at once are outstanding there"
    return ""


def _over(connections: int) -> str:
    return (
        "over one connection, which is"
        if connections == 1
        else f"over {connections:,} connections, which are"
    )


def _asks_together(service: Service) -> bool:
    """By HTTP/2; or over one connection, with fewer turns than there are requests, but for those in
    progress at the window's edges: several were sent before their answers came."""
    full = full_pool(service)
    if full is not None and full.multiplexed:
        return True
    if full is None or full.connections != 1:
        return False
    return full.count + service.at_once < service.count


def _larger_pool(case: _Case) -> Tuple[Action, ...]:
    full = full_pool(case.service)
    if full is not None and full.multiplexed:
        return ()
    size = full.connections if full is not None else None
    return choice.pool(
        case.report, case.service.pids, 0 if _asks_together(case.service) else size or 0
    )


def _mostly_queues(case: _Case) -> bool:
    """A wait for an upstream is for a free connection to it, for the most part."""
    asked_us = case.service.upstream_us
    return bool(_pool(case.service)) and case.time.sum_us("upstream") >= 2 * asked_us


def _cpu_contention(case: _Case) -> Remedy:
    waited_us = case.service.spent_us("runq")
    worked_us = case.service.spent_us(*ON_CPU)
    says = (
        f"its threads waited {duration(waited_us)} for a CPU and ran for {duration(worked_us)} "
        f"on a host of {count(case.service.cpus, 'CPU')}"
    )
    fact = evidence("runq_wait_us", waited_us, "µs", says)
    name = case.service.name
    return (
        _quota(case, fact)
        or _confined(case, fact)
        or _too_many_threads(case, fact)
        or _others(case, name, fact)
    )


def _quota(case: _Case, fact: Evidence) -> Optional[Remedy]:
    group = throttling(case.report)
    if group is None:
        return None
    quota = group.quota_cpus or 0.0
    says = f"{group.throttled_periods} of {group.periods} periods of {group.path} were cut short"
    cut = evidence(
        "throttled_periods_pct", group.throttled_pct or 0.0, "%", says, THROTTLED_PERIODS_PCT_MIN
    )
    return Remedy(
        group.path,
        f"{case.service.name} has used up its CPU quota of {quota:.3g} CPUs and is throttled",
        (fact, cut),
        cpus.quota(group),
    )


def _confined(case: _Case, fact: Evidence) -> Optional[Remedy]:
    limit = confinement(case.report)
    if limit is None:
        return None
    name, idle_pct = case.service.name, limit.others_idle_pct or 0.0
    others = f"CPU {limit.others[0]} is" if len(limit.others) == 1 else "the others are"
    idle = f"{others} idle {percent(idle_pct / 100)} of the time"
    own = _cpus(limit.cpus)
    says = f"it may run on {own} of {case.report.host.cpus} CPUs only, and {idle}"
    elsewhere = evidence("others_idle_pct", idle_pct, "%", says, IDLE_ELSEWHERE_PCT_MIN)
    headline = f"{name} waits for {own}, and may not run elsewhere: {idle}"
    actions = cpus.confined(limit, name)
    if foreign_share(case.report) < HOLDER_SHARE_MIN:
        return Remedy(name, headline, (fact, elsewhere), actions)
    held = _others(case, name, fact)
    return Remedy(
        held.subject, headline, (fact, elsewhere, *held.facts[1:]), (*actions, *held.actions)
    )


def _cpus(cpus_of: Sequence[int]) -> str:
    return f"CPU{'s' if len(cpus_of) > 1 else ''} {cpu_list(cpus_of)}"


def _too_many_threads(case: _Case, fact: Evidence) -> Optional[Remedy]:
    if not has_too_many_threads(case.report):
        return None
    each = runnable_per_cpu(case.report)
    says = f"on average {each:.1f} of its threads want each CPU"
    many = evidence("runnable_per_cpu", each, "threads", says, RUNNABLE_PER_CPU_MAX)
    return Remedy(
        case.service.name,
        f"{case.service.name} runs more threads than there are CPUs: {each:.1f} per CPU",
        (fact, many),
        cpus.too_many_threads(case.report, case.service.cpus),
    )


def _holder_name(holder: CpuHolder) -> str:
    if not holder.pid:
        return "processes that have ended"
    return f"{holder.comm or 'a process'} {holder.pid}"


def _others(case: _Case, name: str, fact: Evidence) -> Remedy:
    holders = foreign_holders(case.report)[:3]
    facts = [
        evidence(
            "cpu_held_us",
            each.waited_us,
            "µs",
            f"{_holder_name(each)} ran for {percent(each.share_pct / 100)} of that time",
        )
        for each in holders
    ]
    if not holders:
        return Remedy(
            name, f"{name} is ready to run but gets no CPU", (fact,), remedies("who-runs")
        )
    return _held_by(case.report, cpus.culprit(holders), name, (fact, *facts))


def _held_by(report: Report, first: CpuHolder, name: str, facts: Tuple[Evidence, ...]) -> Remedy:
    lacks = f"{name} is ready to run but gets no CPU"
    actions = cpus.cpu_holder(report, first)
    if not first.pid:
        short_lived = f"{lacks}: short-lived processes hold it"
        return Remedy("short-lived processes", short_lived, facts, actions)
    who = f"{first.comm or 'pid'} {first.pid}"
    low = cpus.lowered_beside(first)
    if low and cpus.is_stranger(report, first):
        fact = _lowered_fact(first, low[0])
        return Remedy(who, f"{lacks}: {fact.says}", (*facts, fact), actions)
    return Remedy(who, f"{lacks}: {_holds(report, first, who)}", facts, actions)


def _lowered_fact(holder: CpuHolder, low: LoweredPriority) -> Evidence:
    kind = holder.priority.kind if holder.priority is not None else "nice"
    its = {"session": "the nice value of its session", "cgroup": "the CPU weight of its cgroup"}
    value = holder.priority.value if holder.priority is not None else None
    that = f", that of {holder.comm or 'pid'} {holder.pid} {value}" if value is not None else ""
    says = f"{its.get(kind, 'its nice value')} is {low.value}{that}"
    return evidence("target_priority", low.value, "nice" if kind != "cgroup" else "weight", says)


def _holds(report: Report, holder: CpuHolder, who: str) -> str:
    """Who had less than most of it is one of several, and no culprit alone."""
    share, own = holder.share_pct / 100, held_by_targets(report)
    if share >= HOLDER_SHARE_MIN:
        return f"{who} holds it"
    if own > share:
        return (
            f"its own threads held it for {percent(own)} of that time, {who} for {percent(share)}"
        )
    return f"{who} held it for {percent(share)} of that time, others for the rest"


def _send_blocked(case: _Case) -> Remedy:
    slept_us = case.service.spent_us("blocked_send")
    says = f"threads slept {duration(slept_us)} in send calls"
    fact = evidence("send_blocked_us", slept_us, "µs", says)
    name = case.service.name
    datagrams = _stuck_datagrams(case.report, slept_us)
    if datagrams is not None:
        return _datagrams_wait(case, datagrams, fact)
    row = binding_buffer(case.report)
    if row is None:
        return Remedy(name, f"{name} sleeps in send calls: its readers do not keep up", (fact,))
    size, needed = row.send_buffer_bytes or 0, bytes_per_request(row)
    does_not_fit = evidence(
        "send_buffer_bytes", size, "bytes", f"{needed:,.0f} bytes per request, {size:,} fit"
    )
    return Remedy(
        f"{row.transport}:{row.local}",
        f"{name} sleeps in send calls: it set its send buffer (SO_SNDBUF) to {size:,} bytes, "
        f"and a request sends {needed:,.0f}",
        (fact, does_not_fit),
        choice.send_buffer(case.report, needed),
    )


def _stuck_datagrams(report: Report, slept_us: float) -> Optional[Syscall]:
    """The call in which most of that sleep was for the reader of a Unix datagram socket."""
    rows = [
        row
        for row in report.syscalls or []
        if (row.transport, row.socket_type) == ("unix", "dgram") and row.name in choice.SENDS
    ]
    longest = max(rows, key=lambda row: row.slow_us, default=None)
    return longest if longest is not None and longest.slow_us >= slept_us / 2 else None


def _datagrams_wait(case: _Case, row: Syscall, fact: Evidence) -> Remedy:
    limits = [n.max_dgram_qlen for n in case.report.namespaces or [] if n.max_dgram_qlen]
    mean_us = row.latency_us.mean or 0.0
    says = f"{count(row.calls, 'call')} of {row.name} took {duration(mean_us)} on average"
    facts = [fact, evidence("send_us", mean_us, "µs", says)]
    if limits:
        says = f"a datagram socket queues {limits[0] + 1} messages (net.unix.max_dgram_qlen + 1)"
        facts.append(evidence("max_dgram_qlen", limits[0], "messages", says))
    reader = who_ended(case.service, "send")
    who = "a log for example" if reader is None else reader.name
    if reader is not None:
        facts.append(reader.fact())
    return Remedy(
        "unix datagram sockets",
        f"{case.service.name} sleeps in {row.name} on Unix datagram sockets"
        f"{_and_locks(case, 'send')}: their reader, {who}, does not keep up",
        tuple(facts),
        remedies("datagrams"),
    )


def _and_locks(case: _Case, part: str) -> str:
    """Where most of what requests wait for such sleeps is for a lock that is held meanwhile."""
    is_locked = 2 * case.time.held_us.get(part, 0.0) > case.time.sum_us(part)
    return ", and holds a lock that others wait for" if is_locked else ""


# They look at each descriptor in each call; epoll knows which have something.
_LOOKS_AT_ALL = ("poll", "ppoll", "select", "pselect6")


def _polls_all(case: _Case) -> Optional[Remedy]:
    """Most of the CPU time goes to pollers that look at all descriptors in each call."""
    rows = [row for row in case.report.syscalls or [] if row.name in _LOOKS_AT_ALL]
    most = max(rows, key=lambda row: row.cpu_us or 0.0, default=None)
    spent_us, pids = case.service.spent_us(*ON_CPU), case.service.pids
    targets = [each for each in case.report.targets if pids is None or each.pid in pids]
    fds = max((each.fds.open or 0 for each in targets), default=0)
    if most is None or not spent_us or fds < MANY_DESCRIPTORS_MIN:
        return None
    share = (most.cpu_us or 0.0) / spent_us
    if share < WAIT_SHARE_MIN:
        return None
    says = (
        f"{percent(share)} of its CPU time is in {most.name}(), "
        f"{duration(share * spent_us / most.calls)} in each of {count(most.calls, 'call')}"
    )
    opened = evidence(
        "fds_open", fds, "fds", f"{fds:,} file descriptors are open", MANY_DESCRIPTORS_MIN
    )
    return Remedy(
        case.service.name,
        f"{case.service.name} spends its time in {most.name}(), which looks at all of its "
        "descriptors in each call",
        (evidence("polls_all_share", share, "of 1", says, WAIT_SHARE_MIN), opened),
        choice.polls_all(case.report, pids, most.name),
    )


def _transport(case: _Case) -> Remedy:
    found = _polls_all(case)
    if found is not None:
        return found
    per_request = case.report.requests.syscalls_per_request
    facts: Tuple[Evidence, ...] = ()
    if per_request is not None:
        says = f"{per_request.total:.3g} system calls per request"
        facts = (evidence("syscalls_per_request", per_request.total, "calls", says),)
    moved = sum(row.bytes for row in case.report.syscalls or [])
    if case.time.count:
        each = moved / case.time.count
        facts += (evidence("bytes_per_request", each, "bytes", f"{each:,.0f} bytes per request"),)
    return Remedy(
        case.service.name,
        "requests spend their time in the kernel moving bytes",
        facts,
        (*choice.to_move_less(case.report, case.service.pids), *_unix_instead(case.report)),
    )


def _unix_instead(report: Report) -> Tuple[Action, ...]:
    served = [row for row in report.connections or [] if row.role == "served"]
    if not served or any(row.transport != "tcp" for row in served):
        return ()
    if not all(is_of_this_host(row.local) for row in served):
        return ()
    return remedies("unix-instead")


_REMEDIES: Dict[str, Callable[[_Case], Remedy]] = {
    "app-cpu": _app_cpu,
    "app-blocked": _app_blocked,
    "upstream-wait": _upstream_wait,
    "cpu-contention": _cpu_contention,
    "send-blocked": _send_blocked,
    "transport": _transport,
}
