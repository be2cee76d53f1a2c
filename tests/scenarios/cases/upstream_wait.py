"""The application waits for somebody it asked."""

from __future__ import annotations

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, UNIX, Subject, case
from tests.scenarios.postgres import Postgres

SPIN = "for i=1,600000 do end return 1"


@case("Node", BOTH, needs=("node",), quick=UNIX)
def node_asks_a_slow_service(bench: Bench) -> Subject:
    """Node's upstream takes 30 ms."""
    slow = bench.asyncio("sleep_ms=30")
    node = bench.node(f"upstream={slow.address}")
    bench.load(node.address, connections=8)
    return Subject([node.pid], [slow.address])


@case("Go", BOTH, needs=("go",))
def go_asks_a_slow_service(bench: Bench) -> Subject:
    """Go's upstream takes 30 ms."""
    slow = bench.asyncio("sleep_ms=30")
    server = bench.go(f"upstream={slow.address}")
    bench.load(server.address, connections=8)
    return Subject([server.pid], [slow.address])


@case("asyncio", (TCP,), needs=("node",))
def asyncio_asks_a_busy_service(bench: Bench) -> Subject:
    """asyncio's upstream computes for 10 ms, one request after the other."""
    busy = bench.node("spin_ms=10")
    server = bench.asyncio(f"upstream={busy.address}")
    bench.load(server.address, connections=4)
    return Subject([server.pid], [busy.address])


@case("nginx", needs=("nginx", "node"))
def nginx_before_a_slow_app(bench: Bench) -> Subject:
    """nginx with kept upstream connections; the app takes 40 ms."""
    node = bench.node("sleep_ms=40")
    nginx = bench.nginx(
        'proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";',
        upstream=f"upstream app {{ server unix:{node.address}; keepalive 32; }}",
        address=bench.address("nginx", TCP),
    )
    bench.load(nginx.address, connections=8)
    return Subject([nginx.pid], [node.address])


@case("Node", BOTH, needs=("node", "postgres", "initdb"))
def node_asks_postgres(bench: Bench) -> Subject:
    """Each request is a query that takes 50 ms in PostgreSQL."""
    postgres = Postgres(bench, transport=bench.transport)
    query = ["query=SELECT pg_sleep(0.05)", f"postgres={postgres.address}"]
    node = bench.node(*query)
    bench.load(node.address, connections=8)
    return Subject([node.pid], [postgres.address])


@case("gunicorn", needs=("redis-server",))
def gunicorn_asks_a_busy_redis(bench: Bench) -> Subject:
    """Sync workers ask a Redis that runs a script of milliseconds each time."""
    redis = bench.redis()
    command = f'EVAL "{SPIN}" 0'
    server = bench.gunicorn(UPSTREAM=redis.address, COMMAND=command)
    bench.load(server.address, connections=4)
    return Subject([server.pid], [redis.address])


@case("Caddy", needs=("caddy", "node"))
def caddy_before_a_slow_app(bench: Bench) -> Subject:
    """reverse_proxy to an app that takes 40 ms."""
    node = bench.node("sleep_ms=40")
    caddy = bench.caddy(f"reverse_proxy unix/{node.address}")
    bench.load(caddy.address, connections=8)
    return Subject([caddy.pid], [node.address])
