"""The report: what an observation found, in the words of the contract.

Every field is one of the report document, `udsprobe.report/1`; units are in
the names. `None` is *not measured* (`null` in JSON, `–` on screen). All views
show this and nothing else, so they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional

from udsprobe.model.action import Action as Action
from udsprobe.model.harm import NOT_SEEN, Harm

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
    """`files_open` of `file_max` are those of every process together, now."""

    kernel: str
    arch: str
    cpus: int
    hostname: str
    file_max: Optional[int] = None
    files_open: Optional[int] = None


@dataclass(frozen=True)
class Window:
    """`start` is ISO-8601 with offset.

    `is_first`: the observation began with it, so that requests received before it are not counted.
    """

    start: str
    duration_s: float
    is_first: bool = False


@dataclass(frozen=True)
class Coverage:
    """A part of the time that a report is about, ISO-8601 with offset; `from_` is `from` there."""

    from_: str
    to: str
    observed_s: float


@dataclass(frozen=True)
class Measurement:
    """`coverage`: the part of the time that its figures are of; None: all of the window."""

    name: str
    rests_on: Optional[str]
    state: str
    reason: Optional[str]
    coverage: Optional[Coverage] = None


@dataclass(frozen=True)
class EventsLost:
    map_full: int
    ring_full: int
    missed: int


@dataclass(frozen=True)
class ProgramCost:
    """A program of the probes, in the part of the window in which runs were measured.

    `cpu_pct` of one CPU; None when nothing was measured, as `ns_per_run` when it did not run.
    """

    name: str
    runs: int
    ns_per_run: Optional[float]
    cpu_pct: Optional[float]


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
    unread_messages: int = 0
    unplaced_failures: Optional[int] = None
    turned_away_by_map: Dict[str, int] = field(default_factory=dict)
    programs: Optional[List[ProgramCost]] = None
    maps_bytes: Optional[int] = None
    calls_left: Optional[int] = None
    detail: str = "full"

    @property
    def events_unaccounted(self) -> int:
        """What is seen and neither counted nor lost: other than 0 is a defect."""
        lost = self.events_lost
        return self.events_seen - self.events_counted - lost.map_full - lost.ring_full - lost.missed


@dataclass(frozen=True)
class Fds:
    """`exhausted`: calls of the window, of any kind, that got no descriptor.

    `growth_per_s` is of the window; at that rate all are in use in `full_in_s`.
    """

    open: Optional[int]
    limit: Optional[int]
    growth_per_s: Optional[float] = None
    full_in_s: Optional[float] = None
    exhausted: Optional[int] = None
    exhausted_by_errno: Optional[Dict[str, int]] = None


@dataclass(frozen=True)
class Target:
    """`unit`, `container` (its id), `runtime` and `pod` (its uid) by the names of its cgroups;
    anyone who creates cgroups chooses these names. None: the names do not say.

    `stopped`: by what it may not run at the end of the window: `signal` (SIGSTOP and its like),
    `tracer` (a debugger, strace) or `freezer` (of its cgroup); None: it may. `language`: that the
    program is written in, where the program tells: `go`. `tracer_pid`, `tracer_comm`: the process
    that traces it (strace, a debugger); None: nobody.
    """

    pid: int
    comm: str
    cmdline: Optional[str]
    threads: int
    state: str
    fds: Fds
    via: str
    unit: Optional[str] = None
    container: Optional[str] = None
    runtime: Optional[str] = None
    pod: Optional[str] = None
    stopped: Optional[str] = None
    language: Optional[str] = None
    tracer_pid: Optional[int] = None
    tracer_comm: Optional[str] = None


@dataclass(frozen=True)
class Evidence:
    metric: str
    value: float
    unit: str
    threshold: Optional[float]
    says: str


@dataclass(frozen=True)
class RunnerUp:
    cause: str
    share_pct: float


@dataclass(frozen=True)
class CodePlace:
    """A function that time goes to; None: not known.

    `share_pct` of the samples (`on` is `cpu`) or of the time asleep (`off-cpu`). `stack`: the
    function, then from where most of these calls came, outwards. `own`: the first of them that is
    the program's own and has a name; what is before it is how the program computes or waits.
    `file` and `line` where the runtime tells them.
    """

    function: Optional[str]
    module: Optional[str]
    file: Optional[str]
    line: Optional[int]
    share_pct: float
    on: str
    stack: List[str] = field(default_factory=list)
    own: Optional[str] = None


@dataclass(frozen=True)
class CodeStack:
    """A stack that was met `samples` times, the outermost function first.

    `truncated`: outer callers could not be found in some of them. Where it slept (`on` is
    `off-cpu`) `samples` counts sleeps, which took `total_us` together.
    """

    pid: int
    on: str
    samples: int
    truncated: bool
    frames: List[str]
    total_us: Optional[float] = None


@dataclass(frozen=True)
class CodeThread:
    """A thread's part of the samples of a kind of code."""

    tid: int
    comm: Optional[str]
    share_pct: float


