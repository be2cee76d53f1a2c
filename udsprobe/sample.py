"""What was read from the system at one moment: cumulative, immutable.

Knows no kernel interface and computes nothing. `None` means *not measured*;
a zero was counted. Two samples of the same observation make a report
(`udsprobe.model`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple, TypeVar

from udsprobe.totals import Total

Reading = TypeVar("Reading")


def with_changes(reading: Reading, changes: Mapping[str, object]) -> Reading:
    """The same with other values: `dataclasses.replace` in a fifteenth of its time.

    That sets each field anew, of which there are 32 in each of 200 connections once a second.

    Args:
        reading: a dataclass that does nothing when it is made, as all of this module.
        changes: field → value.
    """
    found = object.__new__(type(reading))
    vars(found).update(vars(reading))
    vars(found).update(changes)
    return found


@dataclass(frozen=True)
class LatencyCounts:
    """Cumulative log-linear histogram of durations (`bpf/latency.bpf.h`).

    Attributes:
        count: durations recorded.
        total_ns: their sum.
        max_ns: the longest one.
        slots: counts by slot; `udsprobe.model.histogram` knows the bounds.
    """

    count: int
    total_ns: int
    max_ns: int
    slots: Tuple[int, ...]


@dataclass(frozen=True)
class Endpoint:
    """What a file descriptor named in a system call refers to.

    Attributes:
        transport: `unix`, `tcp`, `udp` or `other` (not a socket).
        socket_type: `stream`, `seqpacket` or `dgram`; None for `other`.
    """

    transport: str
    socket_type: Optional[str]


URING_PREFIX = "io_uring:"
"""Before the name of an operation that io_uring did, in the table of system calls."""


@dataclass(frozen=True)
class CallCounts:
    """Completed calls of one system call on one kind of endpoint.

    Attributes:
        name: the kernel's name, `read`, or `io_uring:recv`; 32-bit callers have their own rows.
        abi: `native` or `compat` (a 32-bit task on a 64-bit kernel).
        calls: calls that returned, failed ones included. A call that the
            kernel restarts after a signal is one call.
        errors: errno name → calls that failed with it.
        bytes: bytes moved; 0 for calls that move none.
        wall_ns, cpu_ns: time between entry and return; the part on a CPU. Of io_uring between
            submission and completion; 0, as the CPU time is that of other calls.
        slow_ns: the part of `wall_ns` in calls of at least `SLOW_CALL_NS`.
        latency: of the calls whose entry was seen: those in flight when the
            observation began are in `calls` and not here.
    """

    name: str
    abi: str
    endpoint: Endpoint
    calls: int
    errors: Mapping[str, int]
    bytes: int
    wall_ns: int
    cpu_ns: int
    slow_ns: int
    latency: LatencyCounts


@dataclass(frozen=True)
class TrafficCounts:
    """What the targets' sockets of one kind moved, where no system call is seen.

    Attributes:
        sent_messages, received_messages: that moved at least a byte; of `sendmmsg` and
            `recvmmsg` each. One of a stream is what one call moved.
    """

    endpoint: Endpoint
    sent_messages: Total
    sent_bytes: Total
    received_messages: Total
    received_bytes: Total


@dataclass(frozen=True)
class CallInFlight:
    """One thread inside one of the table's system calls at sampling time.

    Attributes:
        since_ns: CLOCK_MONOTONIC at entry, or when observation began.
    """

    pid: int
    tid: int
    name: str
    abi: str
    endpoint: Endpoint
    since_ns: int


@dataclass(frozen=True)
class TargetReading:
    """One observed process.

    Attributes:
        comm, cmdline: as the process names itself, undecodable bytes escaped.
            `cmdline` is None when it ended before it could be read.
        state: `running` or `exited`.
        fds_open, fds_limit: None when /proc does not show them to us.
        via: `selector` or `fork`.
        fds_refused: `EMFILE`, `ENFILE` → calls of any kind that got no descriptor.
        start_ticks: clock ticks after boot; tells a PID used again.
        parent: process id of its parent now.
        cgroup: its path, escaped; None when it was gone before it could be read.
        stopped: by what it may not run now: `signal`, `tracer` or `freezer`; None: it may.
        tracer_pid, tracer_comm: the process that traces its first thread (ptrace), as strace
            and debuggers do; None: nobody.
        language: that its program is written in, `go`; None: another, or not told.
    """

    pid: int
    comm: str
    cmdline: Optional[str]
    threads: int
    state: str
    fds_open: Optional[int]
    fds_limit: Optional[int]
    via: str
    fds_refused: Optional[Mapping[str, int]] = None
    start_ticks: Optional[int] = None
    parent: Optional[int] = None
    cgroup: Optional[str] = None
    stopped: Optional[str] = None
    language: Optional[str] = None
    tracer_pid: Optional[int] = None
    tracer_comm: Optional[str] = None


@dataclass(frozen=True)
class ExitCounts:
    """Targets of one name that ended in one way, but for those that ended with status 0.

    Attributes:
        how: `status 3`, the signal's name, or `out of memory` (the kernel chose it:
            `signal->oom_mm`, mark_oom_victim() of mm/oom_kill.c).
        served: of the processes, those that had received a request; at detail light, answered one.
        unanswered: requests that they had received and not answered; None at detail light.
    """

    comm: str
    how: str
    processes: Total
    served: Total
    unanswered: Optional[Total]


@dataclass(frozen=True)
class StartLimit:
    """A limit of how many threads there may be, and how many there were when it was looked at.

    Attributes:
        name: `pids.max` of a cgroup, `RLIMIT_NPROC` of a user, `kernel.threads-max` or
            `kernel.pid_max` of the host (copy_process() of kernel/fork.c).
        used: threads of the cgroup and those below it, of the user, or of the host.
        cgroup: its path below the root of its hierarchy, escaped; file: that has the limit. None
            where it is no cgroup's.
    """

    name: str
    limit: int
    used: int
    cgroup: Optional[str] = None
    file: Optional[str] = None


@dataclass(frozen=True)
class StartCounts:
    """Threads and processes that targets of one name started, or could not start.

    Attributes:
        started: since the beginning (sched_process_fork of kernel_clone()).
        refused: errno → calls that started none: `EAGAIN`, a limit; `ENOMEM`.
        pids: of them that live, those that were refused one.
        limit: that was nearest when one was refused last; None: not known, or none was refused.
    """

    comm: str
    started: Total
    refused: Mapping[str, int]
    pids: Tuple[int, ...] = ()
    limit: Optional[StartLimit] = None


@dataclass(frozen=True)
class QueueCounts:
    """What happened at one accept queue; cumulative where not said otherwise.

    Attributes:
        since_ns: CLOCK_MONOTONIC of the first counted event.
        established: connections that entered the queue.
        accepted: connections that accept() took out; `accepted_early` of them
            had been queued before `since_ns`, they wait from then on.
        accepted_by: process id → accepted; `accepted_by_thread` by thread id.
        depth: queue length right after a connection entered → how often;
            above 31 the lower bound of a slot (`bpf/listeners.bpf.h`).
        depth_max: the highest since `since_ns`, exact.
        depth_max_recent: the highest since the previous sample; None when
            nothing entered the queue since.
        wait: time in the queue, of the accepted.
        blocked: time until they got in, of the clients that had to wait for room; since
            `since_ns` at most. Of TCP until the SYN-ACK.
        blocked_now: clients that wait for room, at sampling time; None: not known for which of
            the listeners that share an address they wait.
        refused: errno name → failed connects, of anybody, to this address.
        drops: `sk_drops` since `since_ns`; None for Unix.
        syn_queue, syn_young: handshakes in progress now; None for Unix.
        read_from: of the accepted, those from which a first byte was received.
        closed_unread: of the accepted, those that the program closed within 1 s, before their
            client did, and of which it had not received a byte; to `closed_unread_sent` of them
            the client had sent something by then.
        no_seat: of the accepted, those to which a database replied, in its protocol, that it has
            all the connections that it allows (`bpf/replies.bpf.h`).

    `accepted_by`, `accepted_by_thread`, `wait`, `refused`, `read_from`, `closed_unread`,
    `closed_unread_sent`, `no_seat` and, of Unix, `blocked` are None where no system call is seen;
    what was accepted is then what came and is not in the queue.
    """

    since_ns: int
    established: Total
    accepted: Total
    accepted_early: Total
    accepted_by: Optional[Mapping[int, int]]
    accepted_by_thread: Optional[Mapping[int, int]]
    depth: Mapping[int, int]
    depth_max: int
    depth_max_recent: Optional[int]
    wait: Optional[LatencyCounts]
    blocked: Optional[LatencyCounts]
    blocked_now: Optional[int]
    refused: Optional[Mapping[str, int]]
    drops: Optional[Total]
    syn_queue: Optional[int]
    syn_young: Optional[int]
    read_from: Optional[Total] = None
    closed_unread: Optional[Total] = None
    closed_unread_sent: Optional[Total] = None
    no_seat: Optional[Total] = None


@dataclass(frozen=True)
class ConnectCounts:
    """connect() calls of the targets to one destination with one result.

    Attributes:
        transport: `unix`, `tcp` or `udp`.
        address: as listeners are written.
        error: errno name; None when it connected.
        latency: of the calls; of those in the background until they connected or failed.
        in_background: the call had returned (EINPROGRESS) when it connected or failed.
    """

    transport: str
    address: str
    error: Optional[str]
    latency: LatencyCounts
    in_background: bool = False


@dataclass(frozen=True)
class PeerReading:
    """The process at the other end: who sent there last.

    Attributes:
        comm: None when it was gone before it could be read.
        busy_ns: CPU time of its living threads and their waits for a CPU, since `looked_ns`
            (CLOCK_MONOTONIC); None when it was not asked for, or the kernel does not say.
    """

    pid: int
    comm: Optional[str]
    busy_ns: Optional[int] = None
    looked_ns: int = 0


@dataclass(frozen=True)
class UnansweredCounts:
    """Requests without a byte of reply whose connection one of the ends ended, cumulative.

    Attributes:
        total_ns: of a served request from its last byte, of an own one from the first, to the end.
    """

    count: Total
    total_ns: Total


@dataclass(frozen=True)
class HttpReplyCounts:
    """Replies that began with a final HTTP/1 status, cumulative.

    Attributes:
        failed: of these, with a status of 500 and above; `failed_ns` from their requests to them.
        statuses: of the failed, `503` → how many; `other` above 514.
    """

    count: Total
    failed: Total
    failed_ns: Total
    statuses: Mapping[str, int]


@dataclass(frozen=True)
class PieceCounts:
    """Replies that came in several pieces and are over, cumulative.

    Attributes:
        transfer_ns: from the first piece to the last; `paused_ns` of that nothing was sent though
            there was room, or nothing came.
        paused_activity_ns: in these pauses, of the threads that sent the first piece; of what is
            received none.
    """

    count: Total
    transfer_ns: Total
    paused_ns: Total
    paused_activity_ns: Mapping[str, int]


@dataclass(frozen=True)
class UpstreamCounts:
    """Requests of the targets to one destination.

    Attributes:
        opened: connections to it.
        latency: the send call that starts the request begins → the receive
            call with the first byte of the reply returns.
        dropped: the other end ended them; `dropped_kept` of these on connections that had answered
            before.
        given_up: the target ended them.
        http: answers with an HTTP/1 status; in_pieces: those that came in pieces.
        no_seat: connections on which it answered that it has all that it allows; no_seat_by: in
            the protocol of `postgresql`, `mysql`, `redis` or `memcached`, the last time.
        recv_wait_ns: of the latency, for how long answers that had come waited for the receive
            call.
        logins: answers to a login of PostgreSQL or MySQL; login_ns: of the latency, theirs.
        All from `dropped` on are None when not measured.
    """

    transport: str
    address: str
    peer: Optional[PeerReading]
    opened: int
    latency: LatencyCounts
    dropped: Optional[UnansweredCounts] = None
    dropped_kept: Optional[int] = None
    given_up: Optional[UnansweredCounts] = None
    http: Optional[HttpReplyCounts] = None
    no_seat: Optional[int] = None
    no_seat_by: Optional[str] = None
    in_pieces: Optional[PieceCounts] = None
    recv_wait_ns: Optional[int] = None
    logins: Optional[int] = None
    login_ns: Optional[int] = None


# A report shows the busiest 50; more are kept so that two samples hold the same ones.
CONNECTIONS_KEPT_MAX = 200


@dataclass(frozen=True)
class ConnectionReading:
    """One connection of a target; cumulative but for the queues.

    Attributes:
        role: `served` or `upstream`.
        turns: requests served, or made.
        recv_queue_bytes, send_queue_bytes: now; the send queue of a Unix
            socket is memory, overhead included (`sk_wmem_alloc`), as is
            its limit `send_buffer_bytes`.
        send_blocked: send calls that slept; `_ns` all together and the longest; None where no
            system call is seen.
        send_eagain: send calls that found the buffer full and did not wait.
        sends_held: send calls that left bytes to Nagle's algorithm; None on Unix. held_ns: which
            waited for so long until they left, in steps of the kernel's tick; not counted before
            the other end sends again. None in recordings of earlier versions too.
        recv_queue_max_bytes, send_queue_max_bytes: the fullest while observed;
            `_recent_max_`: since the previous sample. None when not measured.
        recv_buffer_bytes: limit of the receive queue (`sk_rcvbuf`); a Unix
            stream's is the sender's limit instead.
        recv_buffer_is_fixed, send_buffer_is_fixed: by SO_RCVBUF, SO_SNDBUF.
        stalled_ns: bytes have been waiting in the send queue, and the other end
            has taken none, for at least so long; None when that is not told.
        stopped_ns: senders slept for want of room, in send calls and between them; `stops`:
            how often they began to. None in recordings of earlier versions.
        stopped_since_ns: one waits for room between two calls since then (CLOCK_MONOTONIC);
            0 when none does.
        asking_since_ns: a request of the target's own has had no answer since then; it can have
            been made before the observation began (TCP). 0 when none is open, or it is not known.
        window_full_ns: TCP: bytes were kept because the reader had no room for them, in steps of
            the kernel's tick (`tcpi_rwnd_limited`, since we came). None on Unix, and in
            recordings of earlier versions.
        is_multiplexed: it speaks HTTP/2, as far as is known.
    """

    inode: int
    pid: int
    transport: str
    role: str
    local: str
    peer_address: str
    peer: Optional[PeerReading]
    turns: Total
    bytes_in: Total
    bytes_out: Total
    recv_queue_bytes: int
    send_queue_bytes: int
    send_buffer_bytes: int
    send_blocked: Optional[Total]
    send_blocked_ns: Optional[Total]
    send_blocked_max_ns: Optional[int]
    send_eagain: Total
    recv_queue_max_bytes: Optional[int] = None
    recv_queue_recent_max_bytes: Optional[int] = None
    send_queue_max_bytes: Optional[int] = None
    send_queue_recent_max_bytes: Optional[int] = None
    recv_buffer_bytes: Optional[int] = None
    recv_buffer_is_fixed: Optional[bool] = None
    send_buffer_is_fixed: Optional[bool] = None
    stalled_ns: Optional[int] = None
    sends_held: Optional[Total] = None
    stopped_ns: Optional[int] = None
    stopped_since_ns: int = 0
    asking_since_ns: int = 0
    stops: Optional[Total] = None
    window_full_ns: Optional[int] = None
    held_ns: Optional[Total] = None
    is_multiplexed: bool = False


@dataclass(frozen=True)
class NamespaceReading:
    """Limits and cumulative TCP counters of one network namespace; None when hidden.

    Attributes:
        tcp_abort_on_overflow, tcp_syncookies: the sysctls.
        listen_overflows: connections dropped because an accept queue was full;
            listen_drops: those and the ones dropped for other causes
            (`TcpExt` of /proc/net/netstat, of every listener there).
        wmem_max … max_dgram_qlen: the sysctls, in bytes and in datagrams.
        tcp_wmem, tcp_rmem: least, initial and greatest size of a buffer.
    """

    netns: int
    somaxconn: Optional[int]
    tcp_abort_on_overflow: Optional[int]
    tcp_syncookies: Optional[int]
    listen_overflows: Optional[Total]
    listen_drops: Optional[Total]
    syncookies_sent: Optional[Total]
    syncookies_received: Optional[Total]
    wmem_max: Optional[int] = None
    wmem_default: Optional[int] = None
    rmem_max: Optional[int] = None
    rmem_default: Optional[int] = None
    max_dgram_qlen: Optional[int] = None
    tcp_wmem: Optional[Tuple[int, ...]] = None
    tcp_rmem: Optional[Tuple[int, ...]] = None


@dataclass(frozen=True)
class ListenerReading:
    """One socket in LISTEN.

    Attributes:
        transport: `unix` or `tcp`.
        socket_type: `stream` or `seqpacket`.
        address: path, `@abstract`, `host:port` or `[v6]:port`, escaped.
        netns: inode number of its network namespace.
        inode: of the socket, as /proc/PID/fd prints it.
        pids: owners visible to us, ascending; None when /proc hid some.
        depth_now: connections in the accept queue.
        backlog_effective: `sk_max_ack_backlog`; the queue holds one more.
        backlog_requested: listen()'s argument, when that call was seen.
        somaxconn: of its network namespace.
        queue: what happened at it; None when no probe tells.
        is_open: False once it is closed; then `depth_now` is None.
        host_path: of its socket file for udsprobe, escaped, where the owner's `address` is
            another in here; None where it is the same, or is not known.
    """

    transport: str
    socket_type: str
    address: str
    netns: int
    inode: int
    pids: Optional[Tuple[int, ...]]
    depth_now: Optional[int]
    backlog_effective: int
    backlog_requested: Optional[int]
    somaxconn: Optional[int]
    queue: Optional[QueueCounts] = None
    is_open: bool = True
    host_path: Optional[str] = None


@dataclass(frozen=True)
class ServedCounts:
    """Turns on connections the targets accepted: bytes in, then bytes out.

    Attributes:
        latency: first byte in the receive queue → the send call that starts
            the reply returned.
        stages: by name, `accept_wait`, `recv_wait`, `recv`, `app`, `send`;
            one that this kernel does not tell is absent.
        app_activity_ns: activity → time of the serving thread between its
            last receive call and the reply.
        handed_over: requests answered by another thread than received them;
            they are not in `app_activity_ns`.
        pipelined: requests that came before the reply to the one before began.
        multiplexed: turns of connections that speak HTTP/2 and whose streams are not followed.
        streams: requests that are streams of HTTP/2.
        tls_handshakes: of clients, to their end; they are no turns. None when not measured, as
            `handed_over`, `pipelined`, `multiplexed` and `streams`.
    """

    count: int
    latency: LatencyCounts
    stages: Mapping[str, LatencyCounts]
    app_activity_ns: Mapping[str, int]
    handed_over: Optional[int]
    pipelined: Optional[int]
    multiplexed: Optional[int] = None
    streams: Optional[int] = None
    tls_handshakes: Optional[int] = None


@dataclass(frozen=True)
class LoopCounts:
    """One living thread that polls: how long it was away from its poller.

    Attributes:
        iterations: returns of a poller that a next call of one followed.
        busy_ns: the time in between, all together; `busy_max_ns` the longest.
    """

    pid: int
    tid: int
    comm: str
    iterations: int
    busy_ns: int
    busy_max_ns: int


# With no name: processes that ended, which have one row together; the idle CPU has a name.
ENDED_PID = 0


@dataclass(frozen=True)
class LoweredPriority:
    """What gives a target less CPU time than is usual.

    Attributes:
        file, value: as of `CpuPriority`.
    """

    pid: int
    file: Optional[str]
    value: int


@dataclass(frozen=True)
class CpuPriority:
    """What decides how much CPU time a process has beside the targets.

    Attributes:
        kind: `nice` of its threads; `session`: that number of its session (sched(7), autogroup);
            `cgroup`: the weight of its cgroup, or of one above that no target is in.
        file: of the last two, which has the number. value: now; None when not known.
        lowered: targets, or one of each session or cgroup, with less than the usual share: a nice
            value above 0, a weight below the default.
    """

    kind: str
    file: Optional[str]
    value: Optional[int]
    lowered: Tuple[LoweredPriority, ...] = ()


@dataclass(frozen=True)
class CpuHolder:
    """Who was on a CPU while threads of the targets waited for it.

    Attributes:
        pid: 0 when the CPU was idle; `ENDED_PID` of a row that holds those who are in no
            sample any more, what they had in earlier ones included.
        started_ns: since boot; tells apart processes of one number.
        comm: None when it was gone before it could be read.
        waited_ns: how long they did, all together, of the waits that are over.
        is_partner: it was at the other end of a target's connection, or a target's child.
        priority: of who was looked at: neither target nor partner, and waited for much.
        is_kernel: a thread of the kernel's own (PF_KTHREAD); None: not known.
    """

    pid: int
    started_ns: int
    comm: Optional[str]
    is_target: bool
    waited_ns: int
    is_partner: bool = False
    priority: Optional[CpuPriority] = None
    is_kernel: Optional[bool] = None


@dataclass(frozen=True)
class WaitPart:
    """What the author of waits did while they lasted.

    Attributes:
        was: `cpu`, `runq`, what it slept for as `WaitCounts.kind`, or `unknown`.
        total_ns: how long, all those waits together.
        call: the system call that it slept in last; None when it did not, or it is not known.
    """

    was: str
    total_ns: int
    call: Optional[str]


@dataclass(frozen=True)
class WaitCounts:
    """Waits of one thread that one author ended; cumulative.

    Attributes:
        pid: 0 in a row of those whose names are kept no longer, or never were.
        started_ns: since boot; tells apart threads of one number.
        kind: `lock`, `file_lock`, `recv`, `send`, `accept`, `connect`, `poll`, `disk`, `child`,
            `sleep`, `pipe` or `other`.
        object: of a lock, the address of the futex; 0 where it is not known.
        author: `thread`; `interrupt` (a timer or a device); `softirq` (packets or timers);
            `peer` (the process at the other end of the connection); `program` (threads that ended
            and had the name `author_comm`); `unknown`.
        last_ns: CLOCK_MONOTONIC when that one ended.
        parts: they add up to the time waited.
    """

    pid: int
    tid: int
    started_ns: int
    kind: str
    object: int
    author: str
    author_pid: Optional[int]
    author_tid: Optional[int]
    author_started_ns: int
    author_comm: Optional[str]
    author_is_target: bool
    count: int
    max_ns: int
    last_ns: int
    parts: Tuple[WaitPart, ...]


@dataclass(frozen=True)
class OwnRequestCounts:
    """Requests of one process to one destination, answered ones.

    Attributes:
        recv_wait_ns: of `total_ns`, as of `UpstreamCounts`.
    """

    transport: str
    address: str
    peer: Optional[PeerReading]
    count: Total
    total_ns: Total
    recv_wait_ns: Optional[Total] = None


@dataclass(frozen=True)
class Waiting:
    """What waits at sampling time: how many, and since when the oldest (CLOCK_MONOTONIC).

    Attributes:
        oldest_ns: None when nothing waits.
    """

    count: int
    oldest_ns: Optional[int]


@dataclass(frozen=True)
class GivenUpCounts:
    """Requests without a reply whose client had closed before the process did, cumulative.

    Attributes:
        total_ns: from the last byte of each to the close; `upstream_ns` of that their process slept
            with requests of its own outstanding.
    """

    count: int
    total_ns: int
    upstream_ns: int


@dataclass(frozen=True)
class ServerReading:
    """The requests of one process, cumulative but for what waits now.

    Attributes:
        count: requests it answered; `total_ns` their latency, `max_ns` the longest, `latency` all
            three and their histogram; None in recordings of udsprobe before it had one.
        stages_ns: by name, the sum; of `accept_wait` there are `accept_waits`.
        app_activity_ns: as in `ServedCounts`, of this process.
        upstream_wait_ns: of these, the sleep (other than for a disk, room in a
            buffer or a connection) that answers to own requests outstanding explain.
        rest_ns: before these, between receive calls of a request: nothing of it was there, and more
            came. It is the rest of that request where clients ask one at a time.
        in_progress: received, and the reply has not begun.
        unread: connections with bytes it has not begun to receive.
        asking: own requests without an answer yet.
        abandoned: of those in progress, whose clients have closed their end.
        at_once: requests in progress when a reply began, that one too, added up over replies.
        asked_before: connections whose client had spoken last when the observation began, after a
            reply or once; since then neither end has. Of TCP.
        tls_handshakes: of its clients, to their end; None when not measured.
        http: its replies with an HTTP/1 status; in_pieces: those that came in pieces.
        `given_up`, `dropped`, `abandoned`, `asked_before`, `http`,
        `in_pieces` and `rest_ns` are None when not measured.
    """

    pid: int
    comm: Optional[str]
    count: int
    total_ns: int
    max_ns: int
    stages_ns: Mapping[str, int]
    accept_waits: int
    app_activity_ns: Mapping[str, int]
    upstream_wait_ns: int
    handed_over: Optional[int]
    pipelined: Optional[int]
    upstream: Tuple[OwnRequestCounts, ...]
    in_progress: Waiting
    unread: Waiting
    asking: Waiting
    multiplexed: Optional[int] = None
    tls_handshakes: Optional[int] = None
    latency: Optional[LatencyCounts] = None
    at_once: Optional[int] = None
    given_up: Optional[GivenUpCounts] = None
    dropped: Optional[UnansweredCounts] = None
    abandoned: Optional[Waiting] = None
    asked_before: Optional[Waiting] = None
    http: Optional[HttpReplyCounts] = None
    in_pieces: Optional[PieceCounts] = None
    rest_ns: Optional[int] = None


@dataclass(frozen=True)
class ThreadActivities:
    """Where one living thread's time went since it was observed.

    Attributes:
        activity_ns: `user`, `sys_socket` … `blocked_other` → ns; the thirteen
            add up to the time observed.
        asleep: what it has been doing without a break since `asleep_since_ns`
            (CLOCK_MONOTONIC), which `activity_ns` does not have: so a thread that
            sleeps on is the same object in sample after sample. None when awake.
        kind: of its sleep, as `WaitCounts.kind`; None when awake, or not told.
        call: that it sleeps in, by kernel name. object: of a lock, the address of the futex;
            inode: of the socket that the call is about; 0 where there is none, or not known.
        polls_clients: it sleeps in a poller that watches a connection which its process serves, or
            a listener;
            lock_holder: who holds the file lock, or reads the pipe that it writes to. None: not
            known.
    """

    pid: int
    tid: int
    comm: str
    activity_ns: Mapping[str, int]
    asleep: Optional[str] = None
    asleep_since_ns: int = 0
    kind: Optional[str] = None
    call: Optional[str] = None
    object: int = 0
    inode: int = 0
    polls_clients: Optional[bool] = None
    lock_holder: Optional[PeerReading] = None

    def until(self, now_ns: int) -> Mapping[str, int]:
        """The thirteen up to a sample's `monotonic_ns`."""
        slept_ns = self.slept_ns(now_ns)
        if self.asleep is None or not slept_ns:
            return self.activity_ns
        return {**self.activity_ns, self.asleep: self.activity_ns.get(self.asleep, 0) + slept_ns}

    def slept_since(self, then_ns: int) -> bool:
        """Whether it has been asleep since before that moment."""
        return self.asleep is not None and self.asleep_since_ns < then_ns

    def slept_ns(self, now_ns: int) -> int:
        """Of its sleep now: how long."""
        return 0 if self.asleep is None else max(0, now_ns - self.asleep_since_ns)


