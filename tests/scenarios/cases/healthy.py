"""The twins: the same servers, doing well."""

from __future__ import annotations

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, Subject, case
from tests.scenarios.cases.send_blocked import log_reader
from tests.scenarios.postgres import Postgres

KB = 1024


@case("Node", BOTH, needs=("node",))
def node_moderate(bench: Bench) -> Subject:
    """300 requests a second."""
    node = bench.node()
    bench.load(node.address, connections=8, rate=300, poisson=1)
    return Subject([node.pid])


@case("Node", needs=("node",))
def node_bursts(bench: Bench) -> Subject:
    """16 requests at once, four times a second; the default backlog."""
    node = bench.node()
    bench.load(node.address, connections=16, burst_ms=250)
    return Subject([node.pid])


@case("Node", BOTH, needs=("node",))
def node_bursts_of_connections(bench: Bench) -> Subject:
    """24 clients connect at once, twice a second; the queue of 512 has room."""
    node = bench.node()
    bench.load(node.address, connections=24, burst_ms=500, reconnect=1, refuse_wait=1)
    return Subject([node.pid])


@case("Node", needs=("node",))
def node_half_busy(bench: Bench) -> Subject:
    """1 ms of computing in each of 350 requests a second, evenly spread."""
    node = bench.node("spin_ms=1")
    bench.load(node.address, connections=7, rate=350)
    return Subject([node.pid])


@case("Node", needs=("node",))
def node_that_polls_without_a_pause(bench: Bench) -> Subject:
    """Its loop never sleeps: its thread is all busy, and takes each of 100 requests a second at
    once."""
    node = bench.node("spins=1")
    bench.load(node.address, connections=4, rate=100)
    return Subject([node.pid], ["no request waits for"])


@case("asyncio", BOTH)
def asyncio_streams_events(bench: Bench) -> Subject:
    """Replies are streams of events, of 80 ms each: they last as long as they are to."""
    server = bench.asyncio("pieces=4", "piece_ms=20", "events=1")
    bench.load(server.address, connections=8)
    return Subject([server.pid])


@case("Node", needs=("node",))
def node_cluster(bench: Bench) -> Subject:
    """Two workers of a cluster, 300 requests a second."""
    node = bench.node("workers=2")
    bench.load(node.address, connections=8, rate=300, poisson=1)
    return Subject([node.pid])


@case("Node", (TCP,), needs=("node",))
def node_few_new_connections(bench: Bench) -> Subject:
    """30 connections per second for one request each, as health checks and scripts make them."""
    node = bench.node()
    bench.load(node.address, connections=3, rate=30, reconnect=1)
    return Subject([node.pid])


@case("Node", BOTH, needs=("node",))
def node_downloads_on_fresh_connections(bench: Bench) -> Subject:
    """20 MB six times a second, each on a connection of its own, read at once."""
    node = bench.node(f"body={20 * 1024 * 1024}")
    bench.load(node.address, connections=2, rate=6, reconnect=1, warm=2)
    return Subject([node.pid])


@case("asyncio", BOTH)
def asyncio_moderate(bench: Bench) -> Subject:
    """200 requests a second."""
    server = bench.asyncio()
    bench.load(server.address, connections=8, rate=200, poisson=1)
    return Subject([server.pid])


@case("asyncio", needs=("node",))
def asyncio_asks_a_quick_service(bench: Bench) -> Subject:
    """An upstream that answers at once, 100 requests a second."""
    node = bench.node()
    server = bench.asyncio(f"upstream={node.address}")
    bench.load(server.address, connections=4, rate=100)
    return Subject([server.pid])


@case("gunicorn", BOTH)
def gunicorn_moderate(bench: Bench) -> Subject:
    """Two sync workers, 60 requests a second, which end their connections as sync workers do."""
    server = bench.gunicorn()
    bench.load(server.address, connections=4, rate=60)
    return Subject([server.pid])


@case("Go", BOTH, needs=("go",))
def go_moderate(bench: Bench) -> Subject:
    """300 requests a second."""
    server = bench.go()
    bench.load(server.address, connections=8, rate=300, poisson=1)
    return Subject([server.pid])


@case("Go", (TCP,), needs=("go",))
def go_downloads(bench: Bench) -> Subject:
    """Ten replies of 2 MB a second to clients that read."""
    server = bench.go(f"body={2 * KB * KB}")
    bench.load(server.address, connections=2, rate=10, warm=5)
    return Subject([server.pid])


@case("nginx", needs=("nginx", "node"))
def nginx_before_node(bench: Bench) -> Subject:
    """Kept upstream connections, 300 requests a second."""
    node = bench.node()
    nginx = bench.nginx(
        'proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";',
        upstream=f"upstream app {{ server unix:{node.address}; keepalive 16; }}",
        address=bench.address("nginx", TCP),
    )
    bench.load(nginx.address, connections=8, rate=300)
    return Subject([nginx.pid])


