"""The application computes."""

from __future__ import annotations

import os

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, Subject, case
from tests.scenarios.postgres import Postgres


@case("Node", BOTH, needs=("node",))
def node_computes(bench: Bench, spin_ms: int = 5) -> Subject:
    """5 ms of computing in each request, four clients."""
    node = bench.node(f"spin_ms={spin_ms}")
    bench.load(node.address, connections=4)
    return Subject([node.pid])


@case("Node", needs=("node",))
def node_computes_and_its_queue_is_full(
    bench: Bench, spin_ms: int = 20, backlog: int = 8
) -> Subject:
    """A chain: the loop computes 20 ms for each request, so the queue of 8 is full. The root."""
    node = bench.node(f"spin_ms={spin_ms}", f"backlog={backlog}")
    bench.load(node.address, connections=40, reconnect=1, refuse_wait=1)
    return Subject([node.pid])


@case("Node", needs=("node",))
def node_one_in_twenty(bench: Bench, spin_ms: int = 100) -> Subject:
    """One request in 20 computes for 100 ms; all others wait behind it."""
    node = bench.node(f"spin_ms={spin_ms}", "one_in=20")
    bench.load(node.address, connections=16, rate=100, poisson=1)
    return Subject([node.pid])


@case("Node", BOTH, needs=("node",))
def node_in_an_endless_loop(bench: Bench, endless_after: int = 30) -> Subject:
    """A request in which its loop never ends: nobody is answered from then on."""
    node = bench.node(f"endless_after={endless_after}")
    bench.load(node.address, connections=8)
    if endless_after < 1_000_000:
        bench.wait_until(lambda: b"endless" in node.log.read_bytes(), "it computes", node)
    return Subject([node.pid], [f"thread {node.pid}"])


@case("Node", needs=("node",))
def node_thread_pool(bench: Bench, spin_ms: int = 15) -> Subject:
    """Password hashing in the thread pool: the loop is idle, its threads are not."""
    node = bench.node(*([f"pool_ms={spin_ms}"] if spin_ms else []))
    bench.load(node.address, connections=3)
    return Subject([node.pid])


@case("asyncio", (TCP,))
def asyncio_computes(bench: Bench, spin_ms: int = 5) -> Subject:
    """5 ms of computing in each request, in the event loop."""
    server = bench.asyncio(f"spin_ms={spin_ms}")
    bench.load(server.address, connections=4)
    return Subject([server.pid])


@case("gunicorn")
def gunicorn_computes(bench: Bench, spin_ms: int = 10) -> Subject:
    """One sync worker that computes 10 ms in each request."""
    server = bench.gunicorn(workers=1, SPIN_MS=spin_ms)
    bench.load(server.address, connections=4)
    return Subject([server.pid])


@case("Python threads", BOTH)
def threads_and_the_interpreter_lock(bench: Bench, spin_ms: int = 2) -> Subject:
    """2 ms of computing in each request, twelve threads: each waits for the others' turns."""
    server = bench.threaded(f"spin_ms={spin_ms}")
    bench.load(server.address, connections=12)
    return Subject([server.pid])


@case("Python threads")
def threads_that_hand_over(bench: Bench, spin_ms: int = 3) -> Subject:
    """One thread computes 3 ms for each request; those of the connections wait for it."""
    server = bench.threaded(f"worker_ms={spin_ms}")
    bench.load(server.address, connections=6)
    return Subject([server.pid])


@case("Python threads", BOTH)
def a_pool_that_is_handed_requests(bench: Bench, spin_ms: int = 5) -> Subject:
    """One thread polls and reads; eight compute and reply, at one interpreter's lock."""
    server = bench.python("dispatched.py", "threads=8", "read=1", f"spin_ms={spin_ms}")
    bench.load(server.address, connections=16)
    return Subject([server.pid])


@case("C threads", BOTH)
def c_threads_that_hand_over(bench: Bench, spin_ms: int = 3) -> Subject:
    """One thread computes 3 ms for each request; those of the connections sleep on a futex."""
    server = bench.handover(worker_us=1000 * spin_ms)
    bench.load(server.address, b"x" * 64, "bytes:64", connections=6)
    return Subject([server.pid])


@case("C threads")
def c_threads_and_a_lock(bench: Bench, spin_ms: int = 2) -> Subject:
    """Each request computes 2 ms while its thread holds the one lock."""
    server = bench.handover(locked_us=1000 * spin_ms)
    bench.load(server.address, b"x" * 64, "bytes:64", connections=6)
    return Subject([server.pid])


@case("Redis", BOTH, needs=("redis-server",))
def redis_keys(bench: Bench, spin_rounds: int = 100_000) -> Subject:
    """KEYS over 100,000 keys, beside small reads that wait behind it."""
    redis = bench.redis()
    fill = f"DEBUG POPULATE {spin_rounds}\r\n".encode()
    bench.load(redis.address, fill, "resp", connections=1, rate=1, warm=1).result()
    bench.load(redis.address, b"KEYS nothing*\r\n", "until:\r\n", connections=2)
    bench.load(redis.address, b"GET key:1\r\n", "resp", connections=4, rate=200)
    return Subject([redis.pid])


