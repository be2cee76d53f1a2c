"""Illnesses that begin and end while a service runs: what `incidents` plants.

Each is a generator. What is before its first `yield`, which gives the PIDs to observe, is a service
with a load that is well; from there to the second it falls ill; after that it is well again. The
illness is that of a case of the lab. Knows nothing of how they are observed.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, List

from tests.scenarios.bench import HTTP_REQUEST, LOAD_S, Bench, Server
from tests.scenarios.case import CAUSES, TCP, UNIX
from tests.scenarios.cases.accept_queue_full import TOGETHER
from tests.scenarios.cases.app_blocked import HOLDER
from tests.scenarios.cases.cpu_contention import BURN
from tests.scenarios.cases.send_blocked import MB, SLOW, SLOWLY, log_reader
from tests.scenarios.postgres import Postgres

Course = Iterator[List[int]]
KEPT = 'proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";'
PING = b"PING\r\n"


@dataclass(frozen=True)
class Illness:
    """One of them; `needs`: programs that must be installed."""

    name: str
    cause: str
    transport: str
    needs: List[str]
    course: Callable[[Bench], Course]


_illnesses: List[Illness] = []


def illness(
    cause: str, transport: str, *needs: str
) -> Callable[[Callable[[Bench], Course]], Callable[[Bench], Course]]:
    """Register a generator under the cause that is true while the service is ill."""
    assert cause in CAUSES, cause

    def register(course: Callable[[Bench], Course]) -> Callable[[Bench], Course]:
        name = f"{cause}/{course.__name__.replace('_', '-')}"
        _illnesses.append(Illness(name, cause, transport, list(needs), course))
        return course

    return register


def all_illnesses() -> List[Illness]:
    """In the order of the causes."""
    return sorted(_illnesses, key=lambda one: CAUSES.index(one.cause))


def turn(server: Server, knobs: str, **values: object) -> None:
    """Have a server that was started with `knobs=…` read other options."""
    Path(knobs).write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    os.kill(server.pid, signal.SIGUSR2)


@illness("accept-queue-full", UNIX, "node")
def clients_of_node_come_together(bench: Bench) -> Course:
    """Its queue has room for 8, and 96 clients connect at once."""
    node = bench.node("backlog=8")
    bench.load(node.address, connections=4, rate=100)
    yield [node.pid]
    storm = bench.load(node.address, refuse_wait=1, reconnect=1, **TOGETHER)
    yield []
    storm.end()


@illness("accept-queue-full", TCP, "nginx")
def clients_of_nginx_come_together(bench: Bench) -> Course:
    """Its queue has room for 4."""
    nginx = bench.nginx("return 200 ok;", listen="backlog=4")
    bench.load(nginx.address, connections=4, rate=100)
    yield [nginx.pid]
    storm = bench.load(nginx.address, refuse_wait=1, reconnect=1, **TOGETHER)
    yield []
    storm.end()


@illness("accept-queue-full", TCP, "redis-server")
def clients_of_redis_come_together(bench: Bench) -> Course:
    """tcp-backlog 4: SYNs are dropped."""
    redis = bench.redis("--tcp-backlog", "4")
    bench.load(redis.address, PING, "resp", connections=4, rate=200)
    yield [redis.pid]
    storm = bench.load(redis.address, PING, "resp", reconnect=1, **TOGETHER)
    yield []
    storm.end()


@illness("accept-starved", UNIX, "node")
def node_is_stopped(bench: Bench) -> Course:
    """By a signal; clients go on to connect."""
    node = bench.node()
    bench.load(node.address, connections=4, think_ms=50)
    yield [node.pid]
    os.kill(node.pid, signal.SIGSTOP)
    waiting = bench.load(node.address, connections=40, warm=0)
    yield []
    os.kill(node.pid, signal.SIGCONT)
    waiting.end()


@illness("accept-starved", UNIX, "haproxy")
def seats_of_haproxy_are_taken(bench: Bench) -> Course:
    """maxconn 4, held by kept connections; the queue of 8 stays full."""
    haproxy = bench.haproxy("maxconn 4\n    backlog 8")
    bench.load(haproxy.address, connections=2, think_ms=20)
    yield [haproxy.pid]
    kept = bench.load(haproxy.address, connections=4, think_ms=20, warm=0)
    others = bench.load(haproxy.address, connections=24, refuse_wait=1, warm=0)
    yield []
    others.end()
    kept.end()


@illness("accept-starved", UNIX)
def silent_clients_hold_gunicorn(bench: Bench) -> Course:
    """Both sync workers read from connections that say nothing."""
    server = bench.gunicorn("--timeout", "120")
    bench.load(server.address, connections=2, rate=50)
    yield [server.pid]
    silent = bench.load(server.address, connections=12, warm=0, idle=2)
    yield []
    silent.end()


@illness("connect-failing", UNIX, "nginx")
def upstream_of_nginx_dies(bench: Bench) -> Course:
    """Its socket file stays: ECONNREFUSED."""
    app = bench.asyncio()
    nginx = bench.nginx(
        f"proxy_pass http://unix:{app.address};", address=bench.address("nginx", TCP)
    )
    bench.load(nginx.address, connections=4, rate=100)
    yield [nginx.pid]
    app.end()
    yield []
    Path(app.address).unlink()
    bench.asyncio(address=app.address)


@illness("connect-failing", UNIX, "nginx", "node")
def nginx_may_not_any_more(bench: Bench) -> Course:
    """Somebody changes the mode of the app's socket: EACCES."""
    node = bench.node()
    os.chmod(node.address, 0o777)
    nginx = bench.nginx(
        f"proxy_pass http://unix:{node.address};",
        main="user nobody nogroup;",
        address=bench.address("nginx", TCP),
    )
    bench.load(nginx.address, connections=4, rate=100)
    yield [nginx.pid]
    os.chmod(node.address, 0o700)
    yield []
    os.chmod(node.address, 0o777)


