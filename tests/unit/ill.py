"""Reports of a service with one illness, for the tests of the rules."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional

from tests.unit.reports import (
    ACTIVITIES,
    busy,
    crowded,
    latency,
    listener,
    probe,
    target,
)
from udsprobe.model.report import (
    Connection,
    Fds,
    Latency,
    Listener,
    Peer,
    ProcessTime,
    Report,
    Requests,
    SendBlocked,
    Served,
    ServedBy,
    StageMeans,
    Stages,
    Syscall,
    ThreadTime,
    Time,
    Upstream,
    Waiting,
    WholeRequest,
)

SECONDS = 10.0


def flat(count: int, mean: float) -> Latency:
    """The same duration every time, in µs."""
    if not count:
        return Latency(0)
    return Latency(count, mean, mean, mean, mean, mean, mean)


def thread(tid: int = 4711, comm: str = "node", **share: float) -> ThreadTime:
    """The given shares; the rest asleep in the poller."""
    rest = {"blocked_poll": 1 - sum(share.values())}
    return ThreadTime(4711, tid, comm, SECONDS, {**dict.fromkeys(ACTIVITIES, 0.0), **rest, **share})


def time_of(*threads: ThreadTime) -> Time:
    """Of one process."""
    observed_s = sum(each.observed_s for each in threads)
    total = {
        name: sum(each.share[name] * each.observed_s for each in threads) / observed_s
        for name in ACTIVITIES
    }
    process = ProcessTime(4711, "node", len(threads), observed_s, total)
    return Time(list(threads), [process], threads[0], observed_s, total)


def served(
    count: int,
    *,
    before: float = 0.0,
    recv_wait: float = 20.0,
    recv: float = 3.0,
    app: float = 100.0,
    send: float = 7.0,
    p99: Optional[float] = None,
    **app_pct: float,
) -> Served:
    """Requests with these means in µs; `before` is the wait for accept()."""
    mean = before + recv_wait + recv + app + send
    whole = flat(count, mean)
    return Served(
        count=count,
        rate_per_s=count / SECONDS,
        latency_us=replace(whole, p99=p99 if p99 is not None else whole.p99),
        stages_us=Stages(
            Latency(0),
            flat(count, recv_wait),
            flat(count, recv),
            flat(count, app),
            flat(count, send),
        ),
        app_time_pct={**dict.fromkeys(_APP, 0.0), **(app_pct or {"cpu": 100.0})},
        turn_based=True,
    )


_APP = ("cpu", "runq", "upstream", "lock", "disk", "poll", "other")


def service(
    requests: Served,
    *threads: ThreadTime,
    listeners: Optional[List[Listener]] = None,
    upstream: Optional[List[Upstream]] = None,
    connections: Optional[List[Connection]] = None,
    syscalls: Optional[List[Syscall]] = None,
    fds: Optional[Fds] = None,
) -> Report:
    """A node that serves, and nothing wrong with it but what is given."""
    return replace(
        busy(SECONDS),
        probe=probe(),
        targets=[target(4711, "node", fds=fds)],
        time=time_of(*(threads or (thread(user=0.3, sys_socket=0.1),))),
        requests=Requests(requests, upstream or [], None),
        listeners=[quiet_listener()] if listeners is None else listeners,
        connects=[],
        connections=connections or [],
        connections_total=len(connections or []),
        syscalls=syscalls or [],
    )


def served_by(pid: int, count: int, comm: str = "node") -> ServedBy:
    """Requests of one process that nothing is wrong with."""
    mean = StageMeans(None, 20.0, 3.0, 100.0, 7.0)
    own = (pid, comm, count, count / SECONDS, flat(count, 130.0), mean, {"cpu": 100.0}, 0, 0, [])
    nothing = Waiting(0, None)
    return ServedBy(*own, in_progress=nothing, unread=nothing, asking=nothing)


def kept_request(tid: int, pid: int = 4711, comm: str = "node") -> WholeRequest:
    """One that a thread replied to, nginx's."""
    return WholeRequest(
        *("2026-11-28T12:00:00Z", pid, tid, comm, "unix", "/run/app.sock"),
        *(Peer(33, "nginx"), 2_000.0, StageMeans(), {}, [], None, None, None, 1, False, True),
    )


def quiet_listener() -> Listener:
    """Everything measured, nothing wrong."""
    row = crowded()
    return replace(
        row,
        depth=replace(listener(row.address).depth, now=0, max=2, histogram={"1": 300, "2": 20}),
        established=320,
        accepted=320,
        wait_us=flat(320, 40.0),
        refused={},
        blocked_connects=replace(row.blocked_connects, count=0, waiting_now=0)
        if row.blocked_connects
        else None,
    )


def connection(
    *,
    queued: int = 0,
    buffer: int = 212_992,
    sent: int = 1_000_000,
    slept: int = 0,
    eagain: int = 0,
    role: str = "served",
    peer: Optional[Peer] = None,
) -> Connection:
    """One on a Unix socket."""
    return Connection(
        transport="unix",
        local="/run/app.sock",
        peer=peer or Peer(99, "reader", None),
        pid=4711,
        role=role,
        requests=10,
        bytes_in=1000,
        bytes_out=sent,
        recv_queue_bytes=0,
        send_queue_bytes=queued,
        send_buffer_bytes=buffer,
        send_blocked=SendBlocked(slept, latency(slept, 5000), eagain),
    )


def upstream(count: int, mean: float, address: str = "/run/pg.sock") -> Upstream:
    """Requests to a database."""
    return Upstream("unix", address, Peer(55, "postgres", None), count, flat(count, mean))
