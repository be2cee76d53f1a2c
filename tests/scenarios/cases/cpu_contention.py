"""Threads could run, and have no CPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, Subject, case
from tests.scenarios.postgres import Postgres

BURN = "while True: pass"


def _burn(bench: Bench, each_cpu: int = 3) -> None:
    for _ in range(each_cpu * (os.cpu_count() or 1)):
        bench.start([sys.executable, "-c", BURN], "burner")


def _quota(bench: Bench, pid: int, percent: int) -> None:
    """Allow a process `percent` of one CPU, by a control group of its own (v1 or v2)."""
    name = f"scenario-{pid}"
    first = Path("/sys/fs/cgroup/cpu")
    if first.is_dir():
        group, settings = first / name, {"cpu.cfs_quota_us": f"{percent * 1000}"}
    else:
        group, settings = Path("/sys/fs/cgroup") / name, {"cpu.max": f"{percent * 1000} 100000"}
    group.mkdir()
    bench.afterwards(group.rmdir)
    for setting, value in settings.items():
        (group / setting).write_text(value)
    (group / "cgroup.procs").write_text(str(pid))


@case("Node", BOTH, needs=("node",))
def node_beside_burners(bench: Bench) -> Subject:
    """Three burners for each CPU beside a Node that needs half a CPU, more than its fair share."""
    node = bench.node("spin_ms=2")
    _burn(bench)
    bench.load(node.address, connections=4, rate=250)
    return Subject([node.pid])


@case("Redis", (TCP,), needs=("redis-server",))
def redis_beside_burners(bench: Bench) -> Subject:
    """Three burners for each CPU beside a Redis."""
    redis = bench.redis()
    _burn(bench)
    bench.load(redis.address, b"PING\r\n", "resp", connections=16)
    return Subject([redis.pid])


@case("Node", needs=("node",))
def node_under_a_quota(bench: Bench) -> Subject:
    """A control group allows 20 % of one CPU; the load needs about 40 %."""
    node = bench.node("spin_ms=3")
    _quota(bench, node.pid, 20)
    bench.load(node.address, connections=4, rate=120)
    return Subject([node.pid])


@case("gunicorn")
def gunicorn_under_a_quota(bench: Bench) -> Subject:
    """A control group allows 25 % of one CPU for all workers; they need more."""
    server = bench.gunicorn(workers=1, SPIN_MS=5)
    bench.load(server.address, connections=3)  # answered, so there are workers
    for pid in bench.family(server.pid)[1:]:
        _quota(bench, pid, 25)
    return Subject([server.pid])


@case("PostgreSQL", needs=("postgres", "initdb", "pgbench"))
def postgres_too_many_backends(bench: Bench) -> Subject:
    """32 backends compute at once on few CPUs."""
    postgres = Postgres(bench)
    postgres.pgbench("SELECT max(md5(n::text)) FROM generate_series(1, 3000) n;", 32)
    return Subject([postgres.pid])


@case("Go", (TCP,), needs=("go",))
def go_too_many_threads(bench: Bench) -> Subject:
    """16 threads of the server itself compute something else all the time."""
    server = bench.go("threads=16")
    bench.load(server.address, connections=4, rate=100)
    return Subject([server.pid])


@case("Python threads")
def workers_beside_burners(bench: Bench) -> Subject:
    """Burners beside threads that need half a CPU, 3 ms for each request."""
    server = bench.threaded("spin_ms=3")
    _burn(bench)
    bench.load(server.address, connections=4, rate=160)
    return Subject([server.pid])
