"""Samples for unit tests: a node service behind nginx, one keyword to change a thing.

Durations go through `udsprobe.model.histogram.slot_of`, so that counters of a
sample agree with each other as the kernel's do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Iterable, Mapping, Optional, Sequence, Tuple

from udsprobe.model.histogram import LATENCY_SLOTS, slot_of
from udsprobe.sample import (
    CallCounts,
    CallInFlight,
    ConnectCounts,
    ConnectionReading,
    CpuReading,
    Endpoint,
    HostCpuReading,
    LatencyCounts,
    ListenerReading,
    MeasurementState,
    NamespaceReading,
    Observation,
    OpenFiles,
    OwnRequestCounts,
    PeerReading,
    ProbeReading,
    QueueCounts,
    QuotaReading,
    Sample,
    ServedCounts,
    ServerReading,
    TargetReading,
    ThreadActivities,
    UpstreamCounts,
    Waiting,
)

SECOND_NS = 1_000_000_000
SLOW_CALL_NS = 1_000_000
BOOT_NS = 86_400 * SECOND_NS
START_UNIX_S = 1_796_000_000.25

UNIX = Endpoint(transport="unix", socket_type="stream")
UNIX_DGRAM = Endpoint(transport="unix", socket_type="dgram")
TCP = Endpoint(transport="tcp", socket_type="stream")
OTHER = Endpoint(transport="other", socket_type=None)
STAGES = ("accept_wait", "recv_wait", "recv", "app", "send")
ACTIVITIES = (
    "user",
    "sys_socket",
    "sys_poll",
    "sys_other",
    "runq",
    "blocked_poll",
    "blocked_recv",
    "blocked_send",
    "blocked_accept",
    "blocked_connect",
    "blocked_lock",
    "blocked_disk",
    "blocked_other",
)


def latency(durations_ns: Iterable[int] = ()) -> LatencyCounts:
    """The histogram of these durations."""
    durations = list(durations_ns)
    slots = [0] * LATENCY_SLOTS
    for duration in durations:
        slots[slot_of(duration)] += 1
    return LatencyCounts(
        count=len(durations),
        total_ns=sum(durations),
        max_ns=max(durations, default=0),
        slots=tuple(slots),
    )


def call(
    name: str = "read",
    endpoint: Endpoint = UNIX,
    durations_ns: Sequence[int] = (),
    *,
    errors: Optional[Mapping[str, int]] = None,
    **changes: Any,
) -> CallCounts:
    """A row whose calls took `durations_ns`, on the CPU all the time but for slow ones."""
    slow_ns = sum(each for each in durations_ns if each >= SLOW_CALL_NS)
    row = CallCounts(
        name=name,
        abi="native",
        endpoint=endpoint,
        calls=len(durations_ns),
        errors=dict(errors or {}),
        bytes=100 * len(durations_ns),
        wall_ns=sum(durations_ns),
        cpu_ns=sum(durations_ns) - slow_ns,
        slow_ns=slow_ns,
        latency=latency(durations_ns),
    )
    return replace(row, **changes)


def in_flight(
    name: str = "epoll_pwait", endpoint: Endpoint = OTHER, **changes: Any
) -> CallInFlight:
    """The event loop's thread asleep in its poller."""
    thread = CallInFlight(
        pid=4711, tid=4711, name=name, abi="native", endpoint=endpoint, since_ns=BOOT_NS
    )
    return replace(thread, **changes)


def target(**changes: Any) -> TargetReading:
    reading = TargetReading(
        pid=4711,
        comm="node",
        cmdline="node app.js",
        threads=7,
        state="running",
        fds_open=42,
        fds_limit=1024,
        via="selector",
        fds_refused={},
        start_ticks=900,
    )
    return replace(reading, **changes)


def listener(**changes: Any) -> ListenerReading:
    """Node's default of 511 under a somaxconn of 128."""
    reading = ListenerReading(
        transport="unix",
        socket_type="stream",
        address="/run/app.sock",
        netns=4026531840,
        inode=12345,
        pids=(4711,),
        depth_now=97,
        backlog_effective=128,
        backlog_requested=511,
        somaxconn=128,
    )
    return replace(reading, **changes)


def namespace(**changes: Any) -> NamespaceReading:
    """The listener's own."""
    reading = NamespaceReading(
        netns=4026531840,
        somaxconn=128,
        tcp_abort_on_overflow=0,
        tcp_syncookies=1,
        listen_overflows=0,
        listen_drops=0,
        syncookies_sent=0,
        syncookies_received=0,
        wmem_max=212_992,
        wmem_default=212_992,
        rmem_max=212_992,
        rmem_default=212_992,
        max_dgram_qlen=10,
        tcp_wmem=(4096, 16_384, 4_194_304),
        tcp_rmem=(4096, 131_072, 6_291_456),
    )
    return replace(reading, **changes)


