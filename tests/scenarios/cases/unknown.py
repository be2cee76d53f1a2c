"""Hardly any traffic: there is nothing to say."""

from __future__ import annotations

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
