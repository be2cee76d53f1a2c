"""Hardly any traffic: there is nothing to say."""

from __future__ import annotations

import sys

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, UNIX, Subject, case
from tests.scenarios.postgres import Postgres


@case("Node", BOTH, needs=("node",))
def node_idle(bench: Bench) -> Subject:
    """Nobody asks anything."""
    return Subject([bench.node().pid])


@case("Redis", (TCP,), needs=("redis-server",))
def redis_idle(bench: Bench) -> Subject:
    """Connected clients that say nothing."""
    redis = bench.redis()
    bench.load(redis.address, b"PING\r\n", "resp", connections=1, rate=1, warm=1, idle=4).result()
    bench.load(redis.address, b"PING\r\n", "resp", connections=1, idle=20, think_ms=120000, warm=1)
    return Subject([redis.pid])


@case("asyncio", quick=UNIX)
def asyncio_three_requests(bench: Bench) -> Subject:
    """A request every three seconds, of a slow kind."""
    server = bench.asyncio("sleep_ms=100")
    bench.load(server.address, connections=1, rate=0.3, warm=1)
    return Subject([server.pid])


@case("PostgreSQL", needs=("postgres", "initdb"))
def postgres_idle(bench: Bench) -> Subject:
    """Only its own background processes."""
    return Subject([Postgres(bench).pid])


@case("Python threads", BOTH)
def daytime(bench: Bench) -> Subject:
    """A line for each of 100 connections a second, which the server closes: nobody asks."""
    server = bench.threaded("speaks=1")
    bench.load(server.address, b"", "until:\\n", connections=4, rate=100, reconnect=1)
    return Subject([server.pid])


ASKS = """
import socket, sys
redis = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for command in (b"PING\\r\\n", b"BLPOP jobs 0\\r\\n"):
    redis.sendall(command)
    print(command, flush=True)
    redis.recv(64)
"""


@case("Redis client", (TCP,), needs=("redis-server",))
def worker_that_waits_for_a_job(bench: Bench) -> Subject:
    """It asked before udsprobe came, and serves nobody: it hangs, or that is a long poll."""
    redis = bench.redis()
    worker = bench.start([sys.executable, "-c", ASKS, redis.address.rpartition(":")[2]], "worker")
    bench.wait_until(lambda: b"BLPOP" in worker.log.read_bytes(), "it asks", worker)
    return Subject([worker.pid], ["has waited", redis.address])
