"""Connections wait in a queue with room: whoever should accept them is elsewhere."""

from __future__ import annotations

import os
import signal

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, UNIX, Subject, case


@case("Python threads", BOTH, quick=UNIX)
def acceptor_pauses(bench: Bench, accept_pause_ms: int = 30, reconnect: int = 1) -> Subject:
    """The accepting thread sleeps 30 ms after each accept, as one that looks names up does."""
    server = bench.threaded(f"accept_pause_ms={accept_pause_ms}", "backlog=128")
    bench.load(server.address, connections=12, think_ms=100, reconnect=reconnect)
    return Subject([server.pid], [server.address])


@case("Python threads", BOTH)
def seats_are_taken(bench: Bench, seats: int = 4) -> Subject:
    """Four seats, held by kept connections that are idle most of the time; the others queue."""
    server = bench.threaded(f"pool={seats}", "backlog=128")
    bench.load(server.address, connections=16, think_ms=50, reconnect=10, warm=80)
    return Subject([server.pid], [server.address])


@case("Python threads")
def acceptor_in_deadlock(bench: Bench, deadlock_after: int = 4) -> Subject:
    """After three connections the accepting thread waits for a lock for ever; three are served."""
    server = bench.threaded(f"deadlock_after={deadlock_after}", "backlog=128")
    bench.load(server.address, connections=24, think_ms=20, warm=40)
    return Subject([server.pid], [server.address])


@case("Python threads", BOTH, quick=UNIX)
def threads_that_cannot_be_started(bench: Bench, tasks: int = 6) -> Subject:
    """A cgroup that allows six: four connections are served, and others closed unread."""
    server = bench.threaded("backlog=128")
    bench.limit_tasks(server.pid, tasks)
    bench.load(server.address, connections=16, think_ms=20, reconnect=10)
    return Subject([server.pid], ["cannot start threads", "pids.max"])


@case("gunicorn", BOTH)
def gunicorn_held_by_silent_clients(bench: Bench, silent_clients: int = 2) -> Subject:
    """Both sync workers read from connections that say nothing, as browsers open in advance."""
    server = bench.gunicorn("--timeout", "120")
    bench.load(server.address, connections=2, rate=50).result()
    bench.load(server.address, connections=12, warm=0, idle=silent_clients)
    return Subject([server.pid], [server.address])


@case("gunicorn", BOTH)
def gunicorn_that_keeps_no_worker(bench: Bench, max_requests: int = 3) -> Subject:
    """Each worker ends after three requests, and one that starts is not there before 0.1 s."""
    server = bench.gunicorn("--max-requests", str(max_requests), workers=4)
    bench.load(server.address, connections=6, warm=12)
    return Subject([server.pid], [server.address, "and others are started in their place"])


@case("Python threads", BOTH, quick=UNIX)
def pool_held_by_uploads(bench: Bench, seats: int = 2) -> Subject:
    """Two threads read the requests of six clients that take half a second to send each; the
    poller has accepted the others, which wait for a thread."""
    server = bench.python("dispatched.py", f"threads={seats}")
    bench.uploads(server.address, connections=6, bytes_per_s=200_000)
    bench.load(server.address, connections=4, think_ms=20, warm=4)
    return Subject([server.pid], [server.address, "hold the threads"])


@case("Node", needs=("node",))
def node_stopped(bench: Bench, stopped: bool = True) -> Subject:
    """The process is stopped, as by a debugger; its clients connect and wait."""
    node = bench.node()
    if stopped:
        os.kill(node.pid, signal.SIGSTOP)
    bench.load(node.address, connections=40, warm=0)
    return Subject([node.pid], [node.address])


@case("HAProxy", BOTH, needs=("haproxy",), quick=UNIX)
def seats_taken_and_the_queue_full(bench: Bench, seats: int = 4) -> Subject:
    """maxconn 4, held by kept connections: its thread has time, and the queue of 8 stays full."""
    haproxy = bench.haproxy(f"maxconn {seats}\n    backlog 8")
    bench.load(haproxy.address, connections=4, think_ms=20)
    bench.load(haproxy.address, connections=24, refuse_wait=1, warm=0)
    return Subject([haproxy.pid], [haproxy.address, "limit of connections"])


@case("C service")
def workers_held_by_clients_that_ask_slowly(bench: Bench, seats: int = 4) -> Subject:
    """Four processes, each kept by its connection for 20 requests: few get in, for seconds."""
    slow = bench.service("kind=threads", "sleep_ms=40", "bytes=256")
    pool = ("pool=64", f"upstream={slow.address}", "upstream_bytes=256")
    service = bench.service("kind=prefork", f"seats={seats}", *pool)
    clients = {"connections": 24, "think_ms": 50, "reconnect": 20}
    bench.load(service.address, b"request\n", "bytes:64", warm=20, **clients)
    return Subject([service.pid], [service.address, "limit of connections"])


@case("C service", BOTH)
def workers_that_sleep_held_by_clients_that_stay(bench: Bench, seats: int = 4) -> Subject:
    """Four processes, each with its client for good, asleep for 20 ms a request: others wait."""
    service = bench.service("kind=prefork", f"seats={seats}", "sleep_ms=20", "bytes=64")
    bench.load(service.address, b"request\n", "bytes:64", connections=16, warm=4)
    return Subject([service.pid], [service.address, "limit of connections"])


@case("nginx", BOTH, needs=("nginx", "node"))
def nginx_without_worker_connections(bench: Bench, seats: int = 24) -> Subject:
    """A worker may have 24, half of them to Node, which takes 20 ms: others are closed unread."""
    node = bench.node("sleep_ms=20", address=bench.address("node", UNIX))
    nginx = bench.nginx(f"proxy_pass http://unix:{node.address};", connections=seats)
    bench.load(nginx.address, connections=24, reconnect=1)
    return Subject([nginx.pid], [nginx.address, "worker_connections"])


@case("Redis", BOTH, needs=("redis-server",), quick=TCP)
def redis_above_maxclients(bench: Bench, seats: int = 8) -> Subject:
    """30 clients where 8 are allowed: the others get an error, are closed, and come again.

    A connection is left after 20 requests, and another client's takes its place.
    """
    redis = bench.redis("--maxclients", str(seats))
    bench.load(redis.address, b"PING\r\n", "resp", connections=30, rate=300, reconnect=20)
    return Subject([redis.pid], [redis.address, "maxclients"])


@case("memcached", BOTH, needs=("memcached",))
def memcached_closes_above_its_limit(bench: Bench, seats: int = 16) -> Subject:
    """maxconns_fast: of 40 clients those above the limit get an error, and are closed."""
    options = ("-c", str(seats), "-o", "maxconns_fast")
    memcached = bench.memcached(*options)
    bench.load(memcached.address, b"get a\r\n", "until:END\\r\\n", connections=40, rate=300)
    return Subject([memcached.pid], [memcached.address, "memcached"])


@case("memcached", BOTH, needs=("memcached",))
def memcached_accepts_no_more(bench: Bench, seats: int = 24) -> Subject:
    """60 kept clients where 24 are allowed: the others wait until one of those leaves."""
    memcached = bench.memcached("-c", str(seats), "-o", "no_maxconns_fast")
    bench.load(memcached.address, b"get a\r\n", "until:END\\r\\n", connections=60, rate=300)
    return Subject([memcached.pid], [memcached.address, "memcached"])
