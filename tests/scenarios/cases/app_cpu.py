"""The application computes."""

from __future__ import annotations

import os

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, Subject, case
from tests.scenarios.postgres import Postgres


@case("Node", BOTH, needs=("node",))
def node_computes(bench: Bench) -> Subject:
    """5 ms of computing in each request, four clients."""
    node = bench.node("spin_ms=5")
    bench.load(node.address, connections=4)
    return Subject([node.pid])


@case("Node", needs=("node",))
def node_computes_and_its_queue_is_full(bench: Bench) -> Subject:
    """A chain: the loop computes 20 ms for each request, so the queue of 8 is full. The root."""
    node = bench.node("spin_ms=20", "backlog=8")
    bench.load(node.address, connections=40, reconnect=1, refuse_wait=1)
    return Subject([node.pid])


@case("Node", needs=("node",))
def node_one_in_twenty(bench: Bench) -> Subject:
    """One request in 20 computes for 100 ms; all others wait behind it."""
    node = bench.node("spin_ms=100", "one_in=20")
    bench.load(node.address, connections=16, rate=100, poisson=1)
    return Subject([node.pid])


@case("Node", needs=("node",))
def node_thread_pool(bench: Bench) -> Subject:
    """Password hashing in the thread pool: the loop is idle, its threads are not."""
    node = bench.node("pool_ms=15")
    bench.load(node.address, connections=3)
    return Subject([node.pid])


@case("asyncio", (TCP,))
def asyncio_computes(bench: Bench) -> Subject:
    """5 ms of computing in each request, in the event loop."""
    server = bench.asyncio("spin_ms=5")
    bench.load(server.address, connections=4)
    return Subject([server.pid])


@case("gunicorn")
def gunicorn_computes(bench: Bench) -> Subject:
    """One sync worker that computes 10 ms in each request."""
    server = bench.gunicorn(workers=1, SPIN_MS=10)
    bench.load(server.address, connections=4)
    return Subject([server.pid])


@case("Redis", BOTH, needs=("redis-server",))
def redis_keys(bench: Bench) -> Subject:
    """KEYS over 100,000 keys, beside small reads that wait behind it."""
    redis = bench.redis()
    fill = b"DEBUG POPULATE 100000\r\n"
    bench.load(redis.address, fill, "resp", connections=1, rate=1, warm=1).result()
    bench.load(redis.address, b"KEYS nothing*\r\n", "until:\r\n", connections=2)
    bench.load(redis.address, b"GET key:1\r\n", "resp", connections=4, rate=200)
    return Subject([redis.pid])


@case("Redis", needs=("redis-server",))
def redis_script(bench: Bench) -> Subject:
    """A Lua script that loops for milliseconds."""
    redis = bench.redis()
    script = b"local n=0 for i=1,200000 do n=n+i end return n"
    call = b"*3\r\n$4\r\nEVAL\r\n$%d\r\n%b\r\n$1\r\n0\r\n" % (len(script), script)
    bench.load(redis.address, call, "resp", connections=4)
    return Subject([redis.pid])


@case("Go", (TCP,), needs=("go",))
def go_computes(bench: Bench) -> Subject:
    """10 ms of computing in each request, as many clients as CPUs: the process has them all."""
    server = bench.go("spin_ms=10")
    bench.load(server.address, connections=os.cpu_count() or 1)
    return Subject([server.pid])


@case("PostgreSQL", needs=("postgres", "initdb", "pgbench"))
def postgres_computes(bench: Bench) -> Subject:
    """A query that hashes 20,000 numbers, one client."""
    postgres = Postgres(bench)
    postgres.pgbench("SELECT max(md5(n::text)) FROM generate_series(1, 20000) n;", 1)
    return Subject([postgres.pid])


@case("nginx", (TCP,), needs=("nginx",))
def nginx_compresses(bench: Bench) -> Subject:
    """gzip at level 9 of a megabyte of text in each reply."""
    text = "".join(f"{number} {number * number}\n" for number in range(70000))
    bench.file("text.txt", text)
    nginx = bench.nginx(
        f"root {bench.folder}; gzip on; gzip_comp_level 9; gzip_types *; try_files /text.txt =404;"
    )
    request = b"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"
    bench.load(nginx.address, request, connections=2)
    return Subject([nginx.pid])
