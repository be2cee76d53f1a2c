"""The application sleeps while it owes a reply, and waits for no upstream."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Tuple

from tests.scenarios.bench import LOAD_S, Bench
from tests.scenarios.case import BOTH, TCP, UNIX, Subject, case
from tests.scenarios.postgres import Postgres
from tests.scenarios.programs import HERE
from udsprobe.kernel.proc.procfs import Procfs

HOLDER = (
    "import fcntl, sys, time\n"
    "with open(sys.argv[1], 'w') as held:\n"
    "    fcntl.flock(held, fcntl.LOCK_EX)\n"
    "    print('held', flush=True)\n"
    "    time.sleep(float(sys.argv[2]))\n"
)
LOCK = "BEGIN; UPDATE t SET n = n + 1; SELECT pg_sleep({}); COMMIT;"


@case("asyncio", BOTH, quick=UNIX)
def asyncio_timer(bench: Bench, sleep_ms: int = 50) -> Subject:
    """asyncio.sleep(0.05) in each request: the wait is inside the poller."""
    server = bench.asyncio(f"sleep_ms={sleep_ms}")
    bench.load(server.address, connections=8)
    return Subject([server.pid], ["sleep (asyncio.sleep)", "Service.work"])


@case("asyncio", BOTH, quick=TCP)
def asyncio_mutex(bench: Bench, sleep_ms: int = 10) -> Subject:
    """Each request sleeps for 10 ms while it has the one asyncio.Lock."""
    server = bench.asyncio(f"mutex_ms={sleep_ms}")
    bench.load(server.address, connections=12)
    return Subject([server.pid], ["wait for a lock (asyncio.Lock)", "Service.work"])


@case("Node", needs=("node",))
def node_timer(bench: Bench, sleep_ms: int = 50) -> Subject:
    """setTimeout of 50 ms in each request."""
    node = bench.node(*([f"sleep_ms={sleep_ms}"] if sleep_ms else []))
    bench.load(node.address, connections=8)
    return Subject([node.pid])


@case("Node", BOTH, needs=("node",), quick=TCP)
def node_forgets_replies(bench: Bench, forgets: bool = True) -> Subject:
    """One request in three waits for a promise that nothing settles; clients wait for 0.3 s."""
    node = bench.node(*(["one_in=3", "forget=1"] if forgets else []))
    bench.load(node.address, connections=8, rate=100, timeout_ms=300)
    return Subject([node.pid], ["give up", f"node {node.pid}"])


@case("asyncio", BOTH)
def asyncio_forgets_replies(bench: Bench, forgets: bool = True) -> Subject:
    """The same with asyncio's streams, which keep the connections of clients that are gone."""
    server = bench.asyncio(*(["one_in=3", "forget=1"] if forgets else []))
    bench.load(server.address, connections=8, rate=100, timeout_ms=300)
    return Subject([server.pid], ["give up", "CLOSE_WAIT"])


@case("asyncio", BOTH)
def asyncio_drops_requests(bench: Bench, drops: bool = True) -> Subject:
    """One request in four fails after 20 ms, and has its connection closed without a reply."""
    server = bench.asyncio(*(["one_in=4", "sleep_ms=20", "drop=1"] if drops else []))
    bench.load(server.address, connections=8, rate=200)
    return Subject([server.pid], ["closes their connections"])


@case("asyncio", BOTH)
def asyncio_that_waits_in_vain(bench: Bench, waits_in_vain: bool = True) -> Subject:
    """One request in four waits 300 ms for something that does not come, and is answered 504."""
    ill = ("one_in=4", "sleep_ms=300", "status=504")
    server = bench.asyncio(*(ill if waits_in_vain else []))
    bench.load(server.address, connections=16, rate=100)
    return Subject([server.pid], ["sleep (asyncio.sleep)"])


@case("Go", BOTH, needs=("go",))
def go_forgets_replies(bench: Bench, forgets: bool = True) -> Subject:
    """The same with a channel into which nobody sends."""
    server = bench.go(*(["one_in=3", "forget=1"] if forgets else []))
    bench.load(server.address, connections=8, rate=100, timeout_ms=300)
    return Subject([server.pid], ["give up", "CLOSE_WAIT", "ctx.Done()"])


