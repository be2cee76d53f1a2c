"""What requests spent their time on, queueing included.

A request that waits until its server begins with it waits for what the
server does meanwhile. So the time before the receive call is divided like
the time the server was occupied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Mapping, NamedTuple, Sequence, Tuple

from udsprobe.model.report import ThreadTime
from udsprobe.rules.accounts.authors import holders_asleep, locked_in_pool_us
from udsprobe.rules.accounts.behind_locks import behind_locks, busy_shares
from udsprobe.rules.accounts.own_pool import behind_loops, behind_parked, behind_sleeps
from udsprobe.rules.accounts.service import (
    Service,
    in_virtual_threads,
    is_polling,
    is_serving,
    serving_threads,
    serving_time,
    tail_us,
    without_row,
)
from udsprobe.rules.accounts.upstream_pool import queued_for_pools
from udsprobe.rules.peers.lookups import shared_us
from udsprobe.rules.thresholds import (
    ONE_AT_A_TIME_MAX,
    THREAD_BUSY_MIN,
    WAIT_MEAN_US_MIN,
    WAKE_UP_US_MAX,
)

WAITS = ("runq", "upstream", "lock", "disk", "timer", "sleep", "send")
BLOCKED = ("lock", "disk", "timer", "sleep")
_BUSY = ("cpu", "runq")
# Of the clients' making.
CLIENTS = ("client", "other_clients")
# What a thread does that could take another request.
_THERE = ("sys_poll", "blocked_poll", "blocked_accept")
# Of the report's `app_time_pct`.
_PART_OF_APP = {
    "client": "client",
    "cpu": "cpu",
    "runq": "runq",
    "upstream": "upstream",
    "lock": "lock",
    "disk": "disk",
    "poll": "timer",
    "other": "sleep",
}


@dataclass(frozen=True)
class RequestTime:
    """Request time by what it was spent on, all requests together.

    Attributes:
        parts_us: `cpu`, `transport`, the waits `runq`, `upstream`, `lock`,
            `disk`, `timer`, `sleep`, `send`, and `accept`: for an accept() that nobody
            made though the serving threads had time; `client`: for the rest of the request,
            which its client sends late; `other_clients`: for what another client sends.
        queue_us: of these, before the server began with the request; before_us: of that, before
            its connection was accepted.
        total_us: their sum.
        occupied: part of the window in which the serving threads had something to do; that of
            the fullest event loop, where it is more.
        behind_locks: the part of the `app` stages that is other threads' work behind a lock.
        before_taken: the part in which the thread that a request is handed to works for others.
        behind_helpers: the part that is the work of own threads and children which a poller, or a
            thread that sleeps, waits for.
        app_us: the `app` stages themselves.
        held_us: of these, waits for locks whose holders slept for another process, by the part
            that such a sleep is.
    """

    count: int
    parts_us: Mapping[str, float]
    queue_us: float
    total_us: float
    occupied: float
    behind_locks: float = 0.0
    before_taken: float = 0.0
    behind_helpers: float = 0.0
    before_us: float = 0.0
    app_us: float = 0.0
    held_us: Mapping[str, float] = field(default_factory=dict)

    @property
    def behind_locks_us(self) -> float:
        """Other threads' work behind a lock."""
        return self.behind_locks * self.app_us

    @property
    def locked_us(self) -> float:
        """Waits for locks, those as well that are their holders' work."""
        return self.sum_us("lock") + self.behind_locks_us

    def asleep_us(self, part: str) -> float:
        """What waits of one part can have been at most; threads wait for locks also between two
        requests, while the next one is there."""
        return self.locked_us + self.queue_us if part == "lock" else self.sum_us(part)

    @property
    def by_others(self) -> float:
        """The part of the `app` stages that is other threads' work."""
        return self.behind_locks + self.before_taken + self.behind_helpers

    def share(self, *names: str) -> float:
        """The part of request time that some parts make up."""
        return self.sum_us(*names) / self.total_us if self.total_us else 0.0

    def mean_us(self, *names: str) -> float:
        """Of some parts, a request."""
        return self.sum_us(*names) / self.count if self.count else 0.0

    def sum_us(self, *names: str) -> float:
        """Of some parts, all requests together."""
        return sum(self.parts_us.get(name, 0.0) for name in names)