@dataclass(frozen=True)
class CodeKind:
    """What a kind of code has of all samples of a process.

    `runtime`: whose collector it is, by the name of a server. `part`: `young`, where most of a
    collector's samples are in its collections of short-lived objects. `stack`: the function that
    most of it ran in, then the one that tells the kind, which has called it.
    """

    kind: str
    share_pct: float
    samples: int
    runtime: Optional[str]
    part: Optional[str]
    stack: List[str]
    threads: List[CodeThread]


@dataclass(frozen=True)
class ProcessCode:
    """The samples of one process; of `truncated` ones the outer callers were not found.

    `code` is of what ran outside of calls on sockets and in pollers; `in_sockets` samples were
    inside. `kinds`: of code that is known by its names, the largest first. `own_pct`: of the
    samples outside, those in functions of the program's own and what its language has for them,
    and in no package that was installed beside it; null where no function of either was met.
    """

    pid: int
    samples: int
    truncated: int
    code: List[CodePlace]
    in_sockets: int = 0
    kinds: List[CodeKind] = field(default_factory=list)
    own_pct: Optional[float] = None


@dataclass(frozen=True)
class StageCode:
    """What ran in one stage of requests: `receiving` and `sending` in calls that move bytes of a
    socket, `processing` elsewhere while the process had requests to answer, `none` while it had
    received none that it did not answer.
    """

    stage: str
    samples: int
    code: List[CodePlace]


@dataclass(frozen=True)
class SleepCall:
    """The sleeps of a process in one system call; `call` is null outside of any, or not known.

    `owing_us`: of `total_us`, in sleeps that began while the process had requests to answer; null
    where that is not known. `code` is of that time where there is any. `call` is `goroutine`,
    `task` or `async function` where no thread slept: goroutines of Go, tasks of asyncio, or async
    functions of JavaScript, that waited for one another, a lock or time. They are met by a look at
    all of them in each interval, `count` so often, and each has the time since the look before;
    `owing_us`: of those that serve a connection, as far as that is known. `held_by`: where
    goroutines were that had the lock which those of `code`'s first place waited for, the most of
    this waiting first; what is lacking to 100 % is not known. `asked_in`: of calls in which the
    answers of others may be waited for, places by each stack's innermost function of the program's
    own, which is their `own` (of an installed package only where there is no other). `task for
    bytes` and `goroutine for bytes`: with a request, and waiting for such an answer.
    """

    call: Optional[str]
    count: int
    truncated: int
    total_us: float
    owing_us: Optional[float]
    code: List[CodePlace]
    held_by: List[CodePlace] = field(default_factory=list)
    asked_in: List[CodePlace] = field(default_factory=list)


@dataclass(frozen=True)
class ProcessSleep:
    """The sleeps of the threads of one process, the calls of most time first.

    `calls` leave out what a runtime's own threads slept (those that collect and compile in a Java
    virtual machine), unless nothing else did. Goroutines and tasks are in `calls` alone.
    """

    pid: int
    count: int
    total_us: float
    owing_us: Optional[float]
    calls: List[SleepCall]


@dataclass(frozen=True)
class Sleeps:
    """Where threads slept, each sleep in full, in `watched_s` of the window.

    Of `lost` sleeps nothing is known.
    """

    watched_s: float
    count: int
    lost: int
    truncated: int
    total_us: float
    processes: List[ProcessSleep]


@dataclass(frozen=True)
class Stacks:
    """Samples of what ran, by a clock of `hz`, in `sampled_s` of the window.

    `functions`: the 30 that were met running most often themselves. `stacks`: the 200 met most
    often, and the 200 with most time asleep. What `mapped_pids` make or interpret at run time has
    names. Of `lost` samples nothing is known. `stages`: of all sampled processes; null where it is
    not known who owes a reply. `sleeps`: null when nobody watched for them.
    """

    hz: int
    sampled_s: float
    samples: int
    lost: int
    truncated: int
    pids: List[int]
    mapped_pids: List[int]
    unwinds: bool
    processes: List[ProcessCode]
    functions: List[CodePlace]
    stacks: List[CodeStack]
    stacks_total: int
    sleeps: Optional[Sleeps] = None
    stages: Optional[List[StageCode]] = None