@illness("connect-failing", UNIX, "node")
def upstream_of_node_is_moved(bench: Bench) -> Course:
    """Its socket file has another name: ENOENT."""
    app = bench.asyncio()
    node = bench.node(f"upstream={app.address}", "keep=0")
    bench.load(node.address, connections=4, rate=100)
    yield [node.pid]
    elsewhere = Path(app.address).rename(bench.folder / "elsewhere.sock")
    yield []
    elsewhere.rename(app.address)


@illness("fd-limit", UNIX)
def too_many_clients_of_asyncio(bench: Bench) -> Course:
    """100 come, and it may open 64 descriptors."""
    server = bench.asyncio(prefix=["prlimit", "--nofile=64:64"])
    bench.load(server.address, connections=8, think_ms=100)
    yield [server.pid]
    crowd = bench.load(server.address, connections=100, think_ms=100)
    yield []
    crowd.end()


@illness("fd-limit", TCP, "go")
def too_many_clients_of_go(bench: Bench) -> Course:
    """100 come, and it may open 64 descriptors; Go tries again later."""
    server = bench.go(prefix=["prlimit", "--nofile=64:64"])
    bench.load(server.address, connections=8, think_ms=100)
    yield [server.pid]
    crowd = bench.load(server.address, connections=100, think_ms=100)
    yield []
    crowd.end()


@illness("send-blocked", UNIX, "node")
def readers_of_node_are_slow(bench: Bench) -> Course:
    """Replies of 8 MB, and clients that read 400 kB/s."""
    node = bench.node(f"body={8 * MB}")
    bench.load(node.address, connections=2, rate=2, warm=2)
    yield [node.pid]
    slow = bench.load(node.address, HTTP_REQUEST, "http", read_rate=SLOWLY, **SLOW)
    yield []
    slow.end()