@case("Redis", needs=("redis-server",))
def redis_script(bench: Bench, spin_rounds: int = 200_000) -> Subject:
    """A Lua script that loops for milliseconds."""
    redis = bench.redis()
    script = b"local n=0 for i=1,%d do n=n+i end return n" % spin_rounds
    call = b"*3\r\n$4\r\nEVAL\r\n$%d\r\n%b\r\n$1\r\n0\r\n" % (len(script), script)
    bench.load(redis.address, call, "resp", connections=4)
    return Subject([redis.pid])


@case("Redis", needs=("redis-server",))
def redis_stands_still(bench: Bench, spin_rounds: int = 40_000_000) -> Subject:
    """A Lua script that loops for a third of a second, now and then, beside thousands of reads."""
    redis = bench.redis()
    script = b"local n=0 for i=1,%d do n=n+i end return n" % spin_rounds
    call = b"*3\r\n$4\r\nEVAL\r\n$%d\r\n%b\r\n$1\r\n0\r\n" % (len(script), script)
    bench.load(redis.address, call, "resp", connections=1, rate=0.7, warm=1)
    bench.load(redis.address, b"GET key:1\r\n", "resp", connections=20, think_ms=5)
    return Subject([redis.pid], ["lie unread"])


@case("Go", (TCP,), needs=("go",))
def go_computes(bench: Bench, spin_ms: int = 10) -> Subject:
    """10 ms of computing in each request, as many clients as CPUs: the process has them all."""
    server = bench.go(f"spin_ms={spin_ms}")
    bench.load(server.address, connections=os.cpu_count() or 1)
    return Subject([server.pid], ["GOMAXPROCS"])


@case("Go", needs=("go",))
def go_kept_on_one_cpu(bench: Bench, spin_ms: int = 3) -> Subject:
    """Computes more than one CPU can, and may use no other since its start."""
    server = bench.go(f"spin_ms={spin_ms}", prefix=["taskset", "-c", "0"])
    bench.load(server.address, connections=8, rate=330)
    return Subject([server.pid], ["start it without its limit to CPU 0", "CPU 1 is idle"])


@case("PostgreSQL", needs=("postgres", "initdb", "pgbench"))
def postgres_computes(bench: Bench, spin_rounds: int = 20_000) -> Subject:
    """A query that hashes 20,000 numbers, one client."""
    postgres = Postgres(bench)
    query = f"SELECT max(md5(n::text)) FROM generate_series(1, {spin_rounds}) n;"
    postgres.pgbench(query, 1)
    return Subject([postgres.pid])


@case("nginx", (TCP,), needs=("nginx",))
def nginx_compresses(bench: Bench, spin_rounds: int = 70_000) -> Subject:
    """gzip at level 9 of a megabyte of text in each reply."""
    text = "".join(f"{number} {number * number}\n" for number in range(spin_rounds))
    bench.file("text.txt", text)
    nginx = bench.nginx(
        f"root {bench.folder}; gzip on; gzip_comp_level 9; gzip_types *; try_files /text.txt =404;"
    )
    request = b"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"
    bench.load(nginx.address, request, connections=2)
    return Subject([nginx.pid])


@case("C service")
def processes_that_share_a_lock(bench: Bench, lock_spin_ms: int = 5) -> Subject:
    """Twelve processes with one lock in shared memory, whose owner computes: they take turns."""
    service = bench.service("kind=prefork", "seats=12", f"lock_spin_ms={lock_spin_ms}")
    bench.load(service.address, b"request\n", "bytes:64", connections=12, think_ms=30)
    return Subject([service.pid], ["processes contend for one lock"])


@case("Python", (TCP,))
def threads_that_start_a_child_each(bench: Bench, spin_ms: int = 10) -> Subject:
    """A process is started for each request, and computes for 10 ms."""
    server = bench.threaded(*([f"child_ms={spin_ms}"] if spin_ms else []))
    bench.load(server.address, connections=4)
    return Subject([server.pid])


@case("Python", (TCP,))
def threads_that_wait_for_a_helper(bench: Bench, spin_ms: int = 8) -> Subject:
    """One other process computes for 8 ms in each request, which an eventfd wakes."""
    server = bench.threaded(f"helper_ms={spin_ms}")
    bench.load(server.address, connections=8)
    return Subject([server.pid])


@case("Python", (TCP,))
def fork_for_each_connection(bench: Bench, heap_mb: int = 800) -> Subject:
    """The accepting process is busy with fork(), which copies the page tables of 800 MB."""
    server = bench.python("forking.py", f"heap_mb={heap_mb}")
    bench.load(server.address, connections=8, reconnect=1)
    return Subject([server.pid])