@case("Node", BOTH, needs=("node",))
def node_that_hangs(bench: Bench, hang_after: int = 200) -> Subject:
    """Since before udsprobe came its loop waits for a child process, which takes a minute."""
    node = bench.node(f"hang_after={hang_after}")
    bench.load(node.address, connections=8, rate=400)
    if hang_after < 1_000_000:
        bench.wait_until(lambda: b"hangs" in node.log.read_bytes(), "it hangs", node)
    return Subject([node.pid], ["of which none can be its client's"])


@case("Node", needs=("node",))
def node_child(bench: Bench, sleep_ms: int = 100) -> Subject:
    """Each request runs a child process that takes 100 ms."""
    node = bench.node(*([f"child_s={sleep_ms / 1000}"] if sleep_ms else []))
    bench.load(node.address, connections=2)
    return Subject([node.pid])


@case("Node", needs=("node",))
def node_and_a_full_pipe(bench: Bench, pipe_rate: int = 20) -> Subject:
    """A line of 2,000 bytes to a pipe for each request, whose reader takes 20 of them a second."""
    reader, path = pipe_reader(bench, pipe_rate)
    node = bench.node(f"log_to={path}")
    bench.load(node.address, connections=6)
    return Subject([node.pid], ["a pipe that is full", reader])


@case("Python threads", (TCP,))
def threads_and_a_full_pipe_behind_a_lock(bench: Bench, pipe_rate: int = 20) -> Subject:
    """The same, as logging.StreamHandler: one thread writes, and the others wait for its lock."""
    reader, path = pipe_reader(bench, pipe_rate)
    server = bench.threaded(f"log_to={path}", "log_lock=1")
    bench.load(server.address, connections=6)
    return Subject([server.pid], ["a pipe that is full, and holds a lock", reader])


@case("Go", (UNIX,), needs=("go",))
def go_and_a_full_pipe(bench: Bench, pipe_rate: int = 20) -> Subject:
    """The same by Go's log package, whose lock goroutines wait for."""
    reader, path = pipe_reader(bench, pipe_rate)
    server = bench.go(f"log_to={path}")
    bench.load(server.address, connections=6)
    return Subject([server.pid], ["a pipe that is full", reader])


def pipe_reader(bench: Bench, rate: int) -> Tuple[str, Path]:
    """A process that takes so many lines a second from a pipe: its name, and the pipe's path."""
    path = bench.folder / "log.pipe"
    os.mkfifo(path)
    reader = [sys.executable, str(HERE / "load/pipe_reader.py"), str(path), str(rate)]
    return f"python {bench.start(reader, 'reader').pid}", path


@case("Python threads", BOTH)
def a_pool_whose_threads_sleep(bench: Bench, sleep_ms: int = 50) -> Subject:
    """One thread polls and two reply, which wait on a condition, with a time limit, meanwhile."""
    server = bench.python("dispatched.py", "threads=2", f"wait_ms={sleep_ms}")
    bench.load(server.address, connections=12)
    return Subject([server.pid], ["a timer"])


@case("Python threads", BOTH)
def a_pool_that_is_handed_requests_and_sleeps(bench: Bench, sleep_ms: int = 20) -> Subject:
    """One thread polls and reads; eight reply, and sleep first; eight more requests wait."""
    server = bench.python("dispatched.py", "threads=8", "read=1", f"sleep_ms={sleep_ms}")
    bench.load(server.address, connections=16)
    return Subject([server.pid], ["a timer (clock_nanosleep)"])


@case("Node", (TCP,), needs=("node",))
def node_main_thread_waits(bench: Bench, sleep_ms: int = 20) -> Subject:
    """A synchronous wait of 20 ms stops the event loop."""
    node = bench.node(f"stuck_ms={sleep_ms}")
    bench.load(node.address, connections=4)
    return Subject([node.pid])