@illness("send-blocked", UNIX, "redis-server")
def readers_of_redis_are_slow(bench: Bench) -> Course:
    """Values of 4 MB for clients that hardly read."""
    redis = bench.redis("--client-output-buffer-limit", "normal 0 0 0")
    _store(bench, redis, MB // 2)
    bench.load(redis.address, PING, "resp", connections=2, rate=100)
    yield [redis.pid]
    slow = bench.load(redis.address, b"GET k\r\n" * 8, "resp", read_rate=SLOWLY, **SLOW)
    yield []
    slow.end()


@illness("send-blocked", UNIX)
def the_log_is_slow(bench: Bench) -> Course:
    """It takes 20 messages a second: each request of the threads waits to write its line."""
    log, path = log_reader(bench, 100_000, otherwise=20)
    server = bench.threaded(f"log={path}")
    bench.load(server.address, connections=16, rate=200)
    yield [server.pid]
    os.kill(log.pid, signal.SIGUSR2)
    yield []
    os.kill(log.pid, signal.SIGUSR2)


@illness("connection-churn", TCP, "redis-server")
def clients_of_redis_without_a_pool(bench: Bench) -> Course:
    """They connect for each request, as fast as they may."""
    redis = bench.redis()
    bench.load(redis.address, PING, "resp", connections=4, rate=200)
    yield [redis.pid]
    others = bench.load(redis.address, PING, "resp", connections=8, reconnect=1)
    yield []
    others.end()


@illness("connection-churn", UNIX)
def clients_of_asyncio_without_a_pool(bench: Bench) -> Course:
    """The same."""
    server = bench.asyncio()
    bench.load(server.address, connections=4, rate=100)
    yield [server.pid]
    others = bench.load(server.address, connections=8, reconnect=1)
    yield []
    others.end()


@illness("app-cpu", UNIX, "redis-server")
def somebody_asks_redis_for_keys(bench: Bench) -> Course:
    """KEYS over 100,000 keys; small reads wait behind it."""
    redis = bench.redis()
    fill = b"DEBUG POPULATE 100000\r\n"
    bench.load(redis.address, fill, "resp", connections=1, rate=1, warm=1).result()
    bench.load(redis.address, b"GET key:1\r\n", "resp", connections=4, rate=200)
    yield [redis.pid]
    keys = bench.load(redis.address, b"KEYS nothing*\r\n", "until:\r\n", connections=2)
    yield []
    keys.end()


@illness("app-cpu", UNIX, "node")
def node_begins_to_compute(bench: Bench) -> Course:
    """20 ms in each of 100 requests a second: more than there is of one thread."""
    knobs = bench.file("knobs", "")
    node = bench.node(f"knobs={knobs}")
    bench.load(node.address, connections=4, rate=100)
    yield [node.pid]
    turn(node, knobs, spin_ms=20)
    yield []
    turn(node, knobs, spin_ms=0)


@illness("app-cpu", TCP, "nginx")
def clients_of_nginx_want_it_compressed(bench: Bench) -> Course:
    """gzip at level 9 of a megabyte of text in each reply."""
    bench.file("text.txt", "".join(f"{number} {number * number}\n" for number in range(70_000)))
    nginx = bench.nginx(
        f"root {bench.folder}; gzip on; gzip_comp_level 9; gzip_types *; try_files /text.txt =404;"
    )
    bench.load(nginx.address, connections=2, rate=20)
    yield [nginx.pid]
    request = b"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"
    others = bench.load(nginx.address, request, connections=2)
    yield []
    others.end()


@illness("app-blocked", UNIX)
def asyncio_begins_to_sleep(bench: Bench) -> Course:
    """50 ms in each request."""
    knobs = bench.file("knobs", "")
    server = bench.asyncio(f"knobs={knobs}")
    bench.load(server.address, connections=8, rate=100)
    yield [server.pid]
    turn(server, knobs, sleep_ms=50)
    yield []
    turn(server, knobs, sleep_ms=0)


@illness("app-blocked", UNIX, "postgres", "initdb", "psql", "pgbench")
def a_session_holds_a_row(bench: Bench) -> Course:
    """It has updated it and is idle in its transaction: four clients wait for it."""
    postgres = Postgres(bench)
    postgres.run("CREATE TABLE t (n bigint); INSERT INTO t VALUES (0)")
    postgres.pgbench("UPDATE t SET n = n + 1;", 4, "--rate=50")
    yield [postgres.pid]
    session = postgres.hold("BEGIN; UPDATE t SET n = n + 1;")
    yield []
    session.end()


@illness("app-blocked", UNIX)
def somebody_holds_the_lock_file(bench: Bench) -> Course:
    """Two sync workers of gunicorn wait for it: nothing completes."""
    lock = bench.folder / "lock"
    server = bench.gunicorn(FLOCK_MS=1, LOCK_FILE=lock)
    bench.load(server.address, connections=4, rate=50)
    yield [server.pid]
    holder = bench.start([sys.executable, "-c", HOLDER, str(lock), str(LOAD_S)], "holder")
    bench.wait_until(lambda: holder.log.read_bytes() == b"held\n", "the lock is taken", holder)
    yield []
    holder.end()


@illness("upstream-wait", UNIX, "node")
def upstream_of_node_begins_to_sleep(bench: Bench) -> Course:
    """30 ms in each request."""
    knobs = bench.file("knobs", "")
    app = bench.asyncio(f"knobs={knobs}")
    node = bench.node(f"upstream={app.address}")
    bench.load(node.address, connections=8, rate=100)
    yield [node.pid]
    turn(app, knobs, sleep_ms=30)
    yield []
    turn(app, knobs, sleep_ms=0)


@illness("upstream-wait", UNIX, "nginx", "node")
def upstream_of_nginx_begins_to_sleep(bench: Bench) -> Course:
    """40 ms in each request; the connections to it are kept."""
    knobs = bench.file("knobs", "")
    node = bench.node(f"knobs={knobs}")
    app = f"upstream app {{ server unix:{node.address}; keepalive 32; }}"
    nginx = bench.nginx(KEPT, upstream=app, address=bench.address("nginx", TCP))
    bench.load(nginx.address, connections=8, rate=100)
    yield [nginx.pid]
    turn(node, knobs, sleep_ms=40)
    yield []
    turn(node, knobs, sleep_ms=0)


@illness("cpu-contention", UNIX, "node")
def burners_come_beside_node(bench: Bench) -> Course:
    """Three for each CPU, beside a Node that needs half of one."""
    node = bench.node("spin_ms=2")
    bench.load(node.address, connections=4, rate=250)
    yield [node.pid]
    count = 3 * (os.cpu_count() or 1)
    burners = [bench.start([sys.executable, "-c", BURN], "burner") for _ in range(count)]
    yield []
    for burner in burners:
        burner.end()


@illness("cpu-contention", UNIX, "node")
def the_quota_of_node_is_lowered(bench: Bench) -> Course:
    """To 20 % of a CPU; the load needs about 40 %."""
    node = bench.node("spin_ms=3")
    group = bench.limit_cpu(node.pid, 400)
    bench.load(node.address, connections=4, rate=120)
    yield [node.pid]
    bench.set_quota(group, 20)
    yield []
    bench.set_quota(group, 400)


@illness("transport", TCP, "redis-server")
def somebody_reads_large_values(bench: Bench) -> Course:
    """GET of 512 KB, as fast as may be."""
    redis = bench.redis()
    _store(bench, redis, MB // 2)
    bench.load(redis.address, PING, "resp", connections=2, rate=100)
    yield [redis.pid]
    readers = bench.load(redis.address, b"GET k\r\n", "resp", connections=4)
    yield []
    readers.end()


def _store(bench: Bench, redis: Server, size: int) -> None:
    """A value of that many bytes under `k`."""
    store = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%b\r\n" % (size, b"x" * size)
    bench.load(redis.address, store, "resp", connections=1, rate=1, warm=1).result()
