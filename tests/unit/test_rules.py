"""Verdicts: every cause from the numbers that mean it, and no alarm from those that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from tests.unit import ill
from tests.unit.reports import (
    busy,
    connect,
    crowded,
    hostile,
    listener,
    measured,
    measurement,
    syscall,
    target,
)
from udsprobe.model.report import (
    Cpu,
    CpuAffinity,
    CpuCgroup,
    CpuHolder,
    CpuPriority,
    EventsLost,
    Fds,
    Finding,
    Hop,
    LoweredPriority,
    OwnRequests,
    Peer,
    ProcessTime,
    Report,
    Served,
    ServedBy,
    StageMeans,
    ThreadTime,
    Verdict,
    Waiting,
)
from udsprobe.rules import judged
from udsprobe.views.fields.verdict import said


def verdict(report: Report, slo_us: Optional[float] = None) -> Verdict:
    found = judged(report, slo_us).verdict
    assert found is not None
    return found


def test_a_moderate_load_is_healthy() -> None:
    found = verdict(ill.service(ill.served(5000)))
    assert found.cause == "healthy"
    assert [fact.metric for fact in found.evidence] == [
        "busy_share",
        "accept_queue_depth_max",
        "fds_open",
    ]


def test_without_the_time_of_threads_nothing_is_claimed() -> None:
    """A request of which only receive and send are known is not all transport."""
    blind = ill.service(ill.served(5000))
    off = measurement("thread_time", "off", "nobody tells")
    blind = replace(blind, time=None, probe=replace(blind.probe, measurements=[off]))
    found = verdict(blind, slo_us=1.0)
    assert (found.cause, found.confidence) == ("unknown", 0.0)
    assert (found.transport_share_pct, found.max_gain_pct) == (None, None)
    assert [fact.metric for fact in found.evidence] == ["accept_queue_depth_max", "fds_open"]


def test_transport_share_is_receive_send_and_delivery() -> None:
    """recv 3 + send 7, and the wake-up of 20 µs that a thread needs that is free."""
    idle = ill.service(ill.served(5000), ill.thread(sys_socket=0.005))
    found = verdict(idle)
    assert found.transport_share_pct == pytest.approx(100 * 30 / 130, abs=0.01)
    assert found.max_gain_pct == found.transport_share_pct


def test_the_rest_of_a_request_that_comes_late_is_its_client_s_time() -> None:
    """recv 500 ms, of which 100 requests have 0.1 s of socket calls: three times that is moving."""
    asleep = ill.thread(blocked_recv=0.98, sys_socket=0.1 / ill.SECONDS)
    found = verdict(ill.service(ill.served(100, recv=500_000.0, app=10.0), asleep), slo_us=1.0)
    assert found.cause == "healthy"
    assert "waiting for clients to send the rest of their requests" in found.summary
    assert found.transport_share_pct == pytest.approx(100 * 0.3 / 50, rel=0.02)


def test_what_a_loop_waits_for_is_no_delivery() -> None:
    spinning = ill.thread(user=0.98, sys_socket=0.01)
    found = verdict(ill.service(ill.served(900, recv_wait=35_000, app=5000), spinning))
    assert found.cause == "app-cpu"
    assert found.transport_share_pct is not None and found.transport_share_pct < 2
    assert found.subject == "node thread 4711"


@pytest.mark.parametrize(
    ("accepted", "now", "is_told"), [(0, 0, True), (11, 0, True), (16, 0, False), (16, 1, False)]
)
def test_one_of_several_workers_is_told_who_accepts(accepted: int, now: int, is_told: bool) -> None:
    """Of 32 connections."""
    row = replace(listener("127.0.0.1:80", "tcp", now), established=32, accepted=accepted)
    found = verdict(replace(ill.service(ill.served(3)), listeners=[row]))
    assert found.cause == "unknown"
    says = f"{32 - accepted} of 32 connections to tcp:127.0.0.1:80 were accepted by processes that"
    assert (says in found.summary) is is_told
    runs = [each.run for each in found.actions]
    assert ("sudo udsprobe attach --listener 127.0.0.1:80" in runs) is is_told


def test_too_little_traffic_is_unknown_and_says_what_is_missing() -> None:
    found = verdict(ill.service(ill.served(3)))
    assert (found.cause, found.confidence) == ("unknown", 0.0)
    assert "17 more" in found.summary


def test_few_but_slow_requests_are_enough() -> None:
    found = verdict(ill.service(ill.served(6, app=900_000, other=100.0)))
    assert found.cause == "app-blocked"


@pytest.mark.parametrize(
    ("part", "cause"),
    [
        ("lock", "app-blocked"),
        ("disk", "app-blocked"),
        ("poll", "app-blocked"),
        ("other", "app-blocked"),
    ],
)
def test_a_wait_that_is_most_of_the_request(part: str, cause: str) -> None:
    assert verdict(ill.service(ill.served(200, app=20_000, **{part: 95.0}, cpu=5.0))).cause == cause
    short = ill.service(ill.served(200, app=800, **{part: 95.0}, cpu=5.0))
    assert verdict(short).cause == "healthy"
    mostly_cpu = ill.service(ill.served(200, app=20_000, **{part: 30.0}, cpu=70.0))
    assert verdict(mostly_cpu).cause == "healthy"


def test_an_upstream_is_named_with_its_process() -> None:
    report = ill.service(
        ill.served(200, app=20_000, upstream=95.0, cpu=5.0),
        upstream=[replace(ill.upstream(200, 19_000), connections=4, busy_pct=20.0)],
    )
    found = verdict(report)
    assert (found.cause, found.subject) == ("upstream-wait", "unix:/run/pg.sock")
    assert "postgres 55" in found.summary
    assert found.actions[0].do == "sudo udsprobe attach --pid 55"


def test_a_saturated_thread_that_moves_bytes_is_the_transport() -> None:
    thread = ill.thread(user=0.2, sys_socket=0.7, sys_poll=0.05)
    found = verdict(ill.service(ill.served(90_000, app=3, recv_wait=80), thread))
    assert (found.cause, found.transport_bound) == ("transport", True)


@pytest.mark.parametrize(
    ("bytes_each", "says"), [(4_000, "with each call"), (1 << 20, "fewer bytes")]
)
def test_what_to_do_about_moving_bytes_is_for_calls_as_large_as_they_are(
    bytes_each: int, says: str
) -> None:
    thread = ill.thread(user=0.04, sys_socket=0.94)
    calls = [replace(syscall("sendto", calls=200), bytes=200 * bytes_each)]
    found = verdict(ill.service(ill.served(1000), thread, syscalls=calls))
    assert found.cause == "transport"
    assert says in found.actions[0].say


def sending_files(read_each: int, sent_each: int = 32_768) -> Report:
    """Of a server that copies, and is full with that."""
    thread = ill.thread(user=0.04, sys_socket=0.94)
    calls = [
        replace(syscall("write", "tcp", calls=400), bytes=400 * sent_each),
        replace(syscall("pread64", "other", calls=200), bytes=200 * read_each),
    ]
    report = ill.service(ill.served(1000), thread, syscalls=calls)
    return replace(report, targets=[target(4711, "nginx")])


def test_files_that_are_read_to_be_sent_need_not_be() -> None:
    report = sending_files(65_536)
    assert verdict(report).cause == "transport"
    assert "sendfile on" in verdict(report).actions[1].say
    busy = replace(report, time=ill.time_of(ill.thread(comm="nginx", user=0.9, sys_socket=0.08)))
    assert verdict(busy).cause == "app-cpu"
    assert "sendfile on" in verdict(busy).actions[-1].say
    # Less than half of what is sent; pieces of a configuration.
    for other in (sending_files(16_384), sending_files(600, sent_each=300)):
        assert not any("sendfile" in each.say for each in verdict(other).actions)


def test_threads_that_share_the_cpus_to_move_bytes_are_the_transport() -> None:
    threads = [ill.thread(4711 + n, sys_socket=0.2, runq=0.15) for n in range(4)]
    large = ill.served(400, recv=3_000, send=3_000, app=50, recv_wait=20)
    assert verdict(ill.service(large, *threads)).cause == "transport"
    assert verdict(ill.service(large, threads[0])).cause == "healthy"


def test_a_thread_that_does_not_serve_may_work() -> None:
    compaction = ill.thread(4713, "compaction", user=1.0, blocked_poll=0.0)
    serving = ill.thread(user=0.1, sys_socket=0.1)
    assert verdict(ill.service(ill.served(5000), serving, compaction)).cause == "healthy"
    assert verdict(ill.service(ill.served(0), serving, compaction)).cause == "app-cpu"


def test_a_pool_works_while_the_loop_waits() -> None:
    """Password hashing in a thread pool: the loop sleeps in its poller, the CPU is the cause."""
    pool = [ill.thread(5000 + n, "libuv-worker", user=0.95, blocked_poll=0.0) for n in range(2)]
    pool = [replace(each, share={**each.share, "blocked_lock": 0.05}) for each in pool]
    report = ill.service(
        ill.served(200, app=90_000, poll=98.0, cpu=2.0), ill.thread(sys_socket=0.02), *pool
    )
    assert verdict(report).cause == "app-cpu"


def test_a_burst_that_is_worked_off_is_healthy() -> None:
    bursty = ill.service(ill.served(2000, recv_wait=4000, app=100), ill.thread(user=0.2))
    assert verdict(bursty).cause == "healthy"


def test_a_slo_makes_a_slow_server_a_case() -> None:
    report = ill.service(ill.served(900, app=5000, p99=60_000))
    assert verdict(report).cause == "healthy"
    assert verdict(report, slo_us=50_000).cause == "app-cpu"
    assert verdict(report, slo_us=70_000).cause == "healthy"


def test_a_full_queue_names_what_binds() -> None:
    found = verdict(ill.service(ill.served(5000), listeners=[crowded()]))
    assert (found.cause, found.subject) == ("accept-queue-full", "unix:/run/app.sock")
    assert found.actions[0].run is not None
    assert "nsenter -t 4711 -n sysctl -w net.core.somaxconn=1024 && " in found.actions[0].run
    assert "s.listen(1024)" in found.actions[0].run
    unclamped = crowded()
    unclamped = replace(
        unclamped, backlog=replace(unclamped.backlog, clamped_by=None, equals_somaxconn=False)
    )
    found = verdict(ill.service(ill.served(5000), listeners=[unclamped]))
    listen_again, in_the_program = found.actions
    assert listen_again.run is not None and listen_again.undo is not None
    assert "sysctl" not in listen_again.run and "s.listen(1024)" in listen_again.run
    assert "s.listen(128)" in listen_again.undo
    assert in_the_program.run is None and "backlog: 1024 })" in in_the_program.say


def test_a_queue_that_is_full_because_a_thread_spins() -> None:
    spinning = ill.thread(user=0.99)
    always_full = replace(
        crowded(), depth=replace(crowded().depth, histogram={"127": 400, "128": 900})
    )
    report = judged(ill.service(ill.served(900, app=5000), spinning, listeners=[always_full]))
    assert report.verdict is not None and report.verdict.cause == "app-cpu"
    assert "accept queue" in report.verdict.summary
    assert [(f.id, f.severity) for f in report.findings or []] == [
        ("app-cpu", "critical"),
        ("accept-queue-full", "critical"),
    ]
    burst = ill.service(ill.served(900, app=5000), spinning, listeners=[crowded()])
    assert verdict(burst).cause == "accept-queue-full"


def test_nobody_accepts() -> None:
    starving = replace(
        ill.quiet_listener(), wait_us=ill.flat(320, 80_000.0), accepted_by_thread={"4711": 320}
    )
    found = verdict(
        ill.service(ill.served(320), ill.thread(blocked_other=0.9), listeners=[starving])
    )
    assert found.cause == "accept-starved"
    assert "asleep elsewhere" in found.summary


def test_of_several_processes_that_listen_there_the_one_that_does_not_accept_is_named() -> None:
    starving = replace(
        ill.quiet_listener(),
        wait_us=ill.flat(320, 80_000.0),
        pids=[4712],
        accepted_by_thread={"4712": 320},
    )
    other = replace(ill.thread(4712, blocked_lock=1.0), pid=4712)
    report = ill.service(ill.served(320), ill.thread(), other, listeners=[starving])
    found = verdict(replace(report, targets=[*report.targets, target(4712, "node")]))
    assert found.cause == "accept-starved"
    assert "the threads of node 4712 spend 100 % of the time waiting for a lock" in found.summary


def seats_taken(living_s: float) -> Report:
    """A thread for each of 40 connections, which wait 1 s for a seat; 4 threads live still."""
    row = ill.thread(sys_socket=0.02, blocked_recv=0.98)
    threads = [replace(row, tid=4720 + n, observed_s=living_s) for n in range(4)]
    starving = replace(ill.quiet_listener(), accepted=40, wait_us=ill.flat(40, 1_000_000.0))
    waiting = ill.served(400, before=100_000.0, app=200, lock=60.0, cpu=40.0)
    report = ill.service(waiting, *threads, listeners=[starving])
    assert report.time is not None
    return replace(report, time=replace(report.time, total_s=40.0, total=row.share))


def test_threads_that_live_only_while_they_work_are_no_limit() -> None:
    report = seats_taken(living_s=5.0)
    assert report.time is not None
    # The only one that lived on hands out connections, and moves no bytes.
    acceptor = ill.thread(blocked_lock=1.0)
    gone = {**dict.fromkeys(acceptor.share, 0.0), "user": 0.8, "sys_socket": 0.2}
    spent = {name: 10 * acceptor.share[name] + 0.5 * gone[name] for name in gone}
    total = {name: seconds / 10.5 for name, seconds in spent.items()}
    found = verdict(replace(report, time=replace(ill.time_of(acceptor), total_s=10.5, total=total)))
    assert found.cause == "accept-starved"
    assert found.transport_share_pct is not None and found.transport_share_pct < 1


def test_threads_that_ended_were_there_for_requests_too() -> None:
    found = verdict(seats_taken(living_s=5.0))
    assert found.cause == "accept-starved"
    assert found.transport_share_pct is not None and found.transport_share_pct < 1
    # Those that live began a moment ago: they say nothing of who was busy before.
    assert verdict(seats_taken(living_s=0.01)).cause == "accept-starved"


def test_connections_that_nobody_ever_accepts() -> None:
    depth = replace(ill.quiet_listener().depth, now=7)
    stuck = replace(ill.quiet_listener(), accepted=0, wait_us=ill.flat(0, 0), depth=depth)
    found = verdict(ill.service(ill.served(0), listeners=[stuck]))
    assert found.cause == "accept-starved"
    assert found.evidence[-1].says.endswith(": not full")


def test_a_queue_at_its_limit_is_not_said_to_have_room() -> None:
    """It was full when we came, and nobody came or went since."""
    quiet = ill.quiet_listener()
    full = replace(quiet.depth, now=quiet.depth.limit, max=quiet.depth.limit, histogram={})
    stuck = replace(quiet, accepted=0, established=0, depth=full)
    found = verdict(ill.service(ill.served(0), listeners=[stuck]))
    limit = quiet.depth.limit
    assert found.evidence[-1].says == f"at most {limit} queued, the limit is {limit}: full"
    assert all("room" not in action.why for action in found.actions)
    blocked = replace(quiet.blocked_connects, count=0, waiting_now=20)
    waiting = replace(stuck, blocked_connects=blocked)
    found = verdict(ill.service(ill.served(0), listeners=[waiting]))
    assert (found.cause, found.harm.count) == ("accept-starved", limit + 20)


@pytest.mark.parametrize("error", ["ENOENT", "ECONNREFUSED", "EACCES"])
def test_connects_that_fail(error: str) -> None:
    row = connect("/run/pg.sock", calls=40, errors={error: 40})
    found = verdict(replace(ill.service(ill.served(5000)), connects=[row]))
    assert (found.cause, found.subject) == ("connect-failing", "unix:/run/pg.sock")
    assert error in found.summary
    twice = connect("/run/pg.sock", calls=2, errors={error: 2})
    assert verdict(replace(ill.service(ill.served(5000)), connects=[twice])).cause == "healthy"


def test_a_proxy_that_sleeps_before_it_tries_again_makes_refusals_no_less_sure() -> None:
    row = connect("/run/pg.sock", calls=88, errors={"ECONNREFUSED": 88})
    waits = ill.service(ill.served(84, app=255_000, poll=98.0, cpu=2.0))
    assert verdict(waits).cause == "app-blocked"
    found = verdict(replace(waits, connects=[row]))
    assert found.cause == "connect-failing" and found.confidence >= 0.95


def test_a_refusal_in_the_background_counts() -> None:
    row = connect("127.0.0.1:5432", "tcp", calls=40, errors={"EINPROGRESS": 40})
    report = ill.service(ill.served(5000))
    assert verdict(replace(report, connects=[row])).cause == "healthy"
    failed = replace(row, failed_in_background={"ECONNREFUSED": 40})
    assert verdict(replace(report, connects=[failed])).cause == "connect-failing"


@pytest.mark.parametrize(
    "address", ["/var/run/nscd/socket", "/dev/log", "/run/uuidd/request", "/var/lib/sss/pipes/nss"]
)
def test_what_is_asked_for_on_the_off_chance_is_no_illness(address: str) -> None:
    row = connect(address, calls=40, errors={"ENOENT": 40})
    report = judged(replace(ill.service(ill.served(5000)), connects=[row]))
    assert report.verdict is not None and report.verdict.cause == "healthy"
    assert [(f.id, f.severity) for f in report.findings or []] == [("connect-failing", "info")]


def test_localhost_that_answers_on_one_of_its_addresses() -> None:
    rows = [
        connect("[::1]:8080", "tcp", calls=40, errors={"ECONNREFUSED": 40}),
        connect("127.0.0.1:8080", "tcp", calls=40, errors={"EINPROGRESS": 40}),
    ]
    assert verdict(replace(ill.service(ill.served(5000)), connects=rows)).cause == "healthy"


def test_no_descriptor_left_is_the_root_of_all_else() -> None:
    fds = Fds(1024, 1024, exhausted=12, exhausted_by_errno={"EMFILE": 12})
    report = ill.service(ill.served(5000), ill.thread(user=0.99), listeners=[crowded()], fds=fds)
    found = verdict(report)
    assert (found.cause, found.subject) == ("fd-limit", "node 4711")
    assert "1,024 of 1,024" in found.summary


def test_descriptors_that_run_out() -> None:
    leaking = Fds(980, 1024, growth_per_s=2.0, full_in_s=22.0)
    found = verdict(ill.service(ill.served(5000), fds=leaking))
    assert found.cause == "fd-limit"
    assert "22 s" in found.summary
    steady = judged(ill.service(ill.served(5000), fds=Fds(980, 1024)))
    assert steady.verdict is not None and steady.verdict.cause == "healthy"
    assert [(f.id, f.severity) for f in steady.findings or []] == [("fd-limit", "warning")]


def waiting_for_a_cpu(holder: CpuHolder, **extra: object) -> Report:
    """Half of a thread's time, and most of its requests'."""
    report = ill.service(
        ill.served(900, app=9000, runq=90.0, cpu=10.0), ill.thread(user=0.4, runq=0.5)
    )
    assert report.time is not None
    return replace(report, time=replace(report.time, cpu_holders=[holder]), **extra)  # type: ignore[arg-type]


def test_who_holds_the_cpu_is_named() -> None:
    found = verdict(waiting_for_a_cpu(CpuHolder(666, "ffmpeg", False, 4e6, 90.0)))
    assert (found.cause, found.subject) == ("cpu-contention", "ffmpeg 666")
    assert found.actions[0].do.startswith("sudo renice -n 19 ")


def test_short_lived_processes_hold_the_cpu_together() -> None:
    found = verdict(waiting_for_a_cpu(CpuHolder(0, None, False, 4e6, 90.0)))
    assert (found.cause, found.subject) == ("cpu-contention", "short-lived processes")
    assert found.actions[0].do.startswith("ps ")


def test_waiting_for_its_own_threads_is_its_own_demand() -> None:
    own = CpuHolder(4711, "node", True, 4e6, 90.0)
    assert verdict(waiting_for_a_cpu(own)).cause == "app-cpu"
    client = ill.connection(peer=Peer(99, "wrk", None))
    by_client = CpuHolder(99, "wrk", False, 4e6, 90.0)
    assert verdict(waiting_for_a_cpu(by_client, connections=[client])).cause == "app-cpu"


def test_a_quota_is_named_whoever_runs_meanwhile() -> None:
    group = CpuCgroup("/sys/fs/cgroup/web", 2, 0.5, 100, 80, 5e6, 80.0, 0.5, [4711])
    idle = CpuHolder(0, "idle", False, 4e6, 90.0)
    found = verdict(waiting_for_a_cpu(idle, cpu=Cpu(None, [group], None)))
    assert (found.cause, found.subject) == ("cpu-contention", "/sys/fs/cgroup/web")
    assert "0.5 CPUs" in found.summary


def limited(idle_pct: float, holder: CpuHolder, cpusets: Sequence[str] = ()) -> Report:
    limit = CpuAffinity([0], [1], idle_pct, list(cpusets), [4711])
    return waiting_for_a_cpu(holder, cpu=Cpu(None, [], None, [limit]))


def test_cpus_that_it_may_not_use_are_idle() -> None:
    """Even where its own threads are those that it waits for."""
    own = CpuHolder(4711, "node", True, 4e6, 90.0)
    found = verdict(limited(97.0, own))
    assert (found.cause, found.subject) == ("cpu-contention", "node")
    assert "waits for CPU 0, and may not run elsewhere: CPU 1 is idle 97 %" in found.summary
    (act,) = found.actions
    assert act.run == "for pid in 4711; do sudo taskset -apc 0-1 $pid; done"
    assert act.undo == "for pid in 4711; do sudo taskset -apc 0 $pid; done"
    # Where the others are busy, too, it is its own demand as ever.
    assert verdict(limited(20.0, own)).cause == "app-cpu"


@pytest.mark.parametrize(
    ("language", "idle_pct", "told"), [("go", 97.0, True), ("go", 20.0, False), (None, 97.0, False)]
)
def test_go_computes_on_the_cpus_that_it_may_use(
    language: Optional[str], idle_pct: float, told: bool
) -> None:
    """Its threads are no more than these, so none of them waits for another one."""
    limit = CpuAffinity([0], [1], idle_pct, [], [4711])
    report = ill.service(ill.served(4000, app=2000.0), ill.thread(user=0.97, comm="api"))
    target = replace(report.targets[0], comm="api", cmdline="/bin/api", language=language)
    found = verdict(replace(report, targets=[target], cpu=Cpu(None, [], None, [limit])))
    assert found.cause == "app-cpu"
    assert any("start it without its limit to CPU 0" in each.say for each in found.actions) == told


@pytest.mark.parametrize("activity", ["blocked_poll", "blocked_lock"])
def test_what_goroutines_wait_for_the_kernel_does_not_see(activity: str) -> None:
    """The thread that a goroutine leaves sleeps for the scheduler: in a futex, or the poller."""
    part = {"blocked_poll": "poll", "blocked_lock": "lock"}[activity]
    asleep = ill.thread(comm="api", **{"blocked_poll": 0.0, activity: 0.99})
    report = ill.service(ill.served(400, app=20_000.0, **{part: 99}), asleep)
    target = replace(report.targets[0], comm="api", cmdline="/bin/api", language="go")
    found = verdict(replace(report, targets=[target]))
    assert found.cause == "app-blocked" and found.subject == "a timer, a lock or a channel"
    assert "goroutines of api wait for a timer, a lock or a channel while" in found.summary
    assert "/debug/pprof/goroutine" in found.actions[0].say
    short = ill.service(ill.served(400, app=800.0, **{part: 99}), asleep)
    assert "% of it waits of its goroutines." in verdict(replace(short, targets=[target])).summary


def test_a_cpuset_is_widened_before_a_stranger_is_slowed_down() -> None:
    stranger = CpuHolder(666, "ffmpeg", False, 4e6, 90.0)
    file = "/sys/fs/cgroup/web.slice/cpuset.cpus"
    found = verdict(limited(97.0, stranger, cpusets=[file]))
    assert (found.cause, found.subject) == ("cpu-contention", "ffmpeg 666")
    first, second = found.actions
    assert first.run == f"echo 0-1 | sudo tee {file}"
    assert second.run is not None and "renice" in second.run


@pytest.mark.parametrize(
    ("priority", "run"),
    [
        (
            CpuPriority("nice", None, 0, [LoweredPriority(4711, None, 19)]),
            'sudo renice -n 0 -p $(ps -L -o lwp= -p "4711")',
        ),
        (
            CpuPriority(
                "session",
                "/proc/666/autogroup",
                0,
                [LoweredPriority(4711, "/proc/4711/autogroup", 10)],
            ),
            "echo 0 | sudo tee /proc/4711/autogroup",
        ),
        (
            CpuPriority(
                "cgroup", "/c/user/cpu.weight", 100, [LoweredPriority(4711, "/c/web/cpu.weight", 1)]
            ),
            "echo 100 | sudo tee /c/web/cpu.weight",
        ),
    ],
)
def test_a_target_of_low_priority_gets_the_usual_one_first(priority: CpuPriority, run: str) -> None:
    found = verdict(
        waiting_for_a_cpu(CpuHolder(666, "ffmpeg", False, 4e6, 90.0, priority=priority))
    )
    assert (found.cause, found.actions[0].run) == ("cpu-contention", run)
    assert "gets no CPU: " in found.summary and "that of ffmpeg 666" in found.summary


def test_a_low_priority_matters_only_beside_a_higher_one() -> None:
    alike = CpuPriority("nice", None, 19, [LoweredPriority(4711, None, 19)])
    found = verdict(waiting_for_a_cpu(CpuHolder(666, "ffmpeg", False, 4e6, 90.0, priority=alike)))
    assert "ffmpeg 666 holds it" in found.summary


def test_requests_in_bursts_queue_for_a_thread_that_is_not_always_busy() -> None:
    """Measured: a loop 66 % busy, 5 ms of CPU time a request, which is read 24 ms late."""
    requests = ill.served(1300, recv_wait=24_000, app=41_000)
    found = verdict(ill.service(requests, ill.thread(user=0.66)))
    assert found.cause == "app-cpu"
    assert "requests wait 24 ms on average before they are read" in found.evidence[0].says
    # The same wait before a thread that is mostly idle: a burst now and then.
    assert verdict(ill.service(requests, ill.thread(user=0.3))).cause == "healthy"
    # A queue of one.
    short = ill.served(1300, recv_wait=5_000, app=41_000)
    assert verdict(ill.service(short, ill.thread(user=0.66))).cause == "healthy"


def test_a_thread_without_time_left_whose_time_has_several_uses_is_full() -> None:
    """As Redis that syncs its log at each turn: 0.9 ms a request, half of it queued."""
    requests = ill.served(40_000, recv_wait=400, app=500, disk=50.0, cpu=40.0, runq=10.0)
    full = ill.thread(user=0.35, runq=0.15, blocked_disk=0.45, blocked_poll=0.05)
    found = verdict(ill.service(requests, full))
    assert (found.cause, found.harm.kind) == ("app-blocked", "slow")
    assert "95 % of the time" in found.evidence[0].says
    # One client that asks again as soon as it has its reply: nobody queues.
    alone = ill.served(40_000, recv_wait=10, app=900, disk=50.0, cpu=40.0, runq=10.0)
    assert verdict(ill.service(alone, full)).cause == "healthy"
    # The same queue before a thread that has time: a burst now and then.
    idle = ill.thread(user=0.15, runq=0.05, blocked_disk=0.3, blocked_poll=0.5)
    assert verdict(ill.service(requests, idle)).cause == "healthy"


def test_one_slow_request_in_twenty_stalls_the_rest() -> None:
    requests = ill.served(900, app=5000)
    stages = replace(
        requests.stages_us,
        app=replace(ill.flat(900, 5000.0), p50=100.0, p99=100_000.0),
        recv_wait=replace(ill.flat(900, 17_000.0), p50=200.0, p99=90_000.0),
    )
    latency = replace(requests.latency_us, mean=22_000.0, p50=400.0, p99=100_000.0)
    stalling = replace(requests, stages_us=stages, latency_us=latency)
    assert verdict(ill.service(stalling, ill.thread(user=0.3))).cause == "app-cpu"


def test_a_loop_that_sleeps_outside_of_requests() -> None:
    """`time.sleep()` in a timer of an event loop: requests wait before they are read."""
    report = ill.service(
        ill.served(900, recv_wait=40_000), ill.thread(user=0.05, blocked_other=0.6)
    )
    assert verdict(report).cause == "app-blocked"


def test_a_reader_that_does_not_read() -> None:
    rows = [ill.connection(queued=212_992, sent=0), ill.connection()]
    found = verdict(ill.service(ill.served(5000), connections=rows))
    assert (found.cause, found.subject) == ("send-blocked", "reader 99")
    assert "212,992 of 212,992 bytes" in found.summary


def test_a_reader_that_is_only_slower_than_the_sender() -> None:
    """A gigabyte in ten seconds through a buffer that is full whenever one looks."""
    streaming = ill.connection(queued=212_992, sent=1_000_000_000, slept=9000, eagain=500)
    assert verdict(ill.service(ill.served(5000), connections=[streaming])).cause == "healthy"


def test_senders_that_sleep_make_a_slow_request() -> None:
    report = ill.service(
        ill.served(200, send=30_000),
        ill.thread(blocked_send=0.6),
        connections=[ill.connection(queued=100, sent=500_000, slept=200)],
    )
    assert verdict(report).cause == "send-blocked"


def test_a_buffer_that_a_program_made_too_small() -> None:
    quick = ill.connection(sent=1_000_000_000, slept=9000, buffer=9216)
    quick = replace(quick, requests=1000)
    sleeping = ill.service(ill.served(1000, send=8000), ill.thread(blocked_send=0.8))
    found = verdict(replace(sleeping, connections=[quick]))
    assert found.cause in ("transport", "healthy")
    fixed = replace(quick, send_buffer_is_fixed=True)
    found = verdict(replace(sleeping, connections=[fixed]))
    assert found.cause == "send-blocked"
    assert "SO_SNDBUF" in found.summary


def test_a_log_that_takes_no_more() -> None:
    """Asleep in sends that are no replies: for the reader of a datagram socket."""
    app = ill.served(200, app=50_000, upstream=99.0, cpu=1.0)
    call = replace(syscall("sendto", calls=200), transport="unix", socket_type="dgram")
    slow = replace(call, wall_us=9.9e6, slow_us=9.9e6)
    report = ill.service(app, ill.thread(blocked_send=0.99, user=0.01), syscalls=[slow])
    found = verdict(report)
    assert found.cause == "send-blocked"
    assert "datagram" in found.summary and "sendto" in found.summary
    quick = replace(call, wall_us=1e4, slow_us=0.0)
    asks = ill.service(app, ill.thread(blocked_recv=0.99, user=0.01), syscalls=[quick])
    assert verdict(asks).cause == "upstream-wait"


def test_clients_that_are_slow_in_connect_while_there_is_room() -> None:
    """On a busy host they may be without a CPU inside the call."""
    quiet = ill.quiet_listener()
    assert quiet.blocked_connects is not None
    slow = replace(quiet.blocked_connects, count=9, wait_us=ill.flat(9, 5000), waiting_now=3)
    report = ill.service(ill.served(400), listeners=[replace(quiet, blocked_connects=slow)])
    assert verdict(report).cause == "healthy"
    full = replace(quiet.depth, max=quiet.depth.limit)
    report = ill.service(
        ill.served(400), listeners=[replace(quiet, blocked_connects=slow, depth=full)]
    )
    assert verdict(report).cause == "accept-queue-full"


def contended(runq_pct: float, runq_share: float) -> Report:
    """Requests of 20 ms, that much of it without a CPU; and that much of the thread's time."""
    waits = ill.thread(runq=runq_share, user=0.1)
    app = ill.served(200, app=20_000, runq=runq_pct, cpu=100 - runq_pct)
    return ill.service(app, waits)


