"""The table of remedies: each line is one that bash takes, and no remedy hurts who serves."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from typing import Dict, Iterator, Optional, Tuple

import pytest

from tests.unit import ill
from tests.unit.reports import crowded
from udsprobe.model.action import CHANGES, EFFECTS, RESTARTS, Action
from udsprobe.model.report import CpuHolder, CpuPriority, Fds, Namespace, Peer, Report
from udsprobe.rules.accounts.cpu_holders import foreign_share
from udsprobe.rules.causes import CAUSES, HEALTHY, UNKNOWN
from udsprobe.rules.judge import judged
from udsprobe.rules.remedy import choice, cpus, queues
from udsprobe.rules.remedy.row import Value
from udsprobe.rules.remedy.table import KINDS, remedies
from udsprobe.rules.servers import DATABASES, GENERIC, SERVERS, WRITTEN_IN, recognise

PLAIN: Dict[str, Value] = {
    "pid": 4711,
    "tid": 4712,
    "inode": 90210,
    "backlog": 1024,
    "was": 128,
    "was_somaxconn": 128,
    "address": "/run/app.sock",
    "path": "/run/app.sock",
    "host": "127.0.0.1",
    "port": 6379,
    "peer_pid": 55,
    "who": "redis-server 55",
    "where": "usleep ← handle (app.py:12)",
    "call": "fsync",
    "tracer": "strace 80",
    "program": "slow.cgi",
    "how": "SIGSEGV",
    "hint": ", and more",
    "more": 65536,
    "more_hard": 65536,
    "open": 40,
    "limit": 1024,
    "bytes": 1 << 20,
    "holder": "ffmpeg 666",
    "holder_pids": (666, 667),
    "files": ("/proc/666/autogroup", "/sys/fs/cgroup/a b/cpu.weight"),
    "least": 1,
    "cpus": "0",
    "others": "1-3",
    "all": "0-3",
    "pids": (4711, 4712),
    "name": "kernel.threads-max",
    "file": "/sys/fs/cgroup/a b/pids.max",
    "usual": 100,
    "files_back": ("/sys/fs/cgroup/a b/cpu.weight",),
    "quota": "max",
    "lasted": "5.0 s",
    "cpu_max": "/sys/fs/cgroup/web/cpu.max",
}
NASTY = "/run/'$(touch /tmp/x)`id`\";|&\n\x1b[31m\\\u202e\udcff .sock"
HOSTILE = {name: NASTY if isinstance(value, str) else value for name, value in PLAIN.items()}


def lines(values: Dict[str, Value]) -> Iterator[Tuple[str, str]]:
    """Every line of the table with these values, and what it is of."""
    for kind in KINDS:
        for server in SERVERS:
            for action in remedies(kind, server, **values):
                for text in (action.run, action.undo):
                    if text is not None:
                        yield f"{kind} {server}", text


@pytest.mark.parametrize("values", [PLAIN, HOSTILE], ids=["plain", "hostile"])
def test_every_line_is_one_that_bash_takes(values: Dict[str, Value]) -> None:
    found = sorted({text for _, text in lines(values)})
    assert len(found) >= 30
    for text in found:
        assert text.isprintable(), text
        assert subprocess.run(["bash", "-n", "-c", text]).returncode == 0, text


def test_a_name_in_a_line_is_one_word_and_never_runs() -> None:
    (action,) = remedies("denied", address=NASTY)
    assert action.run is not None
    shown = action.run.replace("namei -l --", "printf '<%s>'")
    said = subprocess.run(["bash", "-c", shown], capture_output=True, check=True).stdout
    assert said == b"<" + NASTY.encode("utf-8", "surrogateescape") + b">"


def test_what_needs_a_value_that_is_not_known_is_left_out() -> None:
    assert remedies("backlog-unix", GENERIC, backlog=1024, address="/run/x") == remedies(
        "backlog-unix", GENERIC, backlog=1024, address="/run/x", pid=None
    )
    (by_hand,) = remedies("backlog-unix", GENERIC, backlog=1024, address="/run/x")
    assert by_hand.run is None
    (act,) = remedies("stranger", holder="x 6", holder_pids=(6,))
    assert act.run is not None and "renice" in act.run and act.undo is None


@pytest.mark.parametrize("comm", ["gunicorn", "shop", "postgres"])
def test_who_has_all_cpus_is_not_given_more_workers(comm: str) -> None:
    told = choice.busy(ill.service(ill.served(9), ill.thread()), 9, 9, comm, has_all_cpus=True)
    assert not any("worker" in each.say and "raise" in each.say for each in told)
    cheaper = "make it cheaper" if comm == "postgres" else "make what it computes cheaper"
    assert any(cheaper in each.say for each in told)


def test_every_cause_has_remedies_for_any_server() -> None:
    assert {kind.cause for kind in KINDS.values()} == set(CAUSES) - {HEALTHY, UNKNOWN}
    for name, kind in KINDS.items():
        assert GENERIC in kind.by_server, name
        assert set(kind.by_server) <= set(SERVERS), name
        assert remedies(name, GENERIC, **PLAIN), name


@pytest.mark.parametrize("server", sorted(WRITTEN_IN))
def test_a_server_without_rows_has_those_of_its_language(server: str) -> None:
    language = WRITTEN_IN[server]
    assert remedies("profile", server, **PLAIN) == remedies("profile", language, **PLAIN)
    assert remedies("profile", server, **PLAIN) != remedies("profile", **PLAIN)
    assert remedies("backlog-tcp", server, **PLAIN) != remedies("backlog-tcp", language, **PLAIN)


def test_every_server_has_its_own_words_for_queue_and_seats() -> None:
    assert set(queues.BACKLOG) == set(queues.SEATS) == set(SERVERS)


def test_no_remedy_is_two_in_one_string_or_a_tool_without_its_package() -> None:
    for kind in KINDS:
        for server in SERVERS:
            for action in remedies(kind, server, **PLAIN):
                check(action)


def check(action: Action) -> None:
    assert action.effect in EFFECTS and action.say and action.why
    assert "(or:" not in action.do and "offcputime" not in action.do
    assert action.do == (action.run or action.say)
    assert action.run is None or action.effect != RESTARTS
    assert action.undo is None or action.effect == CHANGES
    tools = r"(?:^|sudo |\| )(perf|py-spy|rbspy|jcmd|redis-cli|iostat) "
    if re.search(tools, action.run or ""):
        assert re.search(r"package |pip install |cargo install ", action.say), action.run


@pytest.mark.parametrize("server", sorted(DATABASES | {"node"}))
def test_what_is_one_thread_or_a_database_is_not_told_to_have_more_workers(server: str) -> None:
    for kind in ("more-cpu", "accept-late", "seats"):
        for action in remedies(kind, server, **PLAIN):
            assert "more worker" not in action.say or (server, kind) == ("memcached", "accept-late")


@pytest.mark.parametrize(
    ("comm", "cmdline", "expected"),
    [
        ("nginx", "nginx: worker process", "nginx"),
        ("postgres", None, "postgresql"),
        ("mariadbd", "/usr/sbin/mariadbd", "mysql"),
        ("redis-server", "/usr/bin/redis-server *:6379", "redis"),
        ("php-fpm8.2", "php-fpm: pool www", "php-fpm"),
        ("beam.smp", "/usr/lib/erlang/bin/beam.smp -- -root /usr -s rabbit boot", "rabbitmq"),
        ("beam.smp", "/usr/lib/erlang/bin/beam.smp -- -root /opt/app", "erlang"),
        ("python3", "/usr/bin/python3 /usr/bin/gunicorn --backlog 5 app", "gunicorn"),
        ("python3.11", "python3.11 app.py", "python"),
        ("ruby3.1", "puma 5.6.5 (unix:///run/puma.sock) [app]", "puma"),
        ("puma", "ruby /usr/bin/puma", "puma"),
        ("ruby3.1", "unicorn worker[0] -c unicorn.rb config.ru", "unicorn"),
        ("unicorn", "/usr/bin/ruby /usr/bin/unicorn -c unicorn.rb", "unicorn"),
        ("ruby", "ruby app.rb", "ruby"),
        ("apache2", None, "apache"),
        ("lighttpd", None, "lighttpd"),
        ("cache-main", "/usr/sbin/varnishd -F -f /etc/varnish/default.vcl", "varnish"),
        ("envoy", "envoy -c /etc/envoy/envoy.yaml --concurrency 2", "envoy"),
        ("squid", "(squid-1) --kid squid-1", "squid"),
        ("node", "node /srv/nginx-admin.js", "node"),
        ("MainThread", "/usr/bin/node app.js", "node"),
        ("a.out", "./a.out", GENERIC),
        ("", None, GENERIC),
    ],
)
def test_servers_are_recognised(comm: str, cmdline: str, expected: str) -> None:
    assert recognise(comm, cmdline) == expected


def full(somaxconn: int, requested: int, effective: int) -> Tuple[Action, ...]:
    """What a full queue calls for, where the limit is what it is now."""
    backlog = replace(crowded().backlog, requested=requested, effective=effective, clamped_by=None)
    listener = replace(crowded(), backlog=backlog)
    space = Namespace(listener.netns, somaxconn, *[None] * 6)
    report = replace(ill.service(ill.served(100)), namespaces=[space], listeners=[listener])
    return choice.queue_full(report, listener)


def test_somaxconn_is_raised_only_where_it_cuts() -> None:
    assert all("sysctl" not in (action.run or "") for action in full(4096, 511, 511))
    both, limit, own = full(128, 511, 128)
    assert both.run is not None and "somaxconn=1024 && " in both.run and "listen(1024)" in both.run
    assert both.undo is not None and both.undo.endswith("sysctl -w net.core.somaxconn=128")
    assert limit.run == "sudo nsenter -t 4711 -n sysctl -w net.core.somaxconn=1024"
    assert own.run is None
    assert len(full(4096, 4096, 4096)) == 3
    # Raised since it listened: it only has to listen again.
    assert "sysctl" not in (full(65535, 511, 128)[0].run or "")


def holding(holder: CpuHolder, **extra: object) -> Report:
    report = ill.service(ill.served(900))
    assert report.time is not None
    return replace(report, time=replace(report.time, cpu_holders=[holder]), **extra)  # type: ignore[arg-type]


def test_only_a_stranger_is_slowed_down() -> None:
    stranger = CpuHolder(666, "ffmpeg", False, 4e6, 90.0)
    (act,) = cpus.cpu_holder(holding(stranger), stranger)
    # Each of its threads: a nice value is of one.
    assert act.run == 'sudo renice -n 19 -p $(ps -L -o lwp= -p "666")'
    client = ill.connection(peer=Peer(666, "ffmpeg"))
    assert no_renice(holding(stranger, connections=[client]), stranger)
    assert no_renice(holding(stranger, listeners=[replace(crowded(), pids=[666])]), stranger)
    for one in (
        CpuHolder(4711, "node", True, 4e6, 90.0),
        CpuHolder(666, "udsprobe", False, 4e6, 90.0),
        CpuHolder(16, "ksoftirqd/0", False, 4e6, 90.0),
        CpuHolder(0, None, False, 4e6, 90.0),
    ):
        assert no_renice(holding(one), one)


def test_who_observes_is_not_why_targets_wait() -> None:
    assert foreign_share(holding(CpuHolder(666, "udsprobe", False, 4e6, 90.0))) == 0.0
    assert foreign_share(holding(CpuHolder(666, "ffmpeg", False, 4e6, 90.0))) == 1.0


def test_of_a_crowd_of_strangers_each_is_slowed_down() -> None:
    crowd = [CpuHolder(pid, "cc1", False, 1e6 - pid, 20.0) for pid in (61, 62, 63)]
    others = [
        CpuHolder(64, "sshd", False, 1e3, 0.1),
        CpuHolder(16, "kworker/0:1", False, 1e6, 20.0),
        CpuHolder(4711, "node", True, 1e6, 20.0),
        CpuHolder(0, None, False, 1e6, 20.0),
    ]
    report = holding(crowd[0])
    assert report.time is not None
    report = replace(report, time=replace(report.time, cpu_holders=[*crowd, *others]))
    (act,) = cpus.cpu_holder(report, crowd[0])
    assert act.run is not None and '-p "61 62 63"' in act.run
    assert "cc1 61 and 2 like it" in act.say


def test_threads_of_the_kernel_are_not_slowed_down() -> None:
    """Whatever their names are; and a program may have a slash in its own."""
    rcu = CpuHolder(15, "rcu_preempt", False, 2e6, 40.0, is_kernel=True)
    (look,) = cpus.cpu_holder(holding(rcu), rcu)
    assert look.effect == "looks"
    crowd = [CpuHolder(pid, "bin/cc", False, 1e6, 20.0, is_kernel=False) for pid in (61, 62)]
    report = holding(rcu)
    assert report.time is not None
    report = replace(report, time=replace(report.time, cpu_holders=[rcu, *crowd]))
    (act,) = cpus.cpu_holder(report, crowd[0])
    assert act.run is not None and '-p "61 62"' in act.run


@pytest.mark.parametrize(("waited_us", "named"), [(1e6, "cc1"), (1e5, "rcu_preempt")])
def test_who_can_be_slowed_down_is_named_before_the_kernel(waited_us: float, named: str) -> None:
    rcu = CpuHolder(15, "rcu_preempt", False, 2e6, 40.0, is_kernel=True)
    other = CpuHolder(61, "cc1", False, waited_us, 20.0, is_kernel=False)
    assert cpus.culprit([rcu, other]).comm == named
    assert cpus.culprit([replace(rcu, waited_us=9e6, pid=0, comm=None), other]).comm is None


SESSION = CpuPriority("session", "/proc/666/autogroup", 0)
WEIGHT = CpuPriority("cgroup", "/sys/fs/cgroup/system.slice/backup.service/cpu.weight", 100)


@pytest.mark.parametrize(
    ("priority", "run", "undo"),
    [
        (
            CpuPriority("nice", None, 5),
            'sudo renice -n 19 -p $(ps -L -o lwp= -p "666")',
            'sudo renice -n 5 -p $(ps -L -o lwp= -p "666")',
        ),
        (
            SESSION,
            "echo 19 | sudo tee /proc/666/autogroup",
            "echo 0 | sudo tee /proc/666/autogroup",
        ),
        (
            WEIGHT,
            f"echo 1 | sudo tee {WEIGHT.file}",
            f"echo 100 | sudo tee {WEIGHT.file}",
        ),
        (
            CpuPriority("cgroup", "/sys/fs/cgroup/cpu/backup/cpu.shares", None),
            "echo 2 | sudo tee /sys/fs/cgroup/cpu/backup/cpu.shares",
            None,
        ),
    ],
)
def test_what_shares_the_cpus_out_is_changed(
    priority: CpuPriority, run: str, undo: Optional[str]
) -> None:
    stranger = CpuHolder(666, "ffmpeg", False, 4e6, 90.0, priority=priority)
    (act,) = cpus.cpu_holder(holding(stranger), stranger)
    assert (act.run, act.undo) == (run, undo)


def test_strangers_in_several_places_are_slowed_down_in_each() -> None:
    rows = [
        CpuHolder(61, "cc1", False, 1e6, 25.0, priority=WEIGHT),
        CpuHolder(62, "cc1", False, 1e6, 25.0, priority=WEIGHT),
        CpuHolder(63, "tar", False, 1e6, 25.0, priority=SESSION),
        CpuHolder(64, "tar", False, 1e6, 25.0),
    ]
    report = holding(rows[0])
    assert report.time is not None
    report = replace(report, time=replace(report.time, cpu_holders=rows))
    cgroup, session, nice = cpus.cpu_holder(report, rows[0])
    assert cgroup.run == f"echo 1 | sudo tee {WEIGHT.file}" and "and 1 like it" in cgroup.say
    assert session.run == "echo 19 | sudo tee /proc/666/autogroup"
    assert nice.run is not None and "renice" in nice.run and nice.undo is None


def no_renice(report: Report, holder: CpuHolder) -> bool:
    actions = cpus.cpu_holder(report, holder)
    return bool(actions) and all("renice" not in action.do for action in actions)


def test_a_limit_of_files_is_raised_only_where_it_binds() -> None:
    (target,) = ill.service(ill.served(100)).targets
    near = replace(target, fds=Fds(1020, 1024))
    assert choice.descriptors(near)[0].run == f"sudo prlimit --pid {near.pid} --nofile=65536:65536"
    far = replace(target, fds=Fds(40, 1024))
    assert all("prlimit" not in (action.run or "") for action in choice.descriptors(far))


def test_a_sleep_s_remedy_is_for_the_process_that_sleeps() -> None:
    """Two workers with a listener each: the one that does less of all is the one that is asleep."""
    idle = ill.thread(4711, "python3", user=0.02, sys_socket=0.01)
    asleep = replace(ill.thread(4712, "python3", blocked_other=0.97, sys_socket=0.004), pid=4712)
    report = ill.service(ill.served(500, app=40_000, other=97.0, cpu=3.0), idle, asleep)
    found = judged(report).verdict
    assert found is not None and found.cause == "app-blocked"
    assert any("4712" in (action.run or "") for action in found.actions)


def test_parallel_workers_of_postgresql_are_no_cgi() -> None:
    (look,) = choice.child_each("postgres")
    assert "leader_pid" in (look.run or "")
    assert "FastCGI" in choice.child_each("slow.cgi")[0].say