@dataclass(frozen=True)
class Verdict:
    """`class_` is `class` in the document: what the banner says.

    `code`: the functions that the cause is in; empty when no stacks were taken. `code_kinds`: the
    same by kinds of code, as far as its functions tell them.
    """

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
    class_: str = "unknown"
    harm: Harm = NOT_SEEN
    code: List[CodePlace] = field(default_factory=list)
    code_kinds: List[CodeKind] = field(default_factory=list)


@dataclass(frozen=True)
class Finding:
    id: str
    severity: str
    subject: Optional[str]
    summary: str
    evidence: List[Evidence] = field(default_factory=list)
    actions: List[Action] = field(default_factory=list)
    code: List[CodePlace] = field(default_factory=list)


@dataclass(frozen=True)
class ThreadTime:
    """Shares of wall time of one thread; the thirteen of `enum activity` sum to 1.

    `observed_s` is the part of the window in which the thread lived.
    """

    pid: int
    tid: int
    comm: str
    observed_s: float
    share: Dict[str, float]


@dataclass(frozen=True)
class ProcessTime:
    """All living threads of one process together; `observed_s` is their sum."""

    pid: int
    comm: str
    threads: int
    observed_s: float
    share: Dict[str, float]


@dataclass(frozen=True)
class BusyTime:
    """`max` is the longest since the observation began."""

    mean: float
    max: float


@dataclass(frozen=True)
class Loop:
    """A thread that polls: how often it came back to its poller, and how long it was away."""

    pid: int
    tid: int
    comm: str
    iterations: int
    busy_us: BusyTime


@dataclass(frozen=True)
class LoweredPriority:
    """A target's nice value or weight that gives it less CPU time than is usual.

    `file`, `value`: as of `CpuPriority`.
    """

    pid: int
    file: Optional[str]
    value: int


@dataclass(frozen=True)
class CpuPriority:
    """What decides how much CPU time a process has beside the targets.

    `kind`: `nice` of its threads; `session`: that number of its session (sched(7), autogroup);
    `cgroup`: the weight of its cgroup, or of one above that no target is in. `file`: of the last
    two, which has the number. `value`: now; None when not known. `lowered`: targets, or one of
    each session or cgroup, with a nice value above 0 or a weight below the default.
    """

    kind: str
    file: Optional[str] = None
    value: Optional[int] = None
    lowered: List[LoweredPriority] = field(default_factory=list)


@dataclass(frozen=True)
class CpuHolder:
    """Who was on a CPU while threads of the targets waited for it; `pid` 0: it was idle.

    `pid` 0 and no `comm`: processes that ended, all together.

    `waited_us`: how long they did together; `share_pct` of all waits that ended.
    `is_partner`: at the other end of a target's connection, or a target's child. `priority`: of
    others that much is waited for; None: not looked at. `is_kernel`: a thread of the kernel's own;
    None: not known.
    """

    pid: int
    comm: Optional[str]
    is_target: bool
    waited_us: float
    share_pct: float
    is_partner: bool = False
    priority: Optional[CpuPriority] = None
    is_kernel: Optional[bool] = None

    @property
    def is_idle(self) -> bool:
        """Nobody was."""
        return not self.pid and self.comm is not None


@dataclass(frozen=True)
class Time:
    """The 50 busiest threads and processes, the busiest thread, and all threads together.

    `total_s`: how long they lived in the window, added up, those that ended included.
    `loops`: the busiest 50 that poll; `loop_busy_us` is of all of them.
    `cpu_holders`: the 20 for whom the threads waited longest for a CPU.
    """

    threads: List[ThreadTime]
    processes: List[ProcessTime]
    busiest: Optional[ThreadTime]
    total_s: float
    total: Dict[str, float]
    loops: Optional[List[Loop]] = None
    loop_busy_us: Optional[Latency] = None
    cpu_holders: Optional[List[CpuHolder]] = None


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
    """`turn_based` is None until it is measured.

    `multiplexed` turns are of connections that speak HTTP/2 and whose streams are not followed, or
    were not where the count is from (detail auto); `streams` are requests: streams of HTTP/2 that
    are followed. `tls_handshakes` are no turns, and not
    in `count`. Both are of all hops. `stages_latency_us`: of the requests whose stages these are,
    where these are not all of the window (detail auto).
    """

    count: int
    rate_per_s: Optional[float]
    latency_us: Latency
    stages_us: Stages
    app_time_pct: Optional[Dict[str, float]]
    turn_based: Optional[bool]
    multiplexed: Optional[int] = None
    streams: Optional[int] = None
    tls_handshakes: Optional[int] = None
    stages_latency_us: Optional[Latency] = None