@case("Node", BOTH, needs=("node",))
def node_whose_answers_lie_unread(bench: Bench, sleep_ms: int = 20) -> Subject:
    """The same behind an upstream that answers at once: the loop is not there to read that."""
    upstream = bench.node(address=bench.address("upstream"))
    node = bench.node(f"stuck_ms={sleep_ms}", f"upstream={upstream.address}")
    bench.load(node.address, connections=8)
    return Subject([node.pid])


@case("Node", BOTH, needs=("node",), quick=TCP)
def node_one_worker_of_two_waits(bench: Bench, sleep_ms: int = 40) -> Subject:
    """Each worker has three of six connections: the one takes 120 ms, and the mean is 1.3 ms."""
    node = bench.node("workers=2", "only=1", f"stuck_ms={sleep_ms}")
    bench.wait_until(lambda: node.log.read_bytes().count(b"listens") == 2, "both listen", node)
    bench.load(node.address, connections=6, think_ms=1)
    return Subject([node.pid], ["requests of node"])


@case("asyncio")
def asyncio_housekeeping(bench: Bench, sleep_ms: int = 300) -> Subject:
    """time.sleep(0.3) in the loop, twice in a second; requests wait for the loop."""
    server = bench.asyncio("pause_every_ms=200", f"pause_ms={sleep_ms}")
    bench.load(server.address, connections=8, rate=80, poisson=1)
    return Subject([server.pid])


@case("asyncio", BOTH, quick=TCP)
def asyncio_replies_in_pieces(bench: Bench, sleep_ms: int = 20) -> Subject:
    """The reply begins at once, and its four parts come 20 ms after each other."""
    server = bench.asyncio("pieces=4", f"piece_ms={sleep_ms}")
    bench.load(server.address, connections=8)
    return Subject([server.pid], ["the rest of its reply"])


@case("nginx", BOTH, needs=("nginx",))
def nginx_limits_its_rate(bench: Bench, limited: bool = True) -> Subject:
    """Files of 300 KB at 256 KB a second."""
    (bench.folder / "page").write_bytes(b"x" * 300_000)
    limit = "limit_rate 256k;" if limited else ""
    nginx = bench.nginx(f"root {bench.folder}; {limit} try_files /page =404;")
    bench.load(nginx.address, connections=12)
    return Subject(bench.family(nginx.pid), ["the rest of its reply"])


@case("asyncio", BOTH)
def asyncio_and_a_full_pool_of_threads(bench: Bench, sleep_ms: int = 40) -> Subject:
    """Each request sleeps in one of four threads, for which the loop waits; twelve clients."""
    server = bench.asyncio("threads=4", f"thread_ms={sleep_ms}")
    bench.load(server.address, connections=12)
    return Subject([server.pid], ["its own threads"])


@case("asyncio", (TCP,))
def asyncio_and_a_full_pool_of_processes(bench: Bench, sleep_ms: int = 40) -> Subject:
    """Each request sleeps in one of three processes, for which the loop waits; twelve clients."""
    server = bench.asyncio("processes=3", f"process_ms={sleep_ms}")
    bench.load(server.address, connections=12)
    named = ["its own processes, all 3 busy", "export (http_asyncio.py"]
    return Subject(bench.family(server.pid), named)


@case("asyncio", (TCP,))
def asyncio_threads_and_a_lock(bench: Bench, sleep_ms: int = 10) -> Subject:
    """Each request has a thread that holds the one lock for 10 ms."""
    server = bench.asyncio(f"lock_ms={sleep_ms}")
    bench.load(server.address, connections=6)
    return Subject([server.pid])


@case("Node.js", BOTH, needs=("node", "strace"))
def node_that_somebody_traces(bench: Bench, traced: bool = True) -> Subject:
    """strace was left attached: each system call of the event loop stops twice."""
    node = bench.node()
    if not traced:
        bench.load(node.address, connections=8)
        return Subject([node.pid])
    strace = bench.start(["strace", "-o", "/dev/null", "-p", str(node.pid)], "strace")
    bench.wait_until(lambda: Procfs().tracer(node.pid) == strace.pid, "it is traced", strace)
    bench.load(node.address, connections=8)
    return Subject([node.pid], [f"strace {strace.pid} traces node {node.pid}"])