class AppAccount(NamedTuple):
    """The `app` stages of all requests by what they were spent on, in µs.

    Attributes:
        parts: of which the others are, too. behind_locks: other threads' work behind a lock.
        before_taken: work for others of the threads that requests are handed to. behind_helpers:
            work of own threads and children that are waited for in a poller or asleep.
        held_us: waits for locks whose holders slept for another process.
    """

    parts: Dict[str, float]
    behind_locks: Mapping[str, float]
    before_taken: Mapping[str, float]
    behind_helpers: Mapping[str, float]
    held_us: Mapping[str, float]


def request_time(service: Service, starved: bool = False) -> RequestTime:
    """Divides the request time of a service; all parts are 0 when it served nothing.

    Waiting for a CPU that the service itself or its clients hold is its own
    demand for CPU, and is divided like its time on CPUs.

    Args:
        starved: connections wait for accept() longer than those before them take.
    """
    sums = service.stage_sums_us
    within = {name: sums.get(name, 0.0) for name in ("recv_wait", "recv", "app", "send")}
    before_us = max(0.0, service.total_us - sum(within.values()))
    queue_us = within["recv_wait"] + before_us
    app = app_account(service)
    occupied = occupation(service, app)
    use = max(_use(service, occupied), _fullest_loop(service))
    accept_us = before_us if starved and use < THREAD_BUSY_MIN else 0.0
    parts = dict.fromkeys(("cpu", "transport", *WAITS, "accept", *CLIENTS), 0.0)
    _add(parts, {**app.parts, "accept": accept_us})
    _add(parts, _divided(queue_us - accept_us, service, occupied, parts["runq"]))
    _add(parts, _in_calls(service, parts["runq"]))
    _own_demand(parts, occupied, service)
    return RequestTime(
        *(service.count, parts, queue_us, sum(parts.values()), use),
        behind_locks=_part_of(within["app"], app.behind_locks),
        before_taken=_part_of(within["app"], app.before_taken),
        behind_helpers=_part_of(within["app"], app.behind_helpers),
        before_us=before_us,
        app_us=within["app"],
        held_us=app.held_us,
    )


def _part_of(whole_us: float, parts: Mapping[str, float]) -> float:
    return sum(parts.values()) / whole_us if whole_us else 0.0


def _in_calls(service: Service, known_runq_us: float) -> Dict[str, float]:
    """Receive and send calls: who slept in there may wait for a CPU before it goes on.

    From the first byte of a request to its last one is its client's time as well.
    """
    recv_us, send_us = (service.stage_sums_us.get(name, 0.0) for name in ("recv", "send"))
    send_wait_us = min(send_us, service.spent_us("blocked_send"))
    moving_us = recv_us + send_us - send_wait_us
    ran_us = service.spent_us("sys_socket")
    not_running_us = max(0.0, moving_us - ran_us)
    runq_us = min(not_running_us, max(0.0, service.spent_us("runq") - known_runq_us))
    # A client copies into the kernel what is copied out of it here: that takes it about as long.
    client_us = min(recv_us, max(0.0, not_running_us - runq_us - 2 * ran_us))
    return {
        "send": send_wait_us,
        "runq": runq_us,
        "client": client_us,
        "transport": moving_us - runq_us - client_us,
    }


def _own_demand(parts: Dict[str, float], occupied: Mapping[str, float], service: Service) -> None:
    on_cpu_us = occupied["cpu"] + occupied["transport"]
    delivering_us = parts["runq"] * min(service.delivering_runq, 1 - service.foreign_runq)
    own_us = parts["runq"] * (1 - service.foreign_runq) - delivering_us
    parts["runq"] -= delivering_us
    parts["transport"] += delivering_us
    if not on_cpu_us:
        return
    parts["runq"] -= own_us
    for name in ("cpu", "transport"):
        parts[name] += own_us * occupied[name] / on_cpu_us


