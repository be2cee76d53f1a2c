"""Somebody does not read what is sent to him."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Tuple

from tests.scenarios.bench import HTTP_REQUEST, Bench, Process
from tests.scenarios.case import BOTH, TCP, UNIX, Subject, case
from tests.scenarios.postgres import Postgres
from tests.scenarios.programs import HERE

MB = 1024 * 1024
SLOW = {"connections": 4, "warm": 0}
SLOWLY = 400_000
# Half a second for 8 MB, in slices as large as the buffer of a client.
STEADY = {"connections": 2, "slice": 65536, "warm": 4}
LONG = {"connections": 1, "slice": 65536, "warm": 0}


@case("Python threads", BOTH, quick=UNIX)
def threads_and_slow_readers(bench: Bench, read_rate: int = SLOWLY) -> Subject:
    """Replies of 8 MB to clients that read 400 kB/s: threads sleep in send()."""
    server = bench.threaded(f"body={8 * MB}")
    load = bench.load(server.address, HTTP_REQUEST, "http", read_rate=read_rate, **SLOW)
    return Subject([server.pid], [str(load.pid)])


@case("Node", needs=("node",))
def node_and_slow_readers(bench: Bench, read_rate: int = SLOWLY) -> Subject:
    """Replies of 8 MB to clients that read 400 kB/s: EAGAIN, then waiting for the poller."""
    node = bench.node(f"body={8 * MB}")
    bench.load(node.address, connections=2, rate=2)
    load = bench.load(node.address, HTTP_REQUEST, "http", read_rate=read_rate, **SLOW)
    return Subject([node.pid], [str(load.pid)])


@case("Python threads", BOTH)
def threads_and_steady_readers(bench: Bench, slice_ms: int = 4) -> Subject:
    """Replies of 8 MB to clients that sleep between slices of 64 KB, 4 ms each."""
    server = bench.threaded(f"body={8 * MB}")
    load = bench.load(server.address, HTTP_REQUEST, "http", slice_ms=slice_ms, **STEADY)
    return Subject([server.pid], [str(load.pid)])


@case("Node", BOTH, needs=("node",))
def node_and_steady_readers(bench: Bench, slice_ms: int = 4) -> Subject:
    """The same from an event loop, which sleeps in its poller."""
    node = bench.node(f"body={8 * MB}")
    load = bench.load(node.address, HTTP_REQUEST, "http", slice_ms=slice_ms, **STEADY)
    return Subject([node.pid], [str(load.pid)])


@case("asyncio", BOTH)
def asyncio_and_a_reply_longer_than_the_window(bench: Bench, slice_ms: int = 8) -> Subject:
    """100 MB to a client that sleeps between slices: 12 s, and no request completes."""
    server = bench.asyncio(f"body={100 * MB}")
    load = bench.load(server.address, HTTP_REQUEST, "http", slice_ms=slice_ms, **LONG)
    return Subject([server.pid], [str(load.pid)])


@case("Python threads", BOTH)
def threads_and_a_reply_longer_than_the_window(bench: Bench, slice_ms: int = 8) -> Subject:
    """The same from a thread: one call to send() lasts all the while."""
    server = bench.threaded(f"body={100 * MB}")
    load = bench.load(server.address, HTTP_REQUEST, "http", slice_ms=slice_ms, **LONG)
    return Subject([server.pid], [str(load.pid)])


@case("gunicorn")
def gunicorn_and_slow_readers(bench: Bench, read_rate: int = 2 * MB) -> Subject:
    """Two sync workers that send 1 MB to slow clients: nobody else is served meanwhile."""
    server = bench.gunicorn(BODY=MB)
    load = bench.load(server.address, connections=6, read_rate=read_rate, warm=4)
    return Subject([server.pid], [str(load.pid)])


@case("Redis", BOTH, needs=("redis-server",))
def redis_and_slow_readers(bench: Bench, read_rate: int = SLOWLY) -> Subject:
    """Values of 4 MB for clients that hardly read, beside clients that are well."""
    redis = bench.redis("--client-output-buffer-limit", "normal 0 0 0")
    value = b"x" * (MB // 2)
    store = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%b\r\n" % (len(value), value)
    bench.load(redis.address, store, "resp", connections=1, rate=1, warm=1).result()
    bench.load(redis.address, b"PING\r\n", "resp", connections=2, rate=100)
    load = bench.load(redis.address, b"GET k\r\n" * 8, "resp", read_rate=read_rate, **SLOW)
    return Subject([redis.pid], [str(load.pid)])


@case("PostgreSQL", needs=("postgres", "initdb", "psql"))
def postgres_and_a_slow_reader(bench: Bench) -> Subject:
    """COPY TO STDOUT to a psql whose output is taken at 400 kB/s."""
    postgres = Postgres(bench)
    rows = "SELECT repeat('x', 1000) FROM generate_series(1, 200000)"
    postgres.copy_slowly(rows, [sys.executable, str(HERE / "load/slow_reader.py"), "400000"])
    return Subject([postgres.pid], ["psql"])


@case("asyncio", (TCP,))
def asyncio_and_slow_readers(bench: Bench, read_rate: int = SLOWLY) -> Subject:
    """drain() waits for clients that read 400 kB/s of replies of 8 MB."""
    server = bench.asyncio(f"body={8 * MB}")
    load = bench.load(server.address, HTTP_REQUEST, "http", read_rate=read_rate, **SLOW)
    return Subject([server.pid], [str(load.pid)])


@case("Python threads", BOTH)
def threads_and_a_slow_log(bench: Bench, log_rate: int = 20) -> Subject:
    """A line to syslog's socket for each request, which takes 20 a second: its queue is full."""
    server = bench.threaded(f"log={log_reader(bench, log_rate)[1]}")
    bench.load(server.address, connections=16)
    return Subject([server.pid], ["datagram", "sendto"])


