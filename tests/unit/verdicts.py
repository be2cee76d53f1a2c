"""Reports as the rules judge them, for the tests of views."""

from __future__ import annotations

from dataclasses import replace

from tests.unit import ill, reports
from udsprobe.model.report import (
    BusyTime,
    Connection,
    Cpu,
    CpuAffinity,
    CpuCgroup,
    CpuHolder,
    Fds,
    Hop,
    HostCpu,
    Latency,
    Loop,
    OwnRequests,
    Report,
    Requests,
    ServedBy,
    StageMeans,
    Waiting,
)
from udsprobe.rules import judged


def spinning() -> Report:
    """One thread that computes all the time, and two of its connections."""
    thread = ill.thread(user=0.93, sys_socket=0.05)
    return judged(
        ill.service(ill.served(4000, app=900.0), thread, connections=[ill.connection()] * 2)
    )


def warming_up() -> Report:
    """Three requests so far."""
    return judged(ill.service(ill.served(3)))


def healthy() -> Report:
    """Nothing wrong."""
    return judged(ill.service(ill.served(4000)))


def everything_at_once() -> Report:
    """The busiest report there can be: every section has rows, and most have trouble."""
    report = reports.measured()
    fds = Fds(1023, 1024, 18.0, 0.1, 3, {"EMFILE": 3})
    targets = [replace(row, fds=fds) if row.pid == 4711 else row for row in report.targets]
    upstream = [ill.upstream(900, 400.0, f"/run/pg-{n}.sock") for n in range(9)]
    hops = chain().hops
    return judged(
        replace(
            report,
            targets=targets,
            requests=replace(report.requests, upstream=upstream, hops=hops),
            connections=[full_connection()] * 3,
            connections_total=70,
        )
    )


def unreachable(address: str = reports.HOSTILE) -> Report:
    """A target that cannot connect to a socket with this name."""
    connect = reports.connect(address, calls=40, errors={"EACCES": 40})
    return judged(replace(ill.service(ill.served(4000)), connects=[connect]))


def full_connection() -> Connection:
    """A peer that has taken nothing for three seconds."""
    return replace(
        ill.connection(queued=106_496, slept=3),
        send_queue_max_bytes=212_000,
        recv_queue_bytes=0,
        recv_queue_max_bytes=4096,
        send_buffer_is_fixed=True,
        stalled_us=3_000_000.0,
    )


def chain() -> Requests:
    """nginx, with two workers, asks node; whose own requests overlap."""
    nginx = Hop(812, [812, 813], "nginx", "0.0.0.0:80", 4000, 1200.0, 300.0, 900.0, [4711])
    node = Hop(4711, [4711], "node", "/run/app.sock", 4000, 900.0, 0.0, 1900.0, [])
    served = reports.busy().requests.served
    return Requests(served, [], None, served_by=[node_served()], hops=[nginx, node])


def node_served() -> ServedBy:
    """What one process served, and what waits at it."""
    return ServedBy(
        pid=4711,
        comm="node",
        count=4000,
        rate_per_s=400.0,
        latency_us=Latency(4000, mean=900.0),
        stages_mean_us=StageMeans(app=850.0),
        app_time_pct=None,
        handed_over=0,
        pipelined=0,
        upstream=[OwnRequests("unix", "/run/pg.sock", None, 4000, 400.0)],
        in_progress=Waiting(2, 41_000.0),
        unread=Waiting(5, 12_000.0),
        asking=Waiting(1, 900.0),
    )


def with_cpu(report: Report) -> Report:
    """The host's CPUs full, a quota that throttles, and a loop that is away for long."""
    assert report.time is not None
    time = replace(
        report.time,
        loops=[Loop(4711, 4711, "node", 500, BusyTime(15_500.0, 65_100.0))],
        cpu_holders=[
            CpuHolder(99, "clang", False, 44_300.0, 86.1),
            CpuHolder(0, "idle", False, 7_170.0, 13.9),
        ],
    )
    quota = CpuCgroup("/app.slice", 2, 1.0, 100, 12, 480_000.0, 12.0, 0.98, [4711])
    limit = CpuAffinity([0, 1, 3], [2], 4.0, [], [4711])
    host = HostCpu(100.0, 90.0, 10.0, 0.0, 0.0, 2, 15)
    return replace(report, time=time, cpu=Cpu(host, [quota], 98.7, [limit]))


KINDS = [spinning, warming_up, healthy, everything_at_once, unreachable]
