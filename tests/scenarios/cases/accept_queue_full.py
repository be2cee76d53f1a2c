"""Short queues and clients that come together; the servers themselves have time to spare."""

from __future__ import annotations

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, UNIX, Subject, case

TOGETHER = {"connections": 96, "burst_ms": 250, "reconnect": 1}


@case("Node", BOTH, needs=("node",), quick=UNIX)
def node_backlog_of_8(bench: Bench) -> Subject:
    """96 clients connect at once, four times a second; listen() asked for 8."""
    node = bench.node("backlog=8")
    bench.load(node.address, refuse_wait=1, **TOGETHER)
    return Subject([node.pid], [node.address])


@case("gunicorn")
def gunicorn_backlog_of_4(bench: Bench) -> Subject:
    """Clients that connect at once wait inside connect(): --backlog 4."""
    server = bench.gunicorn("--backlog", "4")
    bench.load(server.address, connections=40, burst_ms=500, reconnect=1)
    return Subject([server.pid], [server.address])


@case("Redis", (TCP,), needs=("redis-server",))
def redis_tcp_backlog_of_4(bench: Bench) -> Subject:
    """Clients without a pool, all at once; tcp-backlog 4: SYNs are dropped."""
    redis = bench.redis("--tcp-backlog", "4")
    bench.load(redis.address, b"PING\r\n", "resp", **TOGETHER)
    return Subject([redis.pid], [redis.address])


@case("Go", needs=("go",))
def go_clamped_by_somaxconn(bench: Bench) -> Subject:
    """Go asks for somaxconn, which is 8 in this network namespace."""
    script = 'echo 8 >/proc/sys/net/core/somaxconn; exec "$@"'
    server = bench.go(prefix=["unshare", "--net", "sh", "-c", script, "sh"])
    bench.load(server.address, refuse_wait=1, **TOGETHER)
    return Subject([server.pid], [server.address, "somaxconn"])


@case("nginx", BOTH, needs=("nginx",))
def nginx_backlog_of_4(bench: Bench) -> Subject:
    """`listen … backlog=4`, and clients that connect at once."""
    nginx = bench.nginx("return 200 ok;", listen="backlog=4")
    bench.load(nginx.address, refuse_wait=1, **TOGETHER)
    return Subject([nginx.pid], [nginx.address])


@case("nginx", needs=("nginx",))
def app_behind_nginx_backlog_of_4(bench: Bench) -> Subject:
    """nginx opens a connection for each request; the app's queue of 4 refuses them (502)."""
    app = bench.asyncio("backlog=4", address=bench.address(transport=UNIX))
    nginx = bench.nginx(
        f"proxy_pass http://unix:{app.address};", address=bench.address("nginx", TCP)
    )
    bench.load(nginx.address, connections=64, burst_ms=250)
    return Subject([nginx.pid, app.pid], [app.address])


@case("asyncio", (TCP,))
def asyncio_backlog_of_2(bench: Bench) -> Subject:
    """A backlog of 2 and clients that connect at once: SYNs are dropped, clients wait a second."""
    server = bench.asyncio("backlog=2")
    bench.load(server.address, **TOGETHER)
    return Subject([server.pid], [server.address])