def test_waiting_for_cpus_that_others_hold() -> None:
    assert verdict(contended(95.0, 0.8)).cause == "cpu-contention"
    assert verdict(contended(40.0, 0.08)).cause == "cpu-contention"
    assert verdict(contended(20.0, 0.04)).cause == "healthy"


def test_few_requests_that_wait_long_for_a_cpu() -> None:
    """The mean is short; one in a hundred stood behind somebody's whole slice."""
    waits = ill.thread(runq=0.5, user=0.2)
    app = ill.served(2000, app=400, runq=40.0, cpu=60.0)
    assert verdict(ill.service(app, waits)).cause == "healthy"
    assert verdict(ill.service(replace_p99(app, 4900.0), waits)).cause == "cpu-contention"


def test_a_tail_is_a_cause_where_it_is_half_of_all_request_time() -> None:
    """nginx before a quick app: one in a hundred takes 5 ms, of 400 µs on average."""
    asks = [ill.upstream(2000, 300)]
    few = replace_p99(ill.served(2000, app=380, upstream=80.0, cpu=20.0), 5000.0)
    assert few.latency_us is not None
    usual = replace(few, latency_us=replace(few.latency_us, p50=350.0))
    assert verdict(ill.service(usual, upstream=asks)).cause == "healthy"
    assert verdict(ill.service(few, upstream=asks)).cause == "upstream-wait"