@case("gunicorn", BOTH)
def gunicorn_sleeps(bench: Bench, sleep_ms: int = 40) -> Subject:
    """Two sync workers that sleep 40 ms in each request; the clients queue behind them."""
    server = bench.gunicorn(SLEEP_MS=sleep_ms)
    bench.load(server.address, connections=8)
    return Subject([server.pid])


@case("gunicorn")
def gunicorn_lock_file(bench: Bench, sleep_ms: int = 20) -> Subject:
    """Four sync workers; each request holds a lock file for 20 ms."""
    server = bench.gunicorn(workers=4, FLOCK_MS=sleep_ms, LOCK_FILE=bench.folder / "lock")
    bench.load(server.address, connections=4)
    return Subject([server.pid])


@case("gunicorn")
def gunicorn_lock_file_held(bench: Bench, held: bool = True) -> Subject:
    """Two sync workers wait for a lock file that another process has taken: nothing completes."""
    lock = bench.folder / "lock"
    server = bench.gunicorn(FLOCK_MS=1, LOCK_FILE=lock)
    bench.load(server.address, connections=4)
    if not held:
        return Subject([server.pid])
    holder = bench.start([sys.executable, "-c", HOLDER, str(lock), str(LOAD_S)], "holder")
    bench.wait_until(lambda: holder.log.read_bytes() == b"held\n", "the lock is taken", holder)
    return Subject([server.pid], [f" {holder.pid}"])


@case("Python threads")
def threads_and_a_lock(bench: Bench, sleep_ms: int = 5) -> Subject:
    """A thread for each connection, all waiting for one lock held for 5 ms."""
    server = bench.threaded(f"lock_ms={sleep_ms}")
    bench.load(server.address, connections=8)
    return Subject([server.pid])


@case("Python threads", (TCP,))
def threads_for_each_request_and_a_lock(bench: Bench, sleep_ms: int = 20) -> Subject:
    """Each request has a connection, and so a thread, of its own; one lock is held for 20 ms."""
    server = bench.threaded(f"lock_ms={sleep_ms}")
    bench.load(server.address, connections=8, reconnect=1)
    return Subject([server.pid], ["_work (threaded.py"])


@case("Python", (TCP,))
def threads_and_a_full_lock_beside_nagle(
    bench: Bench, sleep_ms: int = 20, nodelay: bool = False
) -> Subject:
    """Replies in two parts lose 40 ms each, but the lock lets 50 of them through a second."""
    server = bench.threaded(f"lock_ms={sleep_ms}", "parts=2", f"nodelay={nodelay:d}")
    bench.load(server.address, connections=8)
    return Subject([server.pid])


@case("Python", (TCP,))
def threads_that_keep_the_interpreter_lock(bench: Bench, sleep_ms: int = 10) -> Subject:
    """A C function sleeps for 10 ms in each request and keeps the interpreter's lock."""
    server = bench.threaded(f"gil_ms={sleep_ms}")
    bench.load(server.address, connections=4)
    return Subject([server.pid])


@case("C threads", BOTH)
def c_threads_and_a_lock_asleep(bench: Bench, sleep_ms: int = 5) -> Subject:
    """Each request holds the one lock while it sleeps 5 ms, and computes 0.3 ms."""
    server = bench.handover(asleep_us=1000 * sleep_ms, compute_us=300)
    bench.load(server.address, b"x" * 64, "bytes:64", connections=6)
    return Subject([server.pid])


@case("C threads")
def c_worker_that_sleeps(bench: Bench, sleep_ms: int = 3) -> Subject:
    """One thread sleeps 3 ms for each request; those of the connections wait for it."""
    server = bench.handover(worker_asleep_us=1000 * sleep_ms)
    bench.load(server.address, b"x" * 64, "bytes:64", connections=6)
    return Subject([server.pid])