def app_account(service: Service) -> AppAccount:
    """The `app` stage by whom it waited for, and of that what was other threads' work."""
    parts = _by_who_replies(service)
    polled_us = parts["timer"]
    handed, before_taken = _handed_over(service)
    for more in (handed, before_taken):
        _add(parts, more)
    helped = behind_loops(service, parts["timer"]) or _of_other_threads(service, polled_us)
    _add(parts, helped, taken_from="timer")
    asleep = behind_sleeps(service, parts["sleep"])
    _add(parts, asleep, taken_from="sleep")
    behind_helpers = {name: helped.get(name, 0.0) + asleep.get(name, 0.0) for name in _BUSY}
    _add(parts, behind_parked(service, parts["lock"]), taken_from="lock")
    held = holders_asleep(service, parts["lock"])
    held_us = {name: parts["lock"] * share for name, share in held.items()}
    _add(parts, held_us, taken_from="lock")
    behind = behind_locks(service, parts)
    _add(parts, behind, taken_from="lock")
    for name, us in queued_for_pools(service, parts).items():
        _add(parts, {"upstream": us}, taken_from=name)
    parts = _without_itself(service, parts)
    return AppAccount(parts, behind, before_taken, behind_helpers, held_us)


def _without_itself(service: Service, parts: Dict[str, float]) -> Dict[str, float]:
    """A request that waits for what its process asks itself waits for what that waits for."""
    asked_us = service.itself_us + service.upstream_us
    itself_us = parts["upstream"] * service.itself_us / asked_us if asked_us else 0.0
    rest_us = sum(parts.values()) - itself_us
    if itself_us <= 0 or rest_us <= 0:
        return parts
    scale = 1 + itself_us / rest_us
    return {
        **{name: us * scale for name, us in parts.items()},
        "upstream": (parts["upstream"] - itself_us) * scale,
    }


def _by_who_replies(service: Service) -> Dict[str, float]:
    """Of requests that stay with one thread: by what it did."""
    known_us = service.stage_sums_us.get("app", 0.0) - service.handed_us
    parts = {
        part: known_us * service.app_pct.get(name, 0.0) / 100 for name, part in _PART_OF_APP.items()
    }
    others_us = service.others_share * parts["timer"]
    _add(parts, {"other_clients": others_us}, taken_from="timer")
    asked_us = service.connecting_us + service.answers_paused_us
    _add(parts, {"upstream": min(parts["timer"], asked_us)}, taken_from="timer")
    slow_us = tail_us(service.latency)
    looked_up_us = shared_us(slow_us, service.upstream, parts["timer"])
    _add(parts, {"upstream": looked_up_us}, taken_from="timer")
    _add(parts, {"send": _asleep_in_sends_us(service, parts["upstream"])}, taken_from="upstream")
    return parts


def _asleep_in_sends_us(service: Service, upstream_us: float) -> float:
    """Of the waits for others, those for a reader with room: a log, say, that takes no more."""
    asleep_us = _thread_us(serving_time(service), "blocked_send")
    return min(upstream_us, max(0.0, asleep_us - service.stage_sums_us.get("send", 0.0)))