@case("nginx", (TCP,), needs=("nginx",))
def nginx_idle_connections(bench: Bench) -> Subject:
    """200 kept connections that say nothing, beside 200 requests a second."""
    nginx = bench.nginx("return 200 ok;")
    bench.load(nginx.address, connections=8, rate=200, idle=200)
    return Subject([nginx.pid])


@case("nginx", BOTH, needs=("nginx",))
def nginx_health_checks(bench: Bench) -> Subject:
    """A balancer connects 20 times a second and leaves at once, beside 200 requests a second."""
    nginx = bench.nginx("return 200 ok;")
    bench.load(nginx.address, connections=8, rate=200)
    bench.load(nginx.address, b"", "bytes:0", connections=2, rate=20, reconnect=1)
    return Subject([nginx.pid])


@case("Redis", BOTH, needs=("redis-server",))
def redis_blocking_queue(bench: Bench) -> Subject:
    """Ten workers wait for 40 jobs a second."""
    redis = bench.redis()
    bench.load(
        redis.address,
        b"*3\r\n$5\r\nRPUSH\r\n$1\r\nq\r\n$1\r\n1\r\n",
        "resp",
        connections=1,
        rate=40,
    )
    bench.load(
        redis.address, b"*3\r\n$5\r\nBLPOP\r\n$1\r\nq\r\n$1\r\n0\r\n", "resp", connections=10
    )
    return Subject([redis.pid])


@case("Redis", BOTH, needs=("redis-server",))
def redis_moderate(bench: Bench) -> Subject:
    """1,000 small reads a second."""
    redis = bench.redis()
    bench.load(redis.address, b"GET k\r\n", "resp", connections=8, rate=1000, poisson=1)
    return Subject([redis.pid])


@case("PostgreSQL", BOTH, needs=("postgres", "initdb", "psql", "pgbench"))
def postgres_moderate(bench: Bench) -> Subject:
    """100 small transactions a second over kept connections."""
    postgres = Postgres(bench)
    postgres.run("CREATE TABLE t AS SELECT n, 0 AS v FROM generate_series(1, 1000) n")
    postgres.run("CREATE INDEX ON t (n)")
    script = "\\set k random(1, 1000)\nSELECT v FROM t WHERE n = :k;"
    postgres.pgbench(script, 4, "--rate=100")
    return Subject([postgres.pid])


@case("Caddy", BOTH, needs=("caddy",))
def caddy_moderate(bench: Bench) -> Subject:
    """Short replies, 150 requests a second."""
    caddy = bench.caddy('respond "hello"')
    bench.load(caddy.address, connections=4, rate=150)
    return Subject([caddy.pid])


@case("memcached", BOTH, needs=("memcached",))
def memcached_moderate(bench: Bench) -> Subject:
    """500 reads a second."""
    server = bench.memcached()
    bench.load(server.address, b"get k\r\n", "until:END\\r\\n", connections=4, rate=500)
    return Subject([server.pid])


@case("Python threads")
def threads_and_a_quick_log(bench: Bench) -> Subject:
    """A line to a datagram socket for each of 200 requests a second; somebody reads it."""
    server = bench.threaded(f"log={log_reader(bench, 100_000)[1]}")
    bench.load(server.address, connections=8, rate=200, poisson=1)
    return Subject([server.pid])


@case("Python threads", BOTH)
def threads_and_slow_uploads(bench: Bench) -> Subject:
    """Requests of 100 KB from clients that send 200 KB/s: half a second each, of their making."""
    server = bench.threaded()
    bench.uploads(server.address, connections=6, bytes_per_s=200_000)
    return Subject([server.pid], ["its client"])


@case("Python threads", (TCP,))
def two_sends_at_once_acknowledged(bench: Bench) -> Subject:
    """Head and body in two sends; the client acknowledges at once, and thinks for 100 ms."""
    server = bench.threaded("parts=2")
    bench.load(server.address, connections=6, quickack=1, think_ms=100)
    return Subject([server.pid])


@case("Python threads", (TCP,))
def two_sends_without_delay(bench: Bench) -> Subject:
    """Head and body in two sends with TCP_NODELAY, 150 requests a second."""
    server = bench.threaded("parts=2", "nodelay=1")
    bench.load(server.address, connections=6, rate=150)
    return Subject([server.pid])


@case("Python threads", (TCP,))
def threads_that_hand_over_now_and_then(bench: Bench) -> Subject:
    """Each of 20 requests a second waits 3 ms for another thread, which computes for it alone."""
    server = bench.threaded("worker_ms=3")
    bench.load(server.address, connections=4, rate=20, poisson=1)
    return Subject([server.pid])