def test_every_request_that_waits_a_little_for_a_cpu() -> None:
    waits = ill.thread(runq=0.5, user=0.2)
    app = ill.served(2000, app=1900, runq=39.0, cpu=61.0)
    assert verdict(ill.service(app, waits)).cause == "cpu-contention"


def replace_p99(served: Served, p99_us: float) -> Served:
    assert served.latency_us is not None
    return replace(served, latency_us=replace(served.latency_us, p50=170.0, p99=p99_us))


def test_one_stall_that_a_burst_stood_behind_is_no_contention() -> None:
    assert verdict(contended(95.0, 0.01)).cause == "healthy"


def forking(ended_cpu_s: float, threads: int = 1, moving: float = 0.1) -> Report:
    """200 connections with two requests each; threads that ended ran for that long, and moved
    bytes in a part of it."""
    stayed = [ill.thread(tid=4711 + n, user=0.05 if n < 1 else 0.02) for n in range(threads)]
    listening = replace(ill.quiet_listener(), established=200, accepted=200)
    report = ill.service(ill.served(400, app=1000), *stayed, listeners=[listening])
    assert report.time is not None
    spent_s = {name: share * report.time.total_s for name, share in report.time.total.items()}
    spent_s["user"] += ended_cpu_s * (1 - moving)
    spent_s["sys_socket"] += ended_cpu_s * moving
    total_s = sum(spent_s.values())
    total = {name: value / total_s for name, value in spent_s.items()}
    return replace(report, time=replace(report.time, total_s=total_s, total=total))