@dataclass(frozen=True)
class HostCpuReading:
    """Where the time of all CPUs went since boot, in clock ticks (`/proc/stat`).

    Attributes:
        user, system: nice included; interrupts included.
        cpus: online. runnable: threads that run or wait for a CPU now.
    """

    user: int
    system: int
    idle: int
    iowait: int
    steal: int
    cpus: int
    runnable: int


@dataclass(frozen=True)
class QuotaReading:
    """A CPU cgroup with a quota; counters are of the time since `since_ns`.

    Attributes:
        path: of its directory, escaped.
        version: of the hierarchy, 1 or 2.
        quota_us, period_us: CPU time allowed in each period; `quota_us` is None
            when the quota was lifted.
        since_ns: CLOCK_MONOTONIC of the first look.
        periods: enforcement periods in which the cgroup had something to run;
            throttled_periods: those in which it was stopped.
        throttled_ns: how long, each CPU by itself.
        usage_ns: CPU time used; None where the hierarchy does not say.
        pids: living targets in it or below it, ascending.
    """

    path: str
    version: int
    quota_us: Optional[int]
    period_us: int
    since_ns: int
    periods: int
    throttled_periods: int
    throttled_ns: int
    usage_ns: Optional[int]
    pids: Tuple[int, ...]


@dataclass(frozen=True)
class AffinityReading:
    """Targets that may not run on every CPU of the host, the same for all their threads.

    Attributes:
        cpus: where they may run; others: the host's other CPUs; both ascending.
        pids: living targets, ascending.
        cpusets: files of the cgroups that leave CPUs out, escaped, the outermost first; empty
            where sched_setaffinity(2) did it.
        others_idle, others_total: time of the other CPUs since boot, in clock ticks.
    """

    cpus: Tuple[int, ...]
    others: Tuple[int, ...]
    pids: Tuple[int, ...]
    cpusets: Tuple[str, ...]
    others_idle: int
    others_total: int