@dataclass(frozen=True)
class Peer:
    pid: Optional[int]
    comm: Optional[str]
    address: Optional[str] = None


@dataclass(frozen=True)
class Unanswered:
    """Requests that ended without a byte of reply, by whose end it is told.

    10 ms or more after the last byte of the request: before that it is a goodbye, but where a call
    met the other's end. `waited_mean_us` since that byte; None without any.
    """

    count: int
    waited_mean_us: Optional[float]


@dataclass(frozen=True)
class HttpReplies:
    """Replies that began with a final HTTP/1 status.

    `failed` of them with a status of 500 and above, `failed_mean_us` after their requests on
    average; `statuses` of these: `503` → how many, `other` above 514. What is encrypted or HTTP/2
    is not looked into.
    """

    count: int
    failed: int
    failed_mean_us: Optional[float]
    statuses: Dict[str, int]


@dataclass(frozen=True)
class InPieces:
    """Replies that came in pieces and ended in the window: HTTP/1, FastCGI, PostgreSQL, MySQL.

    `transfer_mean_us` from the first piece to the last on average, `paused_mean_us` of that nothing
    was sent though there was room (of an upstream: nothing came); None of none. `paused_time_pct`:
    what the threads that sent the first pieces did in the pauses, as in `app_time_pct`; None where
    that is not known, and of an upstream.
    """

    count: int
    transfer_mean_us: Optional[float]
    paused_mean_us: Optional[float]
    paused_time_pct: Optional[Dict[str, float]] = None


@dataclass(frozen=True)
class Upstream:
    """Requests to one other service.

    `connections` to it that were kept, and the part of the window in which each waited for an
    answer or the rest of one, on average; both None where they are not kept, or not all are known.
    Requests without a byte of an answer: `dropped`, the other end had closed the connection,
    `dropped_kept` of them one that had answered before; `given_up`, the target closed it. `http`:
    answers with an HTTP/1 status; `in_pieces`: those that came in pieces. `no_seat`: connections
    on which it answered, as databases do, that it has all that it allows; `no_seat_by` is the
    database by its protocol.
    `recv_wait_mean_us`: of the mean latency, the time for which the answer had come and the target
    had not yet asked for it. `logins`: of the answers, those to a login of PostgreSQL or MySQL, of
    which one takes several; `login_mean_us` after their requests. `multiplexed`: a connection of
    `connections` carries many requests at once (HTTP/2). None when not measured.
    """

    transport: str
    address: str
    peer: Optional[Peer]
    count: int
    latency_us: Latency
    connections: Optional[int] = None
    busy_pct: Optional[float] = None
    dropped: Optional[Unanswered] = None
    dropped_kept: Optional[int] = None
    given_up: Optional[Unanswered] = None
    http: Optional[HttpReplies] = None
    no_seat: Optional[int] = None
    no_seat_by: Optional[str] = None
    in_pieces: Optional[InPieces] = None
    recv_wait_mean_us: Optional[float] = None
    logins: Optional[int] = None
    login_mean_us: Optional[float] = None
    multiplexed: Optional[bool] = None


@dataclass(frozen=True)
class SyscallsPerRequest:
    """Every system call of the targets in the window ÷ served requests."""

    total: float
    by_syscall: Dict[str, float]


@dataclass(frozen=True)
class OwnRequests:
    """Requests of one process to one destination; `recv_wait_mean_us` as of `Upstream`."""

    transport: str
    address: str
    peer: Optional[Peer]
    count: int
    latency_mean_us: float
    recv_wait_mean_us: Optional[float] = None


@dataclass(frozen=True)
class Waiting:
    """What waits at the window's end; `oldest_us` is None when nothing does."""

    count: int
    oldest_us: Optional[float]


@dataclass(frozen=True)
class StageMeans:
    """Mean µs of each stage; None when no request had it."""

    accept_wait: Optional[float] = None
    recv_wait: Optional[float] = None
    recv: Optional[float] = None
    app: Optional[float] = None
    send: Optional[float] = None


@dataclass(frozen=True)
class GivenUp:
    """Requests that ended without a byte of reply, by their clients.

    The client had closed the connection before the process did, 10 ms or more after the last byte
    of the request: before that it is a goodbye. Means in µs from that byte on; None without any.
    Of `waited_mean_us` the process slept `upstream_mean_us` with own requests outstanding.
    `kept_open`: so many more requests than at the window's beginning are `abandoned`.
    """

    count: int
    kept_open: int
    waited_mean_us: Optional[float]
    upstream_mean_us: Optional[float]