def queue(
    waits_ns: Sequence[int] = (), blocked_ns: Sequence[int] = (), **changes: Any
) -> QueueCounts:
    """A Unix accept queue from which process 4711 took one connection for each wait."""
    taken = len(waits_ns)
    counts = QueueCounts(
        since_ns=BOOT_NS,
        established=taken,
        accepted=taken,
        accepted_early=0,
        accepted_by={4711: taken} if taken else {},
        accepted_by_thread={4711: taken} if taken else {},
        depth={1: taken} if taken else {},
        depth_max=min(taken, 1),
        depth_max_recent=1 if taken else None,
        wait=latency(waits_ns),
        blocked=latency(blocked_ns),
        blocked_now=0,
        refused={},
        drops=None,
        syn_queue=None,
        syn_young=None,
    )
    return replace(counts, **changes)


def connects(
    durations_ns: Sequence[int] = (), *, error: Optional[str] = None, **changes: Any
) -> ConnectCounts:
    """The service's own connections to its database."""
    counts = ConnectCounts(
        transport="unix", address="/run/db.sock", error=error, latency=latency(durations_ns)
    )
    return replace(counts, **changes)


def served(durations_ns: Sequence[int] = (), **changes: Any) -> ServedCounts:
    """Requests that spend all their time in the application, on the CPU."""
    times = latency(durations_ns)
    stages = dict.fromkeys(STAGES, latency(()))
    counts = ServedCounts(
        count=len(durations_ns),
        latency=times,
        stages={**stages, "app": times},
        app_activity_ns=activities(user=sum(durations_ns)),
        handed_over=0,
        pipelined=0,
    )
    return replace(counts, **changes)


def server(durations_ns: Sequence[int] = (), **changes: Any) -> ServerReading:
    """The service's own requests, all their time in the application, on the CPU."""
    nothing = Waiting(0, None)
    reading = ServerReading(
        pid=4711,
        comm="node",
        count=len(durations_ns),
        total_ns=sum(durations_ns),
        max_ns=max(durations_ns, default=0),
        stages_ns={**dict.fromkeys(STAGES, 0), "app": sum(durations_ns)},
        accept_waits=0,
        app_activity_ns=activities(user=sum(durations_ns)),
        upstream_wait_ns=0,
        handed_over=0,
        pipelined=0,
        upstream=(),
        in_progress=nothing,
        unread=nothing,
        asking=nothing,
    )
    return replace(reading, **changes)


def own_requests(count: int = 0, total_ns: int = 0, **changes: Any) -> OwnRequestCounts:
    """The service's own to its database."""
    counts = OwnRequestCounts("unix", "/run/db.sock", PeerReading(812, "postgres"), count, total_ns)
    return replace(counts, **changes)


def activities(**spent_ns: int) -> Dict[str, int]:
    """ns by activity, the thirteen of `enum activity`."""
    return {**dict.fromkeys(ACTIVITIES, 0), **spent_ns}


def thread(tid: int = 4711, pid: int = 4711, **spent_ns: int) -> ThreadActivities:
    return ThreadActivities(pid=pid, tid=tid, comm="node", activity_ns=activities(**spent_ns))


def upstream(durations_ns: Sequence[int] = (), **changes: Any) -> UpstreamCounts:
    """The service's requests to its database."""
    counts = UpstreamCounts(
        transport="unix",
        address="/run/db.sock",
        peer=PeerReading(812, "postgres"),
        opened=1,
        latency=latency(durations_ns),
    )
    return replace(counts, **changes)


def connection(**changes: Any) -> ConnectionReading:
    """A connection that the service accepted from nginx."""
    reading = ConnectionReading(
        inode=777,
        pid=4711,
        transport="unix",
        role="served",
        local="/run/app.sock",
        peer_address="",
        peer=PeerReading(33, "nginx"),
        turns=0,
        bytes_in=0,
        bytes_out=0,
        recv_queue_bytes=0,
        send_queue_bytes=0,
        send_buffer_bytes=212_992,
        send_blocked=0,
        send_blocked_ns=0,
        send_blocked_max_ns=0,
        send_eagain=0,
        recv_queue_max_bytes=0,
        recv_queue_recent_max_bytes=0,
        send_queue_max_bytes=0,
        send_queue_recent_max_bytes=0,
        recv_buffer_bytes=212_992,
        recv_buffer_is_fixed=False,
        send_buffer_is_fixed=False,
        stalled_ns=0,
    )
    return replace(reading, **changes)