@case("Python threads", (TCP,))
def threads_and_a_slow_log_behind_a_lock(bench: Bench, log_rate: int = 20) -> Subject:
    """As logging.handlers.SysLogHandler: one thread sleeps in the send, the others for its lock."""
    log, path = log_reader(bench, log_rate)
    server = bench.threaded(f"log={path}", "log_lock=1")
    bench.load(server.address, connections=16)
    return Subject([server.pid], ["holds a lock", f"python {log.pid}"])


@case("asyncio", (UNIX,))
def asyncio_and_a_slow_log(bench: Bench, log_rate: int = 20) -> Subject:
    """The same from an event loop, which stands still for each line."""
    server = bench.asyncio(f"log={log_reader(bench, log_rate)[1]}")
    bench.load(server.address, connections=16)
    return Subject([server.pid], ["datagram", "sendto"])


def log_reader(bench: Bench, rate: int, otherwise: int = 0) -> Tuple[Process, str]:
    """A process that takes that many messages a second, and the path of its datagram socket.

    Args:
        otherwise: its rate after SIGUSR2.
    """
    path = str(bench.folder / "log.sock")
    rates = [str(rate), str(otherwise or rate)]
    log = bench.start([sys.executable, str(HERE / "load/log_reader.py"), path, *rates], "log")
    bench.wait_until(Path(path).exists, "the log is there")
    return log, path


@case("C service", (TCP,))
def a_reader_that_stops_before_the_buffer_is_full(bench: Bench, stop_after: int = 65536) -> Subject:
    """Replies of 1.4 MB fit into TCP's send buffer: their sender goes on, and nobody reads."""
    service = bench.service("kind=threads", "bytes=1400000")
    load = bench.load(service.address, b"request\n", "bytes:1400000", stop_after=stop_after, **SLOW)
    return Subject([service.pid], [str(load.pid)])


@case("Python threads", BOTH)
def threads_and_readers_of_replies_that_fit(bench: Bench, slice_ms: int = 20) -> Subject:
    """Replies of 1 MB to clients that sleep 20 ms between slices: TCP's buffer takes all of one."""
    server = bench.threaded(f"body={MB}")
    load = bench.load(server.address, HTTP_REQUEST, "http", slice_ms=slice_ms, **STEADY)
    return Subject([server.pid], [str(load.pid)])


@case("Node", (TCP,), needs=("node",))
def node_and_readers_of_replies_that_fit(bench: Bench, slice_ms: int = 20) -> Subject:
    """The same from an event loop, which never stops for them."""
    node = bench.node(f"body={MB}")
    load = bench.load(node.address, HTTP_REQUEST, "http", slice_ms=slice_ms, **STEADY)
    return Subject([node.pid], [str(load.pid)])
