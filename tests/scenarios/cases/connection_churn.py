"""The same clients open a connection for each request, and that is what the server is busy with."""

from __future__ import annotations

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, UNIX, Subject, case
from tests.scenarios.postgres import Postgres

CONNECTIONS = 8


@case("Node", needs=("nginx", "node"))
def node_behind_nginx_without_keepalive(bench: Bench, keepalive: bool = False) -> Subject:
    """nginx's default: a new upstream connection for each request."""
    node = bench.node()
    app = f"upstream app {{ server unix:{node.address}; keepalive 32; }}"
    kept = 'proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";'
    location = kept if keepalive else f"proxy_pass http://unix:{node.address};"
    nginx = bench.nginx(location, upstream=app, address=bench.address("nginx", TCP))
    bench.load(nginx.address, connections=16)
    worker = bench.family(nginx.pid)[-1]
    return Subject([node.pid], [str(worker)])


@case("Go", BOTH, needs=("go",))
def go_connection_each(bench: Bench, reconnect: int = 1) -> Subject:
    """Clients that connect for each request, as fast as they may."""
    server = bench.go()
    bench.load(server.address, connections=CONNECTIONS, reconnect=reconnect)
    return Subject([server.pid])


@case("Redis", BOTH, needs=("redis-server",))
def redis_connection_each(bench: Bench, reconnect: int = 1) -> Subject:
    """Clients without a pool: connect, PING, close."""
    redis = bench.redis()
    bench.load(redis.address, b"PING\r\n", "resp", connections=CONNECTIONS, reconnect=reconnect)
    return Subject([redis.pid])


@case("PostgreSQL", needs=("postgres", "initdb", "pgbench"))
def postgres_connection_each(bench: Bench, reconnect: int = 1) -> Subject:
    """pgbench -C: a backend process is forked for each query."""
    postgres = Postgres(bench)
    postgres.pgbench("SELECT 1;", 4, *(["-C"] if reconnect else []))
    return Subject([postgres.pid])


@case("Node", BOTH, needs=("node", "postgres", "initdb"))
def node_without_a_pool_of_connections(bench: Bench, keepalive: bool = False) -> Subject:
    """A connection to the database for each request: log in, ask, say goodbye."""
    postgres = Postgres(bench, transport=bench.transport)
    query = ["query=SELECT 1", f"postgres={postgres.address}", f"keep={keepalive:d}"]
    node = bench.node(*query, address=bench.address("node", UNIX))
    bench.load(node.address, connections=8)
    return Subject([node.pid], [postgres.address])


@case("asyncio")
def asyncio_connection_each(bench: Bench, reconnect: int = 1) -> Subject:
    """Clients that connect for each request, as fast as they may."""
    server = bench.asyncio()
    bench.load(server.address, connections=CONNECTIONS, reconnect=reconnect)
    return Subject([server.pid])


@case("Node", (TCP,), needs=("node",))
def node_ends_connections(bench: Bench, keepalive: bool = False) -> Subject:
    """The clients would keep them; the server answers `Connection: close`."""
    node = bench.node(f"keepalive={int(keepalive)}")
    bench.load(node.address, connections=8)
    return Subject([node.pid])


@case("memcached", (TCP,), needs=("memcached",))
def memcached_connection_each(bench: Bench, reconnect: int = 1) -> Subject:
    """Clients that connect for each get."""
    server = bench.memcached()
    bench.load(
        server.address,
        b"get k\r\n",
        "until:END\\r\\n",
        connections=CONNECTIONS,
        reconnect=reconnect,
    )
    return Subject([server.pid])