def test_a_process_for_each_connection_is_what_connections_cost() -> None:
    found = verdict(forking(2.0))
    assert found.cause == "connection-churn"
    (cost,) = [each for each in found.evidence if each.metric == "made_for_connections_cpus"]
    # 400 requests took 0.4 s of the 2 s that processes which ended ran for.
    assert cost.value == pytest.approx(0.16)
    assert verdict(forking(0.5)).cause == "healthy"
    # Threads that are not listed may have lived all the time.
    assert verdict(forking(2.0, threads=50)).cause == "healthy"
    # What has no call on a socket is made for requests, as CGI is.
    assert verdict(forking(2.0, moving=0.0)).cause == "healthy"


def backends(
    number: int = 16, **parts: float
) -> Tuple[Report, Dict[str, float], List[ProcessTime]]:
    """So many of one thread each on two CPUs: the report, what none of them does, and they."""
    report = ill.service(ill.served(40_000, app=3_000, cpu=100.0))
    assert report.time is not None
    rest = dict.fromkeys(report.time.total, 0.0)
    share = {**rest, **parts, "blocked_lock": 1 - sum(parts.values())}
    crew = [ProcessTime(5000 + n, "postgres", 1, ill.SECONDS, share) for n in range(number)]
    threads = [ThreadTime(p.pid, p.pid, "postgres", p.observed_s, share) for p in crew]
    time = replace(report.time, threads=threads, processes=crew, total=share)
    held = [CpuHolder(5000, "postgres", True, 9e6, 100.0)]
    time = replace(time, total_s=number * ill.SECONDS, busiest=threads[0], cpu_holders=held)
    targets = [target(each.pid, "postgres") for each in crew]
    host = replace(report.host, cpus=2)
    return replace(report, time=time, targets=targets, host=host), rest, crew