@dataclass(frozen=True)
class OpenFiles:
    """Open files of the whole host and their limit (`fs.file-nr`)."""

    open: int
    max: int


@dataclass(frozen=True)
class CpuReading:
    """The host's CPUs and what the targets may use of them.

    Attributes:
        host: None when /proc/stat is not readable.
        pressure_some_us: time in which at least one thread of the host waited
            for a CPU (PSI), since boot; None when the kernel does not keep it.
        cgroups: None when the CPU cgroups of a target are hidden from this user.
        pressure_read_ns: CLOCK_MONOTONIC when the kernel said `pressure_some_us`, which it
            brings up to date for whoever reads it: some ms behind the sample's own moment.
            None in recordings of earlier versions.
        affinities: None when /proc/stat is not readable, and in recordings of earlier versions.
    """

    host: Optional[HostCpuReading]
    pressure_some_us: Optional[int]
    cgroups: Optional[Tuple[QuotaReading, ...]]
    pressure_read_ns: Optional[int] = None
    affinities: Optional[Tuple[AffinityReading, ...]] = None


@dataclass(frozen=True)
class ProbeReading:
    """udsprobe's account of itself, cumulative.

    Attributes:
        events_seen: calls of targets that ended, counted or not.
        events_counted: of these, in the table.
        lost_*: not counted, by reason; `missed`: runs of the system-call
            programs that the kernel skipped (`recursion_misses`), of anybody's calls, and
            operations of io_uring whose completion nobody is told of.
        missed_by_program: the same of every program; `io_uring:untold` are those operations.
        turned_away: threads, processes, connections, listeners and connects
            for which a map had no room.
        cpu_ns: CPU time of this process. rss_bytes: resident memory.
        bpf_cpu_ns: run time of the programs while it was measured;
            None when the kernel does not say.
        bpf_measured_ns: how long it was measured.
        unread_messages: messages of `sendmmsg` and `recvmmsg` whose length could
            not be read from the caller's memory: they are in no `bytes`.
        unplaced_failures: failed connects of clients that were gone before their
            path could be looked up: they are at no listener. None when connects
            are not matched with listeners on this kernel.
        turned_away_by_map: of which map; full ones only.
        bpf_ns_by_program, bpf_runs_by_program: of `bpf_cpu_ns`, by program, and how often
            each ran in that time.
        maps_bytes: kernel memory of the maps.
        calls_left: interrupted by a signal whose handler never returned to them.
    """

    events_seen: int
    events_counted: int
    lost_map_full: int
    lost_ring_full: int
    lost_missed: int
    missed_by_program: Mapping[str, int]
    turned_away: int
    cpu_ns: int
    rss_bytes: int
    bpf_cpu_ns: Optional[int]
    bpf_measured_ns: Optional[int]
    unread_messages: int = 0
    unplaced_failures: Optional[int] = None
    turned_away_by_map: Mapping[str, int] = field(default_factory=dict)
    bpf_ns_by_program: Optional[Mapping[str, int]] = None
    bpf_runs_by_program: Optional[Mapping[str, int]] = None
    maps_bytes: Optional[int] = None
    calls_left: Optional[int] = None