@dataclass(frozen=True)
class ServedBy:
    """The requests of one target process.

    `latency_us` has no percentiles in recordings of udsprobe before it counted them by
    process; its `max` is then the longest since the observation began. `app_time_pct`
    is None when nothing was directly observed; `handed_over` requests were answered by
    another thread than received them and are not in it; `handed_over_us` is what their `app`
    stages took, all together, and of others' the time between receive calls that no part of it
    tells of. `in_progress` are received and
    their reply has not begun (0 where the process has never replied: its protocol may
    have none), `unread` connections with bytes it has not begun to receive, `asking`
    requests of its own without an answer yet. `unanswered` are those in progress
    whether or not the process has ever replied: long polls, say. `at_once` requests were in
    progress when a reply began, that one too, on average. `abandoned` are those of `unanswered`
    whose clients have closed their end, while the process has not closed its own.
    `asked_before` are TCP connections whose client had spoken last when the observation began, and
    neither end since: requests that hang, long polls, or messages that nobody answers.
    `http`: its replies with an HTTP/1 status; `in_pieces`: those that came in pieces.
    `handed_over_us`, `at_once`, `given_up`, `dropped`, `abandoned`, `asked_before`, `http` and
    `in_pieces` are None when not measured.
    """

    pid: int
    comm: Optional[str]
    count: int
    rate_per_s: Optional[float]
    latency_us: Latency
    stages_mean_us: StageMeans
    app_time_pct: Optional[Dict[str, float]]
    handed_over: Optional[int]
    pipelined: Optional[int]
    upstream: List[OwnRequests]
    in_progress: Waiting
    unread: Waiting
    asking: Waiting
    unanswered: Waiting = Waiting(0, None)
    multiplexed: Optional[int] = None
    tls_handshakes: Optional[int] = None
    at_once: Optional[float] = None
    given_up: Optional[GivenUp] = None
    dropped: Optional[Unanswered] = None
    abandoned: Optional[Waiting] = None
    asked_before: Optional[Waiting] = None
    http: Optional[HttpReplies] = None
    in_pieces: Optional[InPieces] = None
    handed_over_us: Optional[float] = None


@dataclass(frozen=True)
class Hop:
    """One server of a chain: the processes of one program, and what it asks of the next.

    `pid` is the first of `pids`; `next` has the `pid` of each hop it asks.
    `upstream_us` is the latency of its own requests per request served, and
    `own_us` the rest of `latency_mean_us`: 0 where own requests overlap.
    """

    pid: int
    pids: List[int]
    comm: Optional[str]
    address: Optional[str]
    count: int
    latency_mean_us: Optional[float]
    own_us: Optional[float]
    upstream_us: Optional[float]
    next: List[int]


@dataclass(frozen=True)
class WholeCall:
    """One call of the thread that replied, while a request was there.

    `at_us` from the request's arrival; before it where the call began earlier. On a CPU it was
    `duration_us - off_cpu_us`; `runq_us` of `off_cpu_us` it was ready to run. Both are None of
    operations of io_uring. `waits_for`: what it slept for, when it slept; `runq_before_us`:
    ready to run between the call before and this one. `whose` connection it is about: `this`
    request's, `upstream` (to `address`), `other` (served to others, or accepting), None: none,
    or not known. `bytes`: what it returned, of calls that move bytes. `is_early`: it began
    before the observation.
    """

    name: str
    at_us: float
    duration_us: float
    off_cpu_us: Optional[float]
    runq_us: Optional[float]
    runq_before_us: float
    transport: str
    result: Optional[int]
    error: Optional[str]
    fd: Optional[int]
    whose: Optional[str]
    address: Optional[str]
    waits_for: str
    is_early: bool = False

    @property
    def asleep_us(self) -> float:
        """Neither on a CPU nor ready to run; 0 where that is not known."""
        return max(0.0, (self.off_cpu_us or 0.0) - (self.runq_us or 0.0))


@dataclass(frozen=True)
class WholeAuthor:
    """Who ended a wait of one request; `by` as in `Author`. `least_us`: at least so much of it."""

    by: str
    pid: Optional[int]
    tid: Optional[int]
    comm: Optional[str]
    least_us: float