def host_cpu(**changes: Any) -> HostCpuReading:
    """Two CPUs, in ticks."""
    reading = HostCpuReading(
        user=1000, system=500, idle=90_000, iowait=100, steal=10, cpus=2, runnable=1
    )
    return replace(reading, **changes)


def quota(**changes: Any) -> QuotaReading:
    """A container allowed half a CPU."""
    reading = QuotaReading(
        path="/sys/fs/cgroup/web",
        version=2,
        quota_us=50_000,
        period_us=100_000,
        since_ns=BOOT_NS,
        periods=0,
        throttled_periods=0,
        throttled_ns=0,
        usage_ns=0,
        pids=(4711,),
    )
    return replace(reading, **changes)


def cpu(**changes: Any) -> CpuReading:
    reading = CpuReading(host=host_cpu(), pressure_some_us=5_000, cgroups=())
    return replace(reading, **changes)


def probe(**changes: Any) -> ProbeReading:
    reading = ProbeReading(
        events_seen=0,
        events_counted=0,
        lost_map_full=0,
        lost_ring_full=0,
        lost_missed=0,
        missed_by_program={},
        turned_away=0,
        cpu_ns=80_000_000,
        rss_bytes=41_000_000,
        bpf_cpu_ns=0,
        bpf_measured_ns=0,
    )
    return replace(reading, **changes)


def sample(at_s: float = 0.0, **changes: Any) -> Sample:
    """A reading `at_s` seconds into the observation; everything measured, nothing counted.

    Its sequence number is that of one sample a second.
    """
    reading = Sample(
        sequence=int(at_s),
        monotonic_ns=BOOT_NS + int(at_s * SECOND_NS),
        unix_s=START_UNIX_S + at_s,
        calls=(),
        in_flight=(),
        syscalls_by_name={},
        threads=(),
        exited_activity_ns=activities(),
        targets=(target(),),
        targets_exited=0,
        listeners=(listener(),),
        namespaces=(namespace(),),
        connects=(),
        served=served(),
        served_by=(),
        upstream=(),
        connections=(),
        connections_open=0,
        probe=probe(),
        loops=(),
        loop_busy=latency(),
        cpu_holders=(),
        cpu=cpu(),
        open_files=OpenFiles(open=2_000, max=100_000),
    )
    return replace(reading, **changes)


def unmeasured_sample(at_s: float = 0.0, **changes: Any) -> Sample:
    """A reading on a kernel which carries no measurement."""
    nothing = sample(
        at_s,
        calls=None,
        in_flight=None,
        syscalls_by_name=None,
        threads=None,
        exited_activity_ns=None,
        listeners=None,
        namespaces=None,
        connects=None,
        served=None,
        served_by=None,
        upstream=None,
        connections=None,
        connections_open=None,
        loops=None,
        loop_busy=None,
        cpu_holders=None,
        probe=probe(bpf_cpu_ns=None, bpf_measured_ns=None),
        cpu=None,
        open_files=None,
    )
    return replace(nothing, **changes)


def observation(**changes: Any) -> Observation:
    fixed = Observation(
        version="0.1.0",
        kernel="6.18.44",
        arch="x86_64",
        cpus=2,
        hostname="web1",
        strategy="tracepoint",
        measurements=(
            MeasurementState("syscalls", "tp_btf:sys_enter", "on", None),
            MeasurementState("accept_wait", None, "off", "not measured yet"),
        ),
        attach_ms=120.5,
        interval_s=1.0,
    )
    return replace(fixed, **changes)


def busy_pair() -> Tuple[Sample, Sample]:
    """Two samples, 10 s apart, of a service which answered 1,000 requests in between."""
    answers_ns = [2_000_000 + 1_000 * each for each in range(1_000)]
    waits_ns = [3_000_000] * 500
    last = sample(
        10.0,
        calls=(
            call("read", UNIX, [1_200] * 1_500, errors={"EAGAIN": 500}),
            call("writev", UNIX, [3_300] * 1_000),
            call("accept4", UNIX, [1_900] * 300, errors={"EAGAIN": 150}, bytes=0),
            call("epoll_pwait", OTHER, waits_ns, bytes=0),
        ),
        in_flight=(in_flight(), in_flight("accept4", UNIX, tid=4712)),
        syscalls_by_name={"read": 1_600, "writev": 1_000, "accept4": 300, "epoll_pwait": 500},
        served=served(answers_ns),
        probe=probe(
            events_seen=3_400,
            events_counted=3_300,
            cpu_ns=130_000_000,
            bpf_cpu_ns=4_000_000,
            bpf_measured_ns=1_000_000_000,
        ),
    )
    return sample(), last