def test_processes_that_keep_all_cpus_busy_together_are_not_one_of_them() -> None:
    """Of 16 backends none has more than an eighth of a CPU."""
    report, rest, crew = backends(user=0.12, runq=0.05)
    found = verdict(report)
    assert found.cause == "app-cpu"
    assert "postgres keeps all CPUs that it may use 100 % busy" in found.summary
    assert found.subject == "postgres"
    assert "GROUP BY" in (found.actions[0].run or "")
    # One process that has most of it is named.
    alone = replace(crew[0], share={**rest, "user": 0.9, "runq": 0.1}, observed_s=2 * ill.SECONDS)
    assert report.time is not None
    one = replace(report, time=replace(report.time, processes=[alone, *crew[1:3]]))
    assert "postgres 5000 is" in verdict(one).summary


def test_workers_that_wait_for_each_other_s_cpus_keep_all_of_them_busy() -> None:
    """Each is busy all the time, and another one more would wait as the others do."""
    report, _, _ = backends(6, user=0.3, sys_socket=0.03, runq=0.67)
    found = verdict(report)
    assert "postgres keeps all CPUs that it may use 100 % busy" in found.summary


def test_a_herd_that_is_woken_at_once_does_not_keep_all_cpus_busy() -> None:
    """Each waits for those before it, and all of them run for a quarter of the time there is."""
    report, _, _ = backends(user=0.03, runq=0.17)
    assert "keeps all CPUs" not in verdict(report).summary