def occupation(service: Service, app: AppAccount) -> Dict[str, float]:
    """What kept the serving threads from the next request, in µs of thread time.

    An event loop that sleeps anywhere but in its poller is not there for
    anybody. A thread that serves one request at a time is kept by all that
    request waits for, its poller included, and by clients that send the rest of it late.
    """
    threads = serving_time(service)
    loops = [t for t in serving_threads(service) if is_polling(t)]
    whole = service.counted_share
    client_us = _in_calls(service, app.parts["runq"])["client"]
    for_bytes_us = _thread_us(loops, "blocked_recv")
    for_clients_us = min(for_bytes_us, client_us / whole)
    spent = {
        "cpu": _thread_us(threads, "user", "sys_other"),
        "transport": _thread_us(threads, "sys_socket", "sys_poll"),
        "runq": _thread_us(threads, "runq"),
        "disk": _thread_us(loops, "blocked_disk"),
        "sleep": _thread_us(loops, "blocked_other"),
        "send": _thread_us(loops, "blocked_send"),
        "upstream": for_bytes_us - for_clients_us + _thread_us(loops, "blocked_connect"),
        "client": for_clients_us,
    }
    room_us = _there_us(service) - sum(spent.values())
    waits = {name: app.parts.get(name, 0.0) / whole for name in WAITS if name != "runq"}
    waits["client"] = (client_us + app.parts.get("client", 0.0)) / whole
    work = [app.behind_locks, app.behind_helpers]
    if loops and not _is_one_at_a_time(service, room_us):
        waits, work = {"lock": waits["lock"]}, [app.behind_locks]
    more_us = {name: max(0.0, us - spent.get(name, 0.0)) for name, us in waits.items()}
    for done in work:
        _add(more_us, {name: us / whole for name, us in done.items()})
    more = sum(more_us.values())
    scale = min(1.0, max(0.0, room_us) / more) if more else 0.0
    for name, us in more_us.items():
        spent[name] = spent.get(name, 0.0) + us * scale
    return spent


def _is_one_at_a_time(service: Service, free_us: float) -> bool:
    """Requests queue although the thread sleeps in its poller: it polls for one of them only."""
    app_us = service.stage_sums_us.get("app", 0.0)
    there_us = _there_us(service)
    if not service.count or app_us > ONE_AT_A_TIME_MAX * there_us:
        return False
    queued_us = max(0.0, service.total_us - app_us)
    return queued_us / service.count >= WAIT_MEAN_US_MIN and free_us >= there_us / 2


def _there_us(service: Service) -> float:
    """Of threads that come and go, each lives only while it is busy: the window counts as well."""
    lived_s = sum(t.observed_s for t in serving_time(service))
    return max(lived_s, service.duration_s) * 1e6 if lived_s else 0.0


def wake_up_us(service: Service, occupied: float) -> float:
    """The part of the wait for the receive call in which the reader woke up, a request.

    Moving bytes is over when they are in the queue; a thread that was free
    then still has to wake up. One that waits for longer waits for a CPU, or
    was not free.
    """
    wait = service.stages.recv_wait
    if wait is None or not wait.count or wait.mean is None:
        return 0.0
    usual_us = wait.p50 if wait.p50 is not None else wait.mean
    return (1 - occupied) * min(wait.mean, usual_us, WAKE_UP_US_MAX)


def _divided(
    queue_us: float, service: Service, occupied: Mapping[str, float], app_runq_us: float
) -> Dict[str, float]:
    """The wait for the server: waking up, waiting for a CPU, and then whatever kept it."""
    woken_us = min(queue_us, wake_up_us(service, _use(service, occupied)) * service.count)
    rest_us, whole = queue_us - woken_us, sum(occupied.values())
    if not whole:
        # Nothing kept its threads, and still nobody came.
        return {"transport": woken_us, "sleep": rest_us}
    divided = {name: rest_us * us / whole for name, us in occupied.items()}
    # Threads wait for a CPU when there is work for them: that was no request in hand.
    runq_us = min(rest_us, occupied["runq"] - app_runq_us)
    if runq_us > divided["runq"] and whole > occupied["runq"]:
        left = (rest_us - runq_us) / (whole - occupied["runq"])
        divided = {name: us * left for name, us in occupied.items()}
        divided["runq"] = runq_us
    divided["transport"] += woken_us
    return divided


def _use(service: Service, occupied: Mapping[str, float]) -> float:
    there_us = _there_us(service)
    return min(1.0, sum(occupied.values()) / there_us) if there_us else 0.0


