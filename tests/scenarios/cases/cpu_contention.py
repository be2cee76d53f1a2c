"""Threads could run, and have no CPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, Subject, case
from tests.scenarios.postgres import Postgres

BURN = "while True: pass"


def _burn(bench: Bench, each_cpu: int) -> None:
    for _ in range(each_cpu * (os.cpu_count() or 1)):
        bench.start([sys.executable, "-c", BURN], "burner")


def _pin(bench: Bench, pid: int) -> None:
    """Keep a process and its children on the first CPU."""
    for each in bench.family(pid):
        for tid in os.listdir(f"/proc/{each}/task"):
            os.sched_setaffinity(int(tid), {min(os.sched_getaffinity(0))})


@case("Node", BOTH, needs=("node",))
def node_beside_burners(bench: Bench, burners_per_cpu: int = 3, spin_ms: int = 2) -> Subject:
    """Three burners for each CPU beside a Node that needs half a CPU, more than its fair share."""
    node = bench.node(f"spin_ms={spin_ms}")
    _burn(bench, burners_per_cpu)
    bench.load(node.address, connections=4, rate=250)
    return Subject([node.pid])


@case("Redis", (TCP,), needs=("redis-server",))
def redis_beside_burners(bench: Bench, burners_per_cpu: int = 3) -> Subject:
    """Three burners for each CPU beside a Redis."""
    redis = bench.redis()
    _burn(bench, burners_per_cpu)
    bench.load(redis.address, b"PING\r\n", "resp", connections=16)
    return Subject([redis.pid])


@case("Node", needs=("node",))
def node_under_a_quota(bench: Bench, cpu_pct: int = 20, spin_ms: int = 3) -> Subject:
    """A control group allows 20 % of one CPU; the load needs about 40 %."""
    node = bench.node(f"spin_ms={spin_ms}")
    bench.limit_cpu(node.pid, cpu_pct)
    bench.load(node.address, connections=4, rate=120)
    return Subject([node.pid])


@case("gunicorn")
def gunicorn_under_a_quota(bench: Bench, cpu_pct: int = 25, spin_ms: int = 5) -> Subject:
    """A control group allows 25 % of one CPU for all workers; they need more."""
    server = bench.gunicorn(workers=1, SPIN_MS=spin_ms)
    bench.load(server.address, connections=3)  # answered, so there are workers
    for pid in bench.family(server.pid)[1:]:
        bench.limit_cpu(pid, cpu_pct)
    return Subject([server.pid])


@case("PostgreSQL", needs=("postgres", "initdb", "pgbench"))
def postgres_too_many_backends(bench: Bench, backends: int = 32) -> Subject:
    """32 backends compute at once on few CPUs."""
    postgres = Postgres(bench)
    postgres.pgbench("SELECT max(md5(n::text)) FROM generate_series(1, 3000) n;", backends)
    return Subject([postgres.pid])


@case("Go", (TCP,), needs=("go",))
def go_too_many_threads(bench: Bench, own_burners: int = 16) -> Subject:
    """16 threads of the server itself compute something else all the time."""
    server = bench.go(f"threads={own_burners}")
    bench.load(server.address, connections=4, rate=100)
    return Subject([server.pid])


@case("Python threads")
def workers_beside_burners(bench: Bench, burners_per_cpu: int = 3, spin_ms: int = 3) -> Subject:
    """Burners beside threads that need half a CPU, 3 ms for each request."""
    server = bench.threaded(f"spin_ms={spin_ms}")
    _burn(bench, burners_per_cpu)
    bench.load(server.address, connections=4, rate=160)
    return Subject([server.pid])


@case("Node", BOTH, needs=("node",))
def node_kept_on_a_busy_cpu(bench: Bench, pinned: bool = True) -> Subject:
    """Node may run on the CPU of a burner only, while another CPU is idle."""
    node = bench.node("spin_ms=2")
    _pin(bench, bench.start([sys.executable, "-c", BURN], "burner").pid)
    if pinned:
        _pin(bench, node.pid)
    bench.load(node.address, connections=4, rate=250)
    return Subject([node.pid])


@case("gunicorn")
def workers_kept_on_one_cpu(bench: Bench, pinned: bool = True) -> Subject:
    """Four workers may run on one CPU only; they need more, and another CPU is idle."""
    server = bench.gunicorn(workers=4, SPIN_MS=5)
    bench.load(server.address, connections=3, rate=20)  # answered, so there are workers
    if pinned:
        _pin(bench, server.pid)
    bench.load(server.address, connections=8, rate=220)
    return Subject([server.pid])


@case("Node", needs=("node",))
def node_of_low_priority(bench: Bench, session_nice: int = 19) -> Subject:
    """The session of Node has the lowest priority, beside one burner for each CPU."""
    node = bench.node("spin_ms=2")
    Path(f"/proc/{node.pid}/autogroup").write_text(f"{session_nice}\n")
    _burn(bench, 1)
    bench.load(node.address, connections=4, rate=150)
    return Subject([node.pid])