def churning(accepted: int, cpu_us: float) -> Report:
    """A connection for each request, whose accept4() took that much CPU time in all."""
    listening = replace(ill.quiet_listener(), established=accepted, accepted=accepted)
    accepting = replace(syscall("accept4", calls=accepted), cpu_us=cpu_us)
    saturated = ill.thread(user=0.9, sys_socket=0.08)
    requests = ill.served(accepted, recv_wait=100)
    return ill.service(requests, saturated, listeners=[listening], syscalls=[accepting])


def test_connections_that_could_be_kept() -> None:
    assert verdict(churning(4000, 1e6)).cause == "connection-churn"
    assert verdict(churning(400, 1e6)).cause == "app-cpu"


def test_a_client_whose_connections_are_as_short_as_its_requests_is_named() -> None:
    """None of them is open when they are listed; requests that were kept tell who asked."""
    report = churning(4000, 1e6)
    kept = [ill.kept_request(tid=4711)]
    asked = replace(report, requests=replace(report.requests, slowest=kept, sampled=[]))
    assert "a client opens a connection for each request" in verdict(report).summary
    found = verdict(asked)
    assert "nginx 33 opens a connection for each request" in found.summary
    assert "keepalive 64;" in found.actions[0].say


def test_who_keeps_its_connections_is_not_said_to_open_them() -> None:
    """Two programs ask the same server: one with a pool, one with a connection each time."""
    report = churning(4000, 1e6)
    pool = [
        replace(ill.connection(peer=Peer(34, "uvicorn", f"127.0.0.1:{port}")), transport="tcp")
        for port in range(50_000, 50_005)
    ]
    kept = ill.kept_request(tid=4711)
    opened = replace(kept, stages_us=StageMeans(accept_wait=40.0))
    of_pool = replace(kept, peer=Peer(34, "uvicorn", "127.0.0.1:50000"))
    slowest = [of_pool, of_pool, of_pool, opened]
    asked = replace(report, requests=replace(report.requests, slowest=slowest, sampled=[]))
    found = verdict(replace(asked, connections=pool))
    assert "nginx 33 opens a connection for each request" in found.summary


