"""Reports for the tests of views: a busy service, an empty one, a degraded one, a hostile one."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional

from udsprobe.model.report import (
    Backlog,
    BlockedConnects,
    Connect,
    Depth,
    EventsLost,
    Fds,
    Host,
    Latency,
    Listener,
    Measurement,
    Probe,
    ProcessTime,
    Report,
    Requests,
    Served,
    Stages,
    Syscall,
    SyscallsPerRequest,
    Target,
    ThreadTime,
    Time,
    Window,
)

START = "2026-11-21T03:12:31+00:00"
ACTIVITIES = (
    *("user", "sys_socket", "sys_poll", "sys_other", "runq"),
    *("blocked_poll", "blocked_recv", "blocked_send", "blocked_accept", "blocked_connect"),
    *("blocked_lock", "blocked_disk", "blocked_other"),
)
NOT_BUILT = ("verdict", "accept_queue", "stages", "thread_time", "connections")
HOSTILE = "\x1b[31mred\x1b[0m [bold]x[/bold] \u202egnp.exe\n\udcff\x07"


def latency(count: int, p50: float, spread: float = 4.0) -> Latency:
    """A plausible shape around a median, in µs."""
    if count == 0:
        return Latency(count=0)
    return Latency(
        count=count,
        mean=p50 * 1.2,
        p50=p50,
        p90=p50 * (1 + spread / 4),
        p99=p50 * (1 + spread / 2),
        p999=p50 * (1 + spread),
        max=p50 * (1 + 2 * spread),
    )


def syscall(
    name: str,
    transport: str = "unix",
    calls: int = 1000,
    p50: float = 1.2,
    *,
    socket_type: Optional[str] = "stream",
    errors: Optional[Dict[str, int]] = None,
    moved: int = 0,
    in_flight: Optional[int] = 0,
    abi: str = "native",
    cpu_share: float = 0.9,
) -> Syscall:
    wall_us = calls * p50 * 1.2
    return Syscall(
        name=name,
        transport=transport,
        socket_type=socket_type if transport != "other" else None,
        abi=abi,
        calls=calls,
        in_flight=in_flight,
        errors=errors or {},
        bytes=moved,
        wall_us=wall_us,
        cpu_us=wall_us * cpu_share,
        latency_us=latency(calls, p50),
        slow_us=wall_us * 0.2 if p50 > 100 else 0.0,
    )


def listener(
    address: str,
    transport: str = "unix",
    now: Optional[int] = 0,
    backlog: int = 128,
    *,
    clamped: bool = False,
    pids: Optional[List[int]] = None,
    socket_type: str = "stream",
    peak: Optional[int] = None,
) -> Listener:
    return Listener(
        transport=transport,
        socket_type=socket_type,
        address=address,
        netns=4026531840,
        inode=sum(map(ord, address)),
        state="listening",
        pids=pids,
        backlog=Backlog(
            requested=None,
            effective=backlog,
            clamped_by="net.core.somaxconn" if clamped else None,
            equals_somaxconn=clamped,
        ),
        depth=Depth(now=now, max=peak, limit=backlog + 1, histogram=None),
    )


def crowded(address: str = "/run/app.sock") -> Listener:
    """A listener whose every field is measured: its queue is full and clients suffer."""
    full = listener(address, now=129, peak=129, clamped=True, pids=[4711])
    return replace(
        full,
        depth=replace(full.depth, histogram={"1": 900, "2": 200, "33": 99, "128": 1}),
        established=1329,
        accepted=1200,
        accepted_early=0,
        accepted_by={"4711": 1200, "4712": 0},
        accepted_by_thread={"4711": 1200},
        wait_us=latency(1200, 9000),
        refused={"EAGAIN": 312},
        blocked_connects=BlockedConnects(count=7, wait_us=latency(7, 41_000), waiting_now=3),
        drops=0,
    )


def shared(address: str = "0.0.0.0:8080", sockets: int = 3) -> List[Listener]:
    """Listeners at one address (SO_REUSEPORT); the last one's worker is stuck."""
    rows = [
        replace(
            listener(address, "tcp", now=0, backlog=16, pids=[820 + n], peak=2),
            inode=9000 + n,
            established=100,
            accepted=100,
            accepted_by={str(820 + n): 100},
            wait_us=latency(100, 40),
            refused={},
            blocked_connects=BlockedConnects(0, latency(0, 0), 0),
            drops=0,
        )
        for n in range(sockets)
    ]
    depth = replace(rows[-1].depth, now=17, max=17)
    return [*rows[:-1], replace(rows[-1], depth=depth, accepted=0, drops=5)]