@case("Go", BOTH, needs=("go",))
def go_mutex(bench: Bench, sleep_ms: int = 10) -> Subject:
    """Goroutines behind a mutex that each holds for 10 ms: nothing the kernel sees as a lock."""
    server = bench.go(f"mutex_ms={sleep_ms}")
    bench.load(server.address, connections=6)
    return Subject([server.pid], ["held by a goroutine that sleeps in time.Sleep"])


@case("Go", (TCP,), needs=("go",))
def go_fans_out(bench: Bench, sleep_ms: int = 20) -> Subject:
    """Each request starts two goroutines, which sleep, and waits for both."""
    server = bench.go(f"fan_ms={sleep_ms}")
    bench.load(server.address, connections=6)
    return Subject([server.pid], ["sleep (time.Sleep)", "main.part"])


@case("PostgreSQL", BOTH, needs=("postgres", "initdb", "pgbench"))
def postgres_sleeps(bench: Bench, sleep_ms: int = 50) -> Subject:
    """pg_sleep(0.05) in each query."""
    postgres = Postgres(bench)
    postgres.pgbench(f"SELECT pg_sleep({sleep_ms / 1000});", 4)
    return Subject([postgres.pid])


@case("PostgreSQL", needs=("postgres", "initdb", "psql", "pgbench"))
def postgres_row_lock(bench: Bench, sleep_ms: int = 10) -> Subject:
    """Eight clients update the same row, each in a transaction of 10 ms."""
    postgres = Postgres(bench)
    postgres.run("CREATE TABLE t (n bigint); INSERT INTO t VALUES (0)")
    postgres.pgbench(LOCK.format(sleep_ms / 1000), 8)
    return Subject([postgres.pid])


@case("PostgreSQL", needs=("postgres", "initdb", "psql", "pgbench"))
def postgres_table_lock(bench: Bench, sleep_ms: int = 100) -> Subject:
    """A job locks a table for 100 ms again and again, beside eight clients that read it."""
    postgres = Postgres(bench)
    postgres.run("CREATE TABLE t (n bigint); INSERT INTO t VALUES (0)")
    held = f"BEGIN; LOCK TABLE t; SELECT pg_sleep({sleep_ms / 1000}); COMMIT;\n"
    postgres.pgbench(f"{held}SELECT pg_sleep(0.01);", 1)
    postgres.pgbench("SELECT * FROM t;", 8, "--rate=2000")
    return Subject([postgres.pid], ["a lock of the database", "pg_blocking_pids"])


@case("PostgreSQL", BOTH, needs=("postgres", "initdb", "psql", "pgbench"))
def postgres_row_held(bench: Bench, held: bool = True) -> Subject:
    """A session has updated a row and is idle in its transaction: four clients wait for it."""
    postgres = Postgres(bench)
    postgres.run("CREATE TABLE t (n bigint); INSERT INTO t VALUES (0)")
    if held:
        postgres.hold("BEGIN; UPDATE t SET n = n + 1;")
    postgres.pgbench("UPDATE t SET n = n + 1;", 4)
    return Subject([postgres.pid], ["postgres", "pg_blocking_pids"])


@case("Redis", needs=("redis-server",))
def redis_sleeps(bench: Bench, sleep_ms: int = 20) -> Subject:
    """The one thread sleeps 20 ms for one client; the others wait."""
    redis = bench.redis()
    sleep = f"DEBUG SLEEP {sleep_ms / 1000}\r\n".encode()
    bench.load(redis.address, sleep, "resp", connections=1, think_ms=5)
    bench.load(redis.address, b"PING\r\n", "resp", connections=4, rate=100)
    return Subject([redis.pid])


@case("Puma", (TCP,), needs=("puma",))
def puma_with_one_thread(bench: Bench, sleep_ms: int = 20) -> Subject:
    """Puma accepts while a thread is free, and its only one sleeps in requests: `-t 1:1`."""
    puma = bench.puma(f"sleep {sleep_ms / 1000} if {sleep_ms} > 0", threads=1)
    bench.load(puma.address, connections=6)
    return Subject([puma.pid], ["lock", "workers"])
