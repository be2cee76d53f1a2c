"""The report: what an observation found, in the words of the contract.

Every field is one of the report document, `udsprobe.report/1`; units are in
the names. `None` is *not measured* (`null` in JSON, `–` on screen). All views
show this and nothing else, so they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional

SCHEMA = "udsprobe.report/1"


@dataclass(frozen=True)
class Latency:
    """Percentiles in µs, within 3.2 % (`docs/report.md`); None when count is 0."""

    count: int
    mean: Optional[float] = None
    p50: Optional[float] = None
    p90: Optional[float] = None
    p99: Optional[float] = None
    p999: Optional[float] = None
    max: Optional[float] = None


@dataclass(frozen=True)
class Host:
    kernel: str
    arch: str
    cpus: int
    hostname: str


@dataclass(frozen=True)
class Window:
    """`start` is ISO-8601 with offset."""

    start: str
    duration_s: float


@dataclass(frozen=True)
class Measurement:
    name: str
    rests_on: Optional[str]
    state: str
    reason: Optional[str]


@dataclass(frozen=True)
class EventsLost:
    map_full: int
    ring_full: int
    missed: int


@dataclass(frozen=True)
class Probe:
    """`self_cpu_pct` is None when the window has no length."""

    strategy: str
    measurements: List[Measurement]
    attach_ms: float
    self_cpu_pct: Optional[float]
    bpf_cpu_pct: Optional[float]
    rss_bytes: int
    events_seen: int
    events_counted: int
    events_lost: EventsLost
    missed_by_program: Dict[str, int]
    turned_away: int


@dataclass(frozen=True)
class Fds:
    open: Optional[int]
    limit: Optional[int]


@dataclass(frozen=True)
class Target:
    pid: int
    comm: str
    cmdline: Optional[str]
    threads: int
    state: str
    fds: Fds
    via: str


@dataclass(frozen=True)
class Evidence:
    metric: str
    value: float
    unit: str
    threshold: Optional[float]
    says: str


@dataclass(frozen=True)
class Action:
    do: str
    why: str


@dataclass(frozen=True)
class RunnerUp:
    cause: str
    share_pct: float


@dataclass(frozen=True)
class Verdict:
    cause: str
    transport_bound: bool
    transport_share_pct: Optional[float]
    max_gain_pct: Optional[float]
    confidence: float
    summary: str
    subject: Optional[str]
    evidence: List[Evidence] = field(default_factory=list)
    actions: List[Action] = field(default_factory=list)
    runners_up: List[RunnerUp] = field(default_factory=list)


@dataclass(frozen=True)
class Finding:
    id: str
    severity: str
    subject: Optional[str]
    summary: str
    evidence: List[Evidence] = field(default_factory=list)
    actions: List[Action] = field(default_factory=list)


@dataclass(frozen=True)
class ThreadTime:
    """Shares of wall time of one thread; the thirteen of `enum activity` sum to 1."""

    pid: int
    tid: int
    comm: str
    share: Dict[str, float]


@dataclass(frozen=True)
class Time:
    """The 50 busiest threads, the busiest of all, and all threads together."""

    threads: List[ThreadTime]
    busiest: Optional[ThreadTime]
    total: Dict[str, float]


@dataclass(frozen=True)
class Stages:
    """Latency of each stage of a served request; None where not measured."""

    accept_wait: Optional[Latency] = None
    recv_wait: Optional[Latency] = None
    recv: Optional[Latency] = None
    app: Optional[Latency] = None
    send: Optional[Latency] = None


@dataclass(frozen=True)
class Served:
    """`turn_based` is None until it is measured."""

    count: int
    rate_per_s: Optional[float]
    latency_us: Latency
    stages_us: Stages
    app_time_pct: Optional[Dict[str, float]]
    turn_based: Optional[bool]


@dataclass(frozen=True)
class Peer:
    pid: Optional[int]
    comm: Optional[str]
    address: Optional[str] = None


@dataclass(frozen=True)
class Upstream:
    transport: str
    address: str
    peer: Optional[Peer]
    count: int
    latency_us: Latency


@dataclass(frozen=True)
class SyscallsPerRequest:
    """Every system call of the targets in the window ÷ served requests."""

    total: float
    by_syscall: Dict[str, float]


@dataclass(frozen=True)
class Requests:
    """`syscalls_per_request` is None when no request was served."""

    served: Optional[Served]
    upstream: Optional[List[Upstream]]
    syscalls_per_request: Optional[SyscallsPerRequest]


@dataclass(frozen=True)
class Syscall:
    """One row: a system call on one kind of endpoint.

    `slow_us` is the part of `wall_us` in calls of 1 ms or longer. `abi` is
    `compat` for 32-bit callers. `socket_type` tells Unix stream, seqpacket
    and dgram apart; None when the call is not on a socket.
    """

    name: str
    transport: str
    socket_type: Optional[str]
    abi: str
    calls: int
    in_flight: Optional[int]
    errors: Dict[str, int]
    bytes: int
    wall_us: float
    cpu_us: float
    latency_us: Latency
    slow_us: float


@dataclass(frozen=True)
class Backlog:
    """`equals_somaxconn`: None when the limit of its network namespace is not known."""

    requested: Optional[int]
    effective: int
    clamped_by: Optional[str]
    equals_somaxconn: Optional[bool] = None


@dataclass(frozen=True)
class Depth:
    """Connections in the accept queue.

    `limit` is backlog + 1: the kernel refuses above, not at, the backlog.
    `max` is the high-water mark of the window. `histogram`: depth right after
    a connection entered → how often; above 31 the lower bound of a slot.
    """

    now: Optional[int]
    max: Optional[int]
    limit: int
    histogram: Optional[Dict[str, int]]


@dataclass(frozen=True)
class BlockedConnects:
    """Clients that waited inside connect() because the queue was full.

    `waiting_now` are inside at this moment, for 1 ms or longer.
    """

    count: int
    wait_us: Latency
    waiting_now: int


@dataclass(frozen=True)
class Listener:
    """One listener. `inode` tells apart those that share an address (SO_REUSEPORT).

    `accepted_early` of `accepted` were queued before we came; their wait
    counts from then. `accepted_by` is by process, `accepted_by_thread` by
    thread. `overflows`: those of the `drops` that were for a full queue, where
    no other listener of the namespace dropped any. `refused`: errno → failed
    connects of anybody to this address.
    """

    transport: str
    socket_type: str
    address: str
    netns: int
    inode: int
    state: str
    pids: Optional[List[int]]
    backlog: Backlog
    depth: Depth
    established: Optional[int] = None
    accepted: Optional[int] = None
    accepted_early: Optional[int] = None
    accepted_by: Optional[Dict[str, int]] = None
    accepted_by_thread: Optional[Dict[str, int]] = None
    wait_us: Optional[Latency] = None
    refused: Optional[Dict[str, int]] = None
    blocked_connects: Optional[BlockedConnects] = None
    drops: Optional[int] = None
    overflows: Optional[int] = None
    syn_queue: Optional[Dict[str, int]] = None


@dataclass(frozen=True)
class Namespace:
    """A network namespace of the targets: its limits now, its TCP counters in the window."""

    netns: int
    somaxconn: Optional[int]
    tcp_abort_on_overflow: Optional[bool]
    tcp_syncookies: Optional[int]
    listen_overflows: Optional[int]
    listen_drops: Optional[int]
    syncookies_sent: Optional[int]
    syncookies_received: Optional[int]


@dataclass(frozen=True)
class Connect:
    """connect() calls of the targets to one destination.

    `errors`: errno → calls that failed with it; a TCP connect that goes on in
    the background is EINPROGRESS. `latency_us` is of the calls, all results.
    """

    transport: str
    address: str
    calls: int
    errors: Dict[str, int]
    latency_us: Latency


@dataclass(frozen=True)
class SendBlocked:
    count: int
    wait_us: Latency
    eagain: int


@dataclass(frozen=True)
class Connection:
    """One connection; `pid` is the target that used it last.

    The queues are of this moment. On Unix sockets the send queue and its
    limit are memory, overhead included. `send_blocked.wait_us` has no
    percentiles.
    """

    transport: str
    local: str
    peer: Optional[Peer]
    pid: int
    role: str
    requests: Optional[int]
    bytes_in: Optional[int]
    bytes_out: Optional[int]
    recv_queue_bytes: Optional[int]
    send_queue_bytes: Optional[int]
    send_buffer_bytes: Optional[int]
    send_blocked: Optional[SendBlocked]


@dataclass(frozen=True)
class Report:
    """One report document; field order is the document's order."""

    version: str
    host: Host
    window: Window
    probe: Probe
    targets: List[Target]
    targets_exited: int
    verdict: Optional[Verdict]
    findings: Optional[List[Finding]]
    time: Optional[Time]
    requests: Requests
    syscalls: Optional[List[Syscall]]
    listeners: Optional[List[Listener]]
    namespaces: Optional[List[Namespace]]
    connects: Optional[List[Connect]]
    connections: Optional[List[Connection]]
    connections_total: Optional[int]
    schema: str = SCHEMA