GOROUTINE, TASK, ASYNC_FUNCTION = "goroutine", "task", "async function"
GOROUTINE_FOR_BYTES, TASK_FOR_BYTES = "goroutine for bytes", "task for bytes"


@dataclass(frozen=True)
class StackCounts:
    """Samples that met one stack, or sleeps that began there.

    Attributes:
        on: `cpu`: by a clock, while it ran; `off-cpu`: while it slept.
        frames: functions, the outermost first, a line each: `function TAB module TAB file TAB
            line`, empty where not known. As text, because every sample has all of them.
        samples: how many, or how many sleeps; truncated: of these, whose outer callers could not
            be found.
        call: the system call that it slept in; empty where it slept in none, or is not known;
            `GOROUTINE`, `TASK`, `ASYNC_FUNCTION`: no thread slept, a goroutine, a task of asyncio
            or an async function of JavaScript waited there at so many looks;
            `GOROUTINE_FOR_BYTES`, `TASK_FOR_BYTES`: one with a request, for bytes of a connection.
        slept_ns: of sleeps, all together; owing_ns: of these, what began while the process had
            requests to answer, 0 where that is not known.
        owing_samples: of what ran, while the process had requests to answer; None: older versions
            did not look.
        threads: tid → of the samples of what ran, those of that thread, of sleeps that ended their
            ns; of the first threads that were met there.
        held_by: of goroutines that waited for a lock: frames of who had it → of `slept_ns`, the
            waits for that one; empty frames: not known who.
    """

    pid: int
    on: str
    frames: str
    samples: int
    truncated: int
    slept_ns: int = 0
    owing_ns: int = 0
    call: str = ""
    owing_samples: Optional[int] = None
    threads: Mapping[int, int] = field(default_factory=dict)
    held_by: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StackReading:
    """The stack sampler, cumulative.

    Attributes:
        hz: samples a second of a thread that runs all the time.
        on_ns: how long it was on. lost: samples for which there was no room.
        pids: of which processes it takes stacks now, ascending; empty while it is off.
        mapped_pids: of those sampled, whose code that is made or interpreted at run time has names.
        unwinds: callers are found by call frame information.
        asleep_on_ns: how long it was on for threads that sleep. waits_lost: sleeps for which there
            was no room.
        sees_owing: whether a process owes a reply is known.
    """

    hz: int
    on_ns: int
    lost: int
    pids: Tuple[int, ...]
    mapped_pids: Tuple[int, ...]
    unwinds: bool
    stacks: Tuple[StackCounts, ...]
    asleep_on_ns: int = 0
    waits_lost: int = 0
    sees_owing: bool = False