def connect(
    address: str, transport: str = "unix", calls: int = 100, errors: Optional[Dict[str, int]] = None
) -> Connect:
    return Connect(transport, address, calls, errors or {}, {}, latency(calls, 6.0))


def thread(tid: int = 4711, comm: str = "node", **share: float) -> ThreadTime:
    """The given shares, and the rest asleep in poll."""
    rest = {"blocked_poll": 1 - sum(share.values())}
    return ThreadTime(4711, tid, comm, 1.0, {**dict.fromkeys(ACTIVITIES, 0.0), **rest, **share})


def measured(seconds: float = 10.0, scale: float = 1.0) -> Report:
    """`busy`, with stages, time by thread, a queue that suffers, and outgoing connects.

    The mean request is 1,000 µs: accept 10, recv-wait 180, recv 5, app 799, send 6.
    """
    report = busy(seconds, scale)
    requests = report.requests.served
    assert requests is not None
    count = requests.count

    def stage(mean: float, of: int = count) -> Latency:
        return replace(latency(of, mean), mean=mean)

    served = replace(
        requests,
        latency_us=replace(requests.latency_us, mean=1000.0),
        stages_us=Stages(stage(400, count // 3), stage(180), stage(5), stage(799), stage(6)),
        app_time_pct={
            "cpu": 90.0,
            "runq": 6.0,
            "upstream": 4.0,
            "lock": 0.0,
            "disk": 0.0,
            "poll": 0.0,
            "other": 0.0,
        },
        turn_based=True,
    )
    busiest = thread(user=0.93, sys_socket=0.03, sys_poll=0.01, runq=0.02)
    return replace(
        report,
        probe=probe(measurement("stages"), measurement("accept_queue")),
        requests=replace(report.requests, served=served),
        time=Time(
            [busiest, thread(4713, "libuv-worker")],
            [ProcessTime(4711, "node", 2, 2.0, busiest.share)],
            busiest,
            2.0,
            busiest.share,
        ),
        listeners=[
            listener("127.0.0.1:9229", "tcp", now=0, backlog=511, pids=[4711], peak=1),
            *shared(),
            crowded(),
        ],
        namespaces=[],
        connects=[
            connect("127.0.0.1:5432", "tcp", 900, {"EINPROGRESS": 900}),
            connect("/run/pg.sock", calls=40, errors={"ENOENT": 40}),
        ],
    )


def target(pid: int, comm: str, via: str = "selector", fds: Optional[Fds] = None) -> Target:
    return Target(
        pid=pid,
        comm=comm,
        cmdline=f"{comm} --serve",
        threads=7,
        state="running",
        fds=fds or Fds(open=42, limit=1024),
        via=via,
    )


def measurement(name: str, state: str = "on", reason: Optional[str] = None) -> Measurement:
    rests_on = None if state == "off" else "tp_btf:sys_enter, tp_btf:sys_exit"
    return Measurement(name=name, rests_on=rests_on, state=state, reason=reason)


def probe(*measurements: Measurement, lost: int = 0) -> Probe:
    return Probe(
        strategy="tracepoint",
        measurements=list(measurements)
        or [
            *map(measurement, ("syscalls", "in_flight", "served_requests", "listeners")),
            *(measurement(name, "off", "not measured in this version") for name in NOT_BUILT),
        ],
        attach_ms=84.0,
        self_cpu_pct=0.42,
        bpf_cpu_pct=1.31,
        rss_bytes=41_300_000,
        events_seen=161_204 + lost,
        events_counted=161_204,
        events_lost=EventsLost(map_full=lost, ring_full=0, missed=0),
        missed_by_program={},
        turned_away=0,
    )


def served(count: int, seconds: float, p50: float = 2100.0) -> Served:
    return Served(
        count=count,
        rate_per_s=count / seconds if seconds else None,
        latency_us=latency(count, p50, 5.0),
        stages_us=Stages(),
        app_time_pct=None,
        turn_based=None,
    )


def busy(seconds: float = 10.0, scale: float = 1.0, queue: int = 97) -> Report:
    """nginx in front of Node over a Unix socket, `scale` × 4,812 requests per second."""
    requests = int(4812 * seconds * scale)
    return Report(
        version="0.1.0",
        host=Host(kernel="6.18.5", arch="x86_64", cpus=2, hostname="shop-7"),
        window=Window(start=START, duration_s=seconds),
        probe=probe(),
        targets=[
            target(4711, "node", fds=Fds(open=142, limit=1024)),
            target(812, "nginx", fds=Fds(open=88, limit=65536)),
            target(813, "nginx", "fork", fds=Fds(open=91, limit=65536)),
            target(814, "nginx", "fork", fds=Fds(open=None, limit=None)),
        ],
        targets_exited=0,
        verdict=None,
        findings=None,
        time=None,
        requests=Requests(
            served=served(requests, seconds),
            upstream=None,
            syscalls_per_request=SyscallsPerRequest(
                total=6.71,
                by_syscall={
                    "read": 2.01,
                    "writev": 1.0,
                    "epoll_pwait": 1.32,
                    "accept4": 0.7,
                    "close": 0.35,
                    "epoll_ctl": 0.98,
                    "futex": 0.21,
                    "shutdown": 0.14,
                },
            ),
        ),
        syscalls=busy_calls(requests),
        listeners=[
            listener("/run/app.sock", now=queue, clamped=True, pids=[4711]),
            listener("127.0.0.1:9229", "tcp", now=0, backlog=511, pids=[4711]),
            listener("0.0.0.0:80", "tcp", now=1, backlog=511, pids=[812, 813, 814]),
        ],
        namespaces=[],
        connects=None,
        connections=None,
        connections_total=None,
    )


def busy_calls(requests: int) -> List[Syscall]:
    accepts = requests * 35 // 100
    return [
        syscall(
            "read",
            calls=requests * 2,
            p50=1.2,
            moved=requests * 412,
            in_flight=0,
            errors={"EAGAIN": requests},
        ),
        syscall("writev", calls=requests, p50=3.3, moved=requests * 1290),
        syscall(
            "epoll_pwait",
            "other",
            calls=requests * 132 // 100,
            p50=310,
            in_flight=4,
            cpu_share=0.01,
            errors={"EINTR": 2},
        ),
        syscall("accept4", calls=accepts * 2, p50=1.9, errors={"EAGAIN": accepts, "EMFILE": 3}),
        syscall("close", calls=accepts, p50=2.4),
        syscall("epoll_ctl", "other", calls=requests * 98 // 100, p50=0.4),
        syscall("recvfrom", "tcp", calls=requests, p50=1.6, moved=requests * 214),
        syscall("writev", "tcp", calls=requests, p50=9.8, moved=requests * 1290),
        syscall("connect", calls=accepts, p50=6.1),
        syscall("socket", calls=accepts, p50=3.0),
        syscall("shutdown", calls=requests * 14 // 100, p50=1.1),
        syscall("read", "other", calls=812, p50=0.6, moved=66_000),
        syscall("sendmsg", "unix", calls=23, p50=4.0, socket_type="dgram", moved=2300),
        syscall("accept4", "tcp", calls=45, p50=4.4, errors={"EAGAIN": 12}),
    ]


def empty() -> Report:
    """A target that has done nothing yet."""
    report = busy(0.2, 0.0)
    return replace(
        report,
        targets=[target(4711, "node")],
        requests=Requests(served=served(0, 0.2), upstream=None, syscalls_per_request=None),
        syscalls=[],
        listeners=[],
    )


def degraded() -> Report:
    """A kernel that carries little: most values are None."""
    report = busy()
    return replace(
        report,
        probe=replace(
            probe(
                measurement("syscalls", "off", "this kernel has no BTF (/sys/kernel/btf/vmlinux)"),
                measurement("in_flight", "off", "rests on syscalls"),
                measurement("served_requests", "off", "rests on syscalls"),
                measurement("listeners", "degraded", "tcp_diag is not loaded: Unix only"),
                lost=312,
            ),
            bpf_cpu_pct=None,
        ),
        targets=[
            replace(target(4711, "node", fds=Fds(open=None, limit=None)), cmdline=None),
        ],
        requests=Requests(served=None, upstream=None, syscalls_per_request=None),
        syscalls=None,
        listeners=[listener("/run/app.sock", now=None, pids=None)],
    )


def hostile() -> Report:
    """Names chosen to break terminals, and addresses longer than any column."""
    report = busy()
    long_path = "/run/" + "very-long-directory-name/" * 4 + "app.sock"
    return replace(
        report,
        targets=[
            replace(target(4711, HOSTILE), cmdline=HOSTILE * 20),
            replace(target(4712, "漢字漢字漢字漢字漢字"), cmdline="e\u0301\u0301\u0301\u0301x" * 9),
        ],
        listeners=[
            listener(long_path, now=129, clamped=True, pids=[4711, 4712]),
            listener("@" + HOSTILE, now=3, pids=[4711], socket_type="seqpacket"),
        ],
    )