@dataclass(frozen=True)
class WholeWait:
    """Sleep of the thread that replied, between the receive call and the reply, of one kind.

    `author`: who ended most of it, where no other can have.
    """

    kind: str
    total_us: float
    author: Optional[WholeAuthor] = None


@dataclass(frozen=True)
class WholeHop:
    """A request that another one waited for, and that is kept whole as well.

    `at_us`: its arrival, from the arrival of the one that waited.
    """

    pid: int
    tid: int
    comm: str
    address: str
    at_us: float
    latency_us: float
    parts_us: Dict[str, float]


@dataclass(frozen=True)
class WholeRequest:
    """One request with all that is known of it.

    `at`: when its reply had begun, ISO-8601. `parts_us` add up to `latency_us`. `stages_us` as
    in `served`; `accept_wait` of a connection's first request, part of which can be before the
    request's first byte came, which is where `latency_us` begins. `calls`: those of the thread
    that replied; None where its calls are not kept. `calls_not_kept`: how many more it made
    since it received the request, None: not known; all shorter than `not_kept_below_us`, None:
    not known. `handed_over`: another thread received it, whose calls are not here.
    `upstream`: requests on the connections that `calls` are about, made meanwhile, which are
    kept too.
    """

    at: str
    pid: int
    tid: int
    comm: str
    transport: str
    address: str
    peer: Optional[Peer]
    latency_us: float
    stages_us: StageMeans
    parts_us: Dict[str, float]
    waits: List[WholeWait]
    calls: Optional[List[WholeCall]]
    calls_not_kept: Optional[int]
    not_kept_below_us: Optional[float]
    connection_turn: int
    handed_over: bool
    turn_based: bool
    upstream: List[WholeHop] = field(default_factory=list)


@dataclass(frozen=True)
class Requests:
    """`syscalls_per_request` is None when no request was served.

    `slowest`: the 20 slowest of the window, the slowest first; `sampled`: up to 4 of all, drawn
    by chance.
    """

    served: Optional[Served]
    upstream: Optional[List[Upstream]]
    syscalls_per_request: Optional[SyscallsPerRequest]
    served_by: Optional[List[ServedBy]] = None
    hops: Optional[List[Hop]] = None
    slowest: Optional[List[WholeRequest]] = None
    sampled: Optional[List[WholeRequest]] = None


@dataclass(frozen=True)
class Syscall:
    """One row: a system call on one kind of endpoint.

    `slow_us` is the part of `wall_us` in calls of 1 ms or longer. `abi` is
    `compat` for 32-bit callers. `socket_type` tells Unix stream, seqpacket
    and dgram apart; None when the call is not on a socket. What io_uring did (`io_uring:recv`)
    is timed from submission to completion; its `cpu_us` is in other calls, such as
    io_uring_enter, and `in_flight` is not counted.
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
    cpu_us: Optional[float]
    latency_us: Latency
    slow_us: float


@dataclass(frozen=True)
class Traffic:
    """What the targets' sockets of one kind moved; None in all where system calls are seen.

    A message is what one call moved, at least a byte; each of `sendmmsg` and `recvmmsg`.
    """

    transport: str
    socket_type: str
    sent_messages: int
    sent_bytes: int
    received_messages: int
    received_bytes: int


@dataclass(frozen=True)
class Exits:
    """Targets of one name that ended in the window, in one way other than by status 0.

    `how`: `status 3`, the name of the signal, or `out of memory` (the kernel killed them to get
    memory back). `served` of them had received requests (with detail light: answered some), of
    which `unanswered` were in progress; None with detail light.
    """

    comm: str
    how: str
    processes: int
    served: int
    unanswered: Optional[int]


@dataclass(frozen=True)
class StartLimit:
    """A limit of threads: `pids.max` of `cgroup`, which `file` has, `RLIMIT_NPROC`,
    `kernel.threads-max` or `kernel.pid_max`; `used` when a start was refused last."""

    name: str
    limit: int
    used: int
    cgroup: Optional[str] = None
    file: Optional[str] = None


@dataclass(frozen=True)
class Starts:
    """Threads and processes that targets of one name started in the window, and the calls of the
    window that started none, by errno.

    `pids`: those that were refused one and live; since the observation began. `limit`: the nearest
    one when a start was refused last; None: none was, or it is not known.
    """

    comm: str
    started: int
    refused: int
    refused_by_errno: Dict[str, int]
    pids: List[int]
    limit: Optional[StartLimit]


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
    """Clients that waited because the queue was full.

    `waiting_now` do so at this moment; None: for one of several listeners that share an
    address. `wait_us` of those that waited before we came is since
    then. `count` and `wait_us` are None where no system call is seen.
    """

    count: Optional[int]
    wait_us: Optional[Latency]
    waiting_now: Optional[int]


@dataclass(frozen=True)
class Listener:
    """One listener. `inode` tells apart those that share an address (SO_REUSEPORT).

    `accepted_early` of `accepted` were queued before attach; their wait
    counts from then. `accepted_by` is by process, `accepted_by_thread` by
    thread. `overflows`: those of the `drops` that were for a full queue, where
    no other listener of the namespace dropped any. `refused`: errno → failed
    connects of anybody to this address. `host_path`: where udsprobe itself finds its file, when
    that is not `address`, as with a container's. `read_from`: accepted connections of which a
    first byte was received. `closed_unread`: those that the program closed within 1 s, before
    their client did, without having received a byte; of `closed_unread_sent` of them the client
    had sent something by then. `no_seat`: accepted connections to which the program replied, as
    databases do, that it has all that it allows.
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
    host_path: Optional[str] = None
    read_from: Optional[int] = None
    closed_unread: Optional[int] = None
    closed_unread_sent: Optional[int] = None
    no_seat: Optional[int] = None


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
    wmem_max: Optional[int] = None
    wmem_default: Optional[int] = None
    rmem_max: Optional[int] = None
    rmem_default: Optional[int] = None
    max_dgram_qlen: Optional[int] = None
    tcp_wmem: Optional[List[int]] = None
    tcp_rmem: Optional[List[int]] = None