@dataclass(frozen=True)
class KeptRequest:
    """One request with all that is known of it.

    Attributes:
        name: tells it from all others of the observation.
        replied_ns: CLOCK_MONOTONIC when the call that starts its reply returned.
        rank: it is kept while few others of its kind have more: its latency in ns where
            `is_slow`, otherwise a number drawn by chance.
        story: a JSON document, which `udsprobe.model.requests.whole_requests` reads.
    """

    name: str
    replied_ns: int
    rank: int
    is_slow: bool
    story: Optional[str]


@dataclass(frozen=True)
class Sample:
    """Everything read at one moment.

    Attributes:
        sequence: 0 for the first of an observation, then counting.
        monotonic_ns: CLOCK_MONOTONIC, the clock of every `_ns` instant here.
        unix_s: wall clock, seconds since the epoch.
        calls: None when no probe counts system calls.
        syscalls_by_name: every system call of the targets, by kernel name.
        threads: the living threads of the targets; `exited_activity_ns` adds
            up those that ended.
        targets_exited: processes that ended; the last 64 of them are in `targets`.
        namespaces: the network namespaces of the targets.
        connects: the targets' own connect() calls by destination.
        connections: the busiest; `connections_open` counts all.
        cpu and what follows: None in a recording of a version that did not read it.
        served_by: the processes that answered or made a request, or have one waiting.
        loops: the living threads that poll; `loop_busy` has those that ended, too.
        stacks: None where they are not taken, and until they first are.
        waits: those of the targets' threads that are over.
        kept_requests: the slowest, and some by chance, of each time of a minute or longer that
            ends with this sample, and of the whole if it is shorter (`udsprobe.kept_requests`).
        traffic: of the sockets, where no system call is seen.
        exits: None where it is not told how a process ended.
        starts: None where the calls that start threads and processes are not seen.
    """

    sequence: int
    monotonic_ns: int
    unix_s: float
    calls: Optional[Tuple[CallCounts, ...]]
    in_flight: Optional[Tuple[CallInFlight, ...]]
    syscalls_by_name: Optional[Mapping[str, int]]
    threads: Optional[Tuple[ThreadActivities, ...]]
    exited_activity_ns: Optional[Mapping[str, int]]
    targets: Tuple[TargetReading, ...]
    targets_exited: int
    listeners: Optional[Tuple[ListenerReading, ...]]
    namespaces: Optional[Tuple[NamespaceReading, ...]]
    connects: Optional[Tuple[ConnectCounts, ...]]
    served: Optional[ServedCounts]
    upstream: Optional[Tuple[UpstreamCounts, ...]]
    connections: Optional[Tuple[ConnectionReading, ...]]
    connections_open: Optional[int]
    probe: ProbeReading
    cpu: Optional[CpuReading] = None
    open_files: Optional[OpenFiles] = None
    served_by: Optional[Tuple[ServerReading, ...]] = None
    loops: Optional[Tuple[LoopCounts, ...]] = None
    loop_busy: Optional[LatencyCounts] = None
    cpu_holders: Optional[Tuple[CpuHolder, ...]] = None
    stacks: Optional[StackReading] = None
    waits: Optional[Tuple[WaitCounts, ...]] = None
    kept_requests: Optional[Tuple[KeptRequest, ...]] = None
    traffic: Optional[Tuple[TrafficCounts, ...]] = None
    exits: Optional[Tuple[ExitCounts, ...]] = None
    starts: Optional[Tuple[StartCounts, ...]] = None


@dataclass(frozen=True)
class Moment:
    """The part of a sample that a time line is made of; fields as there."""

    sequence: int
    monotonic_ns: int
    unix_s: float
    listeners: Optional[Tuple[ListenerReading, ...]]
    served: Optional[ServedCounts]
    served_by: Optional[Tuple[ServerReading, ...]] = None


@dataclass(frozen=True)
class MeasurementState:
    """One measurement and what carries it on this kernel.

    Attributes:
        name: `syscalls`, `in_flight`, `served_requests`, `listeners` …
        rests_on: probe or interface, `tp_btf:sys_enter`; None when off.
        state: `on`, `degraded` or `off`.
        reason: why it is not `on`; None otherwise.
    """

    name: str
    rests_on: Optional[str]
    state: str
    reason: Optional[str]


@dataclass(frozen=True)
class Observation:
    """What stays the same from the first sample to the last.

    Attributes:
        detail: how much was looked at, `full` or `light`; `auto` where nothing has a probe between
            full windows.
    """

    version: str
    kernel: str
    arch: str
    cpus: int
    hostname: str
    strategy: str
    measurements: Tuple[MeasurementState, ...]
    attach_ms: float
    interval_s: float
    detail: str = "full"