def _fullest_loop(service: Service) -> float:
    """The part of its time in which an event loop was not there for anybody: of several workers
    with a listener each, one may be full while the others idle."""
    lived = {(t.pid, t.tid) for t in service.long_lived()}
    loops = [t for t in serving_threads(service) if is_polling(t) and (t.pid, t.tid) in lived]
    return max((1 - sum(t.share.get(name, 0.0) for name in _THERE) for t in loops), default=0.0)


def _of_other_threads(service: Service, waiting_us: float) -> Dict[str, float]:
    """A thread pool works while the loop waits in its poller, or a child for each request: that
    wait is its work.

    Where nothing is known of who ended these waits.
    """
    pool = [t for t in (*service.threads, without_row(service)) if not is_serving(t)]
    work = {
        "cpu": _thread_us(pool, "user", "sys_other"),
        "runq": _thread_us(pool, "runq"),
        "disk": _thread_us(pool, "blocked_disk"),
    }
    whole = sum(work.values())
    scale = min(1.0, waiting_us / whole) if whole else 0.0
    return {name: us * scale for name, us in work.items()}


def _handed_over(service: Service) -> Tuple[Dict[str, float], Dict[str, float]]:
    """No thread tells of these; what all threads did in that time is the best there is.

    Between two threads a request waits for the one that takes it, which may be busy with others:
    that is the second. Or it sleeps in those, as all of a pool that is full do: for locks and
    timers, too.
    """
    parts: Dict[str, float] = {}
    rest_us = handed_us = service.handed_us
    part = handed_us / service.stage_sums_us["app"] if handed_us else 0.0
    repliers = [t for t in service.threads if t.tid in service.repliers]
    known = {
        "cpu": service.spent_us("user", "sys_other") * part,
        "runq": service.spent_us("runq") * part,
        "upstream": (service.upstream_us + service.itself_us) * part,
        "disk": service.spent_us("blocked_disk") * part,
        "sleep": _thread_us(repliers, "blocked_other") * part,
        "lock": locked_in_pool_us(service) * part,
    }
    if in_virtual_threads(service):
        known["lock"] = rest_us
    for name, us in known.items():
        parts[name] = min(rest_us, us)
        rest_us -= parts[name]
    asleep = _asleep_shares(service, repliers)
    busy = busy_shares(service, parts) if rest_us > 0 else {}
    unlocked = 1 - asleep.get("lock", 0.0)
    others = {name: rest_us * share * unlocked for name, share in busy.items()}
    rest_us = max(0.0, rest_us - sum(others.values()))
    _add(parts, {name: rest_us * share for name, share in asleep.items()})
    parts["timer"] = rest_us * max(0.0, 1 - sum(asleep.values()))
    return parts, others


def _asleep_shares(service: Service, repliers: Sequence[ThreadTime]) -> Dict[str, float]:
    """The part of any moment in which who replies sleeps in a request, by what for."""
    asleep_us = {
        "upstream": service.upstream_us + service.itself_us,
        "disk": _thread_us(repliers, "blocked_disk"),
        "sleep": _thread_us(repliers, "blocked_other"),
        "send": _thread_us(repliers, "blocked_send"),
        "lock": locked_in_pool_us(service),
    }
    whole_us = max(sum(t.observed_s for t in repliers) * 1e6, sum(asleep_us.values()))
    return {name: us / whole_us for name, us in asleep_us.items()} if whole_us else {}


def _thread_us(threads: Sequence[ThreadTime], *activities: str) -> float:
    return sum(t.share.get(name, 0.0) * t.observed_s for t in threads for name in activities) * 1e6


def _add(parts: Dict[str, float], more: Mapping[str, float], taken_from: str = "") -> None:
    for name, us in more.items():
        parts[name] = parts.get(name, 0.0) + us
        if taken_from:
            parts[taken_from] -= us