def test_a_client_is_one_whatever_the_ports_of_its_connections() -> None:
    report = churning(4000, 1e6)
    ends = [Peer(33, "nginx", "127.0.0.1:50000"), Peer(34, "app", "127.0.0.1:50001")]
    ends += [Peer(34, "app", "127.0.0.1:50002")]
    rows = [replace(ill.connection(peer=peer), transport="tcp") for peer in ends]
    assert "app 34 opens a connection" in verdict(replace(report, connections=rows)).summary


def test_requests_that_take_the_time_outweigh_their_connections() -> None:
    report = judged(churning(4000, 1e5))
    assert report.verdict is not None and report.verdict.cause == "app-cpu"
    assert "connection-churn" in [each.id for each in report.findings or []]
    # What is outweighed is no rival: that many connections make nothing less sure.
    assert report.verdict.confidence >= 0.95


def nagled(held: Optional[int], requests: int) -> List[str]:
    row = replace(ill.connection(), transport="tcp", requests=requests, sends_held=held)
    report = judged(ill.service(ill.served(5000), connections=[row]))
    return [each.id for each in report.findings or []]


def test_sends_that_nagle_s_algorithm_keeps_back_are_a_finding() -> None:
    assert nagled(500, 5000) == ["nagle"]
    assert nagled(500, 0) == ["nagle"]
    assert nagled(499, 5000) == nagled(19, 19) == nagled(0, 0) == nagled(None, 5000) == []


def test_losses_are_a_finding() -> None:
    report = ill.service(ill.served(5000))
    lossy = replace(report, probe=replace(report.probe, turned_away=3))
    assert [f.id for f in judged(lossy).findings or []] == ["measurement-incomplete"]
    assert judged(report).findings == []


def incomplete(**probe: Any) -> Finding:
    report = ill.service(ill.served(5000))
    lossy = replace(report, probe=replace(report.probe, **probe))
    (found,) = judged(lossy).findings or []
    assert found.id == "measurement-incomplete"
    return found


def test_a_loss_too_small_to_change_the_verdict_is_said() -> None:
    few = EventsLost(map_full=0, ring_full=0, missed=1)
    found = incomplete(
        events_seen=100_000,
        events_counted=99_999,
        events_lost=few,
        missed_by_program={"sys_exit": 1, "sched_switch": 4},
    )
    assert found.severity == "info"
    assert {fact.metric: fact.value for fact in found.evidence} == {
        "events_lost": 1,
        "missed_runs": 4,
    }


def test_a_full_map_is_named() -> None:
    found = incomplete(turned_away=7, turned_away_by_map={"connections": 5, "upstreams": 2})
    assert found.severity == "warning"
    assert "(connections 5, upstreams 2)" in found.evidence[0].says


def test_an_account_that_does_not_add_up_is_said() -> None:
    none = EventsLost(map_full=0, ring_full=0, missed=0)
    found = incomplete(events_seen=1000, events_counted=997, events_lost=none)
    assert found.severity == "warning"
    assert [(fact.metric, fact.value) for fact in found.evidence] == [("events_unaccounted", 3)]


def test_arrivals_that_were_skipped_are_said_when_they_are_many() -> None:
    found = incomplete(events_seen=100, events_counted=100, missed_by_program={"sk_data_ready": 9})
    assert [fact.metric for fact in found.evidence] == ["missed_runs"]


@pytest.mark.parametrize("report", [busy(), busy(0.0, 0.0), measured(), hostile()])
def test_any_report_can_be_judged(report: Report) -> None:
    found = verdict(report)
    assert found.summary.endswith(".")
    assert 0 <= found.confidence <= 1
    assert judged(judged(report)) == judged(report)


def hanging(waiting: str, served_count: int = 0, **share: float) -> Report:
    """Three requests that wait for five seconds, in one of the three ways."""
    none = Waiting(0, None)
    row = ServedBy(
        pid=4711,
        comm="node",
        count=served_count,
        rate_per_s=0.0,
        latency_us=ill.flat(served_count, 100.0),
        stages_mean_us=StageMeans(),
        app_time_pct=None,
        handed_over=0,
        pipelined=0,
        upstream=[],
        in_progress=none,
        unread=none,
        asking=none,
    )
    row = replace(row, **{waiting: Waiting(3, 5e6)})  # type: ignore[arg-type]
    if waiting == "asking":
        row = replace(row, in_progress=Waiting(3, 5e6))
    report = ill.service(ill.served(served_count), ill.thread(**share))
    return replace(report, requests=replace(report.requests, served_by=[row]))