@dataclass(frozen=True)
class Connect:
    """connect() calls of the targets to one destination.

    `errors`: errno → calls that failed with it; a TCP connect that goes on in
    the background is EINPROGRESS. `failed_in_background`: errno → how many of
    those failed later, ECANCELED where the program closed the socket before that.
    `latency_us` is of the calls, all results. `connected_later_us`: of those in the background
    that connected, from the call until then; None where none did.
    """

    transport: str
    address: str
    calls: int
    errors: Dict[str, int]
    failed_in_background: Dict[str, int]
    latency_us: Latency
    connected_later_us: Optional[Latency] = None


@dataclass(frozen=True)
class SendBlocked:
    """`count` and `wait_us` are None where no system call is seen."""

    count: Optional[int]
    wait_us: Optional[Latency]
    eagain: int


@dataclass(frozen=True)
class Connection:
    """One connection; `pid` is the target that used it last.

    The queues are of this moment. On Unix sockets the send queue and its
    limit are memory, overhead included. `send_blocked.wait_us` has no
    percentiles. `_max_bytes` is the fullest in the window; `stalled_us` is how
    long, at least, the other end has taken nothing of what waits in the send
    queue. `sends_held` counts send calls that left bytes to Nagle's algorithm;
    `held_us`: these waited for so long, at least, until they left.
    `stopped_us`: how long senders slept for want of room, in send calls and between
    them, `stops` how often; `reader_busy_us`: CPU time of the process at the other end
    and its waits for a CPU, in the window; all of it before it was looked at, which was for
    `reader_seen_us`. `window_full_us`: TCP: how long bytes were kept because
    the reader had no room for them, whether their sender noticed or not. `asking_us`: how long, at
    the end, a request of the target's own has had no answer; None when none is open.
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
    recv_queue_max_bytes: Optional[int] = None
    send_queue_max_bytes: Optional[int] = None
    recv_buffer_bytes: Optional[int] = None
    recv_buffer_is_fixed: Optional[bool] = None
    send_buffer_is_fixed: Optional[bool] = None
    stalled_us: Optional[float] = None
    sends_held: Optional[int] = None
    stopped_us: Optional[float] = None
    stops: Optional[int] = None
    reader_busy_us: Optional[float] = None
    window_full_us: Optional[float] = None
    held_us: Optional[float] = None
    reader_seen_us: Optional[float] = None
    asking_us: Optional[float] = None


@dataclass(frozen=True)
class HostCpu:
    """All CPUs of the host in the window: shares of their time, 100 % is all of them.

    `busy_pct` is `user_pct` and `system_pct`; `runnable` threads ran or waited
    for a CPU at the end.
    """

    busy_pct: Optional[float]
    user_pct: Optional[float]
    system_pct: Optional[float]
    steal_pct: Optional[float]
    iowait_pct: Optional[float]
    cpus: int
    runnable: int


@dataclass(frozen=True)
class CpuCgroup:
    """A CPU cgroup with a quota that a target is or was in, or below.

    Counts are of the window, or from when a target was first seen in it.
    `pids`: the living targets; empty when they ended.
    """

    path: str
    version: int
    quota_cpus: Optional[float]
    periods: int
    throttled_periods: int
    throttled_us: float
    throttled_pct: Optional[float]
    usage_cpus: Optional[float]
    pids: List[int]


@dataclass(frozen=True)
class CpuAffinity:
    """Targets that may run on some CPUs of the host only, the same for all their threads.

    `cpus`, `others`: the numbers of these, and of the host's other CPUs; `others_idle_pct`: of
    their time. `cpusets`: files of the cgroups that say so, the outermost first; empty:
    sched_setaffinity(2) did. `pids`: living targets.
    """

    cpus: List[int]
    others: List[int]
    others_idle_pct: Optional[float]
    cpusets: List[str]
    pids: List[int]


@dataclass(frozen=True)
class Cpu:
    """Who has the CPUs, and what the targets may have of them."""

    host: Optional[HostCpu]
    cgroups: Optional[List[CpuCgroup]]
    pressure_some_pct: Optional[float]
    affinities: Optional[List[CpuAffinity]] = None


@dataclass(frozen=True)
class Author:
    """Who ended waits, and what they did while these lasted.

    `by`: `thread`; `process` (the other end of the connection); `timer`, `device`, `interrupt`
    (without a thread); `program` (processes of one name, `comm`, behind the longest, or ended);
    behind the longest, `others`.
    `was`: `cpu`, `runq`, or what it slept for, as `Wait.kind`; None when it is not known. `call`:
    the call that it slept in.
    """

    by: str
    pid: Optional[int]
    tid: Optional[int]
    comm: Optional[str]
    is_target: bool
    was: Optional[str]
    call: Optional[str]
    total_us: float


@dataclass(frozen=True)
class RootAuthor(Author):
    """The last of a chain: `via` are those before it, the first first, `comm PID/TID`."""

    via: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Wait:
    """The waits of one thread of one kind that ended in the window.

    `pid` 0: of threads whose names are kept no longer. The authors' times and `unknown_us` add up
    to `total_us`, and so do those of `roots`. `max_us`: the longest so far.
    """

    pid: int
    tid: int
    comm: Optional[str]
    kind: str
    count: int
    total_us: float
    max_us: float
    authors: List[Author]
    unknown_us: float
    roots: List[RootAuthor]


@dataclass(frozen=True)
class Lock:
    """A futex that threads of a process waited for. Who woke need not have held it.

    `last_woken_by`: the thread that ended the last of these waits.
    """

    pid: int
    address: str
    waiters: int
    count: int
    total_us: float
    authors: List[Author]
    last_woken_by: Optional[int]


@dataclass(frozen=True)
class Waker:
    """A thread that ended a wait."""

    pid: Optional[int]
    tid: Optional[int]
    comm: Optional[str]


@dataclass(frozen=True)
class WaitNow:
    """A wait that goes on at the end of the window; who will end it is not known yet.

    `lasted_us`: since `since` (ISO-8601), or since the thread is observed. `replies_owed`: by its
    process; None when not measured. `lock`: the futex's address. `last_woken_by`: who ended the
    last wait for that futex; it need not hold anything. `connection`: `served`, `upstream` or
    `unknown` of the one that its call is about, or the only one of a process of one thread whose
    call is about none; `peer` is its other end. `polls_clients`: of a thread in a poller: it
    watches a connection that its process serves, or a listener; False: no client can wake it.
    `held_by`: who holds the file lock; of a `pipe` that is written to, the process that reads it.
    `is_serving`: the thread has moved bytes on sockets and slept in a receive call or a poller.
    `clients`: connections that its process serves; None where not all are known.
    """

    pid: int
    tid: int
    comm: str
    kind: str
    call: Optional[str]
    since: str
    lasted_us: float
    replies_owed: Optional[int]
    lock: Optional[str]
    last_woken_by: Optional[Waker]
    connection: Optional[str]
    peer: Optional[Peer]
    polls_clients: Optional[bool] = None
    held_by: Optional[Peer] = None
    is_serving: bool = False
    clients: Optional[int] = None


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
    cpu: Optional[Cpu] = None
    stacks: Optional[Stacks] = None
    waits: Optional[List[Wait]] = None
    waits_total: Optional[int] = None
    waits_now: Optional[List[WaitNow]] = None
    waits_now_total: Optional[int] = None
    locks: Optional[List[Lock]] = None
    traffic: Optional[List[Traffic]] = None
    exits: Optional[List[Exits]] = None
    starts: Optional[List[Starts]] = None
