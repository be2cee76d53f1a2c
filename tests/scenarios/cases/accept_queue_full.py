"""Short queues and clients that come together; the servers themselves have time to spare."""

from __future__ import annotations

import os
from typing import Tuple

from tests.scenarios.bench import Bench, Load, Server
from tests.scenarios.case import BOTH, TCP, UNIX, Subject, case

# On every CPU, the server's too: a storm that runs beside it takes nothing from it.
EVERYWHERE = ["taskset", "--cpu-list", f"0-{(os.cpu_count() or 1) - 1}"]
TOGETHER = {"connections": 96, "burst_ms": 250}


@case("Node", BOTH, needs=("node",), quick=UNIX)
def node_backlog_of_8(bench: Bench, backlog: int = 8, reconnect: int = 1) -> Subject:
    """96 clients connect at once, four times a second; listen() asked for 8."""
    node = bench.node(f"backlog={backlog}")
    bench.load(node.address, refuse_wait=1, reconnect=reconnect, **TOGETHER)
    return Subject([node.pid], [node.address])


@case("gunicorn")
def gunicorn_backlog_of_4(bench: Bench, backlog: int = 4) -> Subject:
    """Clients that connect at once wait inside connect(): --backlog 4."""
    server = bench.gunicorn("--backlog", str(backlog))
    bench.load(server.address, connections=40, burst_ms=500, reconnect=1)
    return Subject([server.pid], [server.address])


@case("Redis", (TCP,), needs=("redis-server",))
def redis_tcp_backlog_of_4(bench: Bench, backlog: int = 4, reconnect: int = 1) -> Subject:
    """Clients without a pool, all at once; tcp-backlog 4: SYNs are dropped."""
    redis = bench.redis("--tcp-backlog", str(backlog))
    bench.load(redis.address, b"PING\r\n", "resp", reconnect=reconnect, **TOGETHER)
    return Subject([redis.pid], [redis.address])


@case("Go", needs=("go",))
def go_clamped_by_somaxconn(bench: Bench, backlog: int = 8, reconnect: int = 1) -> Subject:
    """Go asks for somaxconn, which is 8 in this network namespace."""
    script = f'echo {backlog} >/proc/sys/net/core/somaxconn; exec "$@"'
    server = bench.go(prefix=["unshare", "--net", "sh", "-c", script, "sh"])
    bench.load(server.address, refuse_wait=1, reconnect=reconnect, **TOGETHER)
    return Subject([server.pid], [server.address, "somaxconn"])


@case("nginx", BOTH, needs=("nginx",))
def nginx_backlog_of_4(bench: Bench, backlog: int = 4, reconnect: int = 1) -> Subject:
    """`listen … backlog=4`, and clients that connect at once."""
    nginx = bench.nginx("return 200 ok;", listen=f"backlog={backlog}")
    bench.load(nginx.address, refuse_wait=1, reconnect=reconnect, **TOGETHER)
    return Subject([nginx.pid], [nginx.address])


@case("nginx", needs=("nginx",))
def app_behind_nginx_backlog_of_4(bench: Bench, backlog: int = 4) -> Subject:
    """nginx opens a connection for each request; the app's queue of 4 refuses them (502)."""
    app = bench.asyncio(f"backlog={backlog}", address=bench.address(transport=UNIX))
    nginx = bench.nginx(
        f"proxy_pass http://unix:{app.address};", address=bench.address("nginx", TCP)
    )
    bench.load(nginx.address, connections=64, burst_ms=250)
    return Subject([nginx.pid, app.pid], [app.address])


@case("nginx", (TCP,), needs=("nginx",))
def nginx_whose_upstream_has_a_backlog_of_4(bench: Bench, backlog: int = 4) -> Subject:
    """Attached to nginx alone: what the app's queue has no room for connects after a second."""
    app = bench.asyncio(f"backlog={backlog}", address=bench.address(transport=TCP))
    nginx = bench.nginx(f"proxy_pass http://{app.address};", address=bench.address("nginx", TCP))
    bench.load(nginx.address, connections=64, burst_ms=250)
    return Subject([nginx.pid], [app.address])


@case("asyncio", (TCP,))
def asyncio_backlog_of_2(bench: Bench, backlog: int = 2, reconnect: int = 1) -> Subject:
    """A backlog of 2 and clients that connect at once: SYNs are dropped, clients wait a second."""
    server = bench.asyncio(f"backlog={backlog}")
    bench.load(server.address, reconnect=reconnect, **TOGETHER)
    return Subject([server.pid], [server.address])


def _stormed(bench: Bench, backlog: int) -> Tuple[Server, Load]:
    """16 clients that try again at once, on the CPUs of a server with a short queue."""
    node = bench.node(f"backlog={backlog}")
    load = bench.load(
        node.address,
        prefix=EVERYWHERE,
        connections=16,
        reconnect=1,
        refuse_wait=1,
        retry_ms=0,
    )
    return node, load


@case("Node", needs=("node",), quick=UNIX)
def retry_storm(bench: Bench, backlog: int = 4) -> Subject:
    """Clients that are refused try again at once: they burn the CPU that the server waits for."""
    node, _ = _stormed(bench, backlog)
    return Subject([node.pid], [node.address, "backlog 4"])


@case("Node", needs=("node",), quick=UNIX)
def retry_storm_seen_by_its_clients(bench: Bench, backlog: int = 4) -> Subject:
    """The same, attached to the clients: the queue is another process's, which is named."""
    node, load = _stormed(bench, backlog)
    return Subject([load.pid], [node.address, f"node {node.pid}"])


@case("gunicorn")
def gunicorn_stormed_with_a_backlog_of_1(
    bench: Bench, backlog: int = 1, sleep_ms: int = 5
) -> Subject:
    """Both workers sleep in requests; 16 clients try again at once, and a queue of 2 has no room.

    With room for all, each would wait for 50 ms; without the sleep they are refused all the same.
    """
    server = bench.gunicorn("--backlog", str(backlog), SLEEP_MS=sleep_ms)
    storm = {"refuse_wait": 1, "retry_ms": 1}
    bench.load(server.address, connections=16, reconnect=1, warm=4, **storm)
    return Subject([server.pid], [server.address, "backlog 1"])