def test_requests_that_nobody_answers() -> None:
    assert verdict(hanging("in_progress", blocked_lock=1.0)).cause == "app-blocked"
    assert verdict(hanging("in_progress")).cause == "unknown"
    assert verdict(hanging("unread", blocked_other=1.0)).cause == "app-blocked"
    assert verdict(hanging("unread")).cause == "app-blocked"
    assert verdict(hanging("asking")).cause == "upstream-wait"
    assert verdict(hanging("unread", 5000)).cause == "healthy"


@pytest.mark.parametrize(
    ("comm", "cmdline", "runs"),
    [
        ("beam.smp", "beam.smp -s rabbit boot", "check_local_alarms"),
        ("python3", "python3 app.py", "py-spy dump --pid 4711"),
        ("daemon", "daemon", "/proc/4711/task/*/wchan"),
    ],
)
def test_who_does_not_read_is_looked_at_as_its_server_is(
    comm: str, cmdline: str, runs: str
) -> None:
    report = hanging("unread", blocked_other=1.0)
    own = replace(report.targets[0], comm=comm, cmdline=cmdline)
    found = verdict(replace(report, targets=[own]))
    assert found.cause == "app-blocked" and runs in (found.actions[0].run or "")


def chain(inner: float) -> Report:
    """nginx 812 waits for node 4711, which takes `inner` µs for each request on its CPU."""
    outer_row, inner_row = (
        ServedBy(
            pid=pid,
            comm=comm,
            count=2000,
            rate_per_s=200.0,
            latency_us=ill.flat(2000, mean),
            stages_mean_us=StageMeans(None, 5.0, 2.0, mean - 10, 3.0),
            app_time_pct={**dict.fromkeys(("runq", "lock", "disk", "poll", "other"), 0.0), **parts},
            handed_over=0,
            pipelined=0,
            upstream=asked,
            in_progress=Waiting(0, None),
            unread=Waiting(0, None),
            asking=Waiting(0, None),
        )
        for pid, comm, mean, parts, asked in (
            (
                812,
                "nginx",
                inner + 100,
                {"cpu": 1.0, "upstream": 99.0},
                [OwnRequests("unix", "/run/a", Peer(4711, "node"), 2000, inner + 50)],
            ),
            (4711, "node", inner, {"cpu": 100.0, "upstream": 0.0}, []),
        )
    )
    hops = [
        Hop(812, [812], "nginx", "0.0.0.0:80", 2000, inner + 100, 50.0, inner + 50, [4711]),
        Hop(4711, [4711], "node", "/run/a", 2000, inner, inner, 0.0, []),
    ]
    busy_node = ill.thread(user=0.97)
    idle_nginx = replace(ill.thread(812, "nginx", user=0.05), pid=812)
    report = ill.service(ill.served(4000, app=inner), busy_node, idle_nginx)
    assert report.time is not None
    processes = [
        ProcessTime(812, "nginx", 1, 10.0, idle_nginx.share),
        ProcessTime(4711, "node", 1, 10.0, busy_node.share),
    ]
    return replace(
        report,
        time=replace(report.time, processes=processes),
        requests=replace(report.requests, served_by=[outer_row, inner_row], hops=hops),
    )


def test_who_waits_for_another_target_waits_for_its_illness() -> None:
    found = verdict(chain(5000.0))
    assert (found.cause, found.subject) == ("app-cpu", "node thread 4711")
    assert "upstream-wait" in [each.cause for each in found.runners_up]


def test_waiting_for_a_target_that_is_well_is_no_pressure() -> None:
    report = chain(5000.0)
    assert report.requests.hops is not None and report.requests.served_by is not None
    assert report.time is not None
    quiet = [replace(each, share={**each.share, "user": 0.3}) for each in report.time.threads]
    well = replace(report, time=replace(report.time, threads=quiet))
    assert verdict(well).cause == "healthy"


def stopped(transport: str, size: int, reply: int, requests: int = 50) -> Report:
    """An event loop whose program has set a send buffer of `size` bytes."""
    local = "127.0.0.1:80" if transport == "tcp" else "/run/app.sock"
    row = ill.connection(sent=reply * requests, buffer=size, eagain=requests)
    fixed = replace(
        row, transport=transport, local=local, requests=requests, send_buffer_is_fixed=True
    )
    return ill.service(ill.served(requests), connections=[fixed])


def test_a_buffer_that_stops_the_replies_of_an_event_loop() -> None:
    for transport, size, reply in (("unix", 8192, 1 << 20), ("tcp", 8192, 65_664)):
        found = verdict(stopped(transport, size, reply))
        assert found.cause == "send-blocked"
        assert "SO_SNDBUF" in found.summary and "leave SO_SNDBUF out" in found.actions[0].do


def test_replies_that_a_buffer_hardly_stops() -> None:
    for transport, size, reply in (
        ("unix", 8192, 65_536),
        ("unix", 425_984, 1 << 24),
        ("tcp", 8192, 1_000),
        ("tcp", 262_144, 1 << 20),
    ):
        assert verdict(stopped(transport, size, reply)).cause == "healthy"


def test_a_tcp_reply_on_its_way_is_no_stuck_reader() -> None:
    row = ill.connection(queued=1_062_850, sent=25_000_000, buffer=3_939_840)
    on_its_way = replace(row, transport="tcp", local="127.0.0.1:80")
    assert verdict(ill.service(ill.served(500), connections=[on_its_way])).cause == "healthy"
    stuck = replace(on_its_way, send_queue_bytes=2_800_000)
    found = verdict(ill.service(ill.served(500), connections=[stuck]))
    assert found.cause == "send-blocked"


def test_a_target_without_a_socket_is_told_so() -> None:
    bare = replace(
        ill.service(ill.served(0)), listeners=[], connections=[], connections_total=0, syscalls=[]
    )
    found = verdict(bare)
    assert found.cause == "unknown"
    assert found.summary.startswith("No target has a socket")
    told = said(judged(bare))
    assert told is not None and "No target has a socket" in told.headline


@pytest.mark.parametrize("unmeasured", ["listeners", "connections", "syscalls"])
def test_where_sockets_are_not_measured_nobody_says_there_are_none(unmeasured: str) -> None:
    empty = {"listeners": [], "connections": [], "syscalls": [], unmeasured: None}
    found = verdict(replace(ill.service(ill.served(0)), **empty))
    assert "No target has a socket" not in found.summary
