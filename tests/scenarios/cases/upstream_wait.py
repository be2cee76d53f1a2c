"""The application waits for somebody it asked."""

from __future__ import annotations

import sys

from tests.scenarios.bench import Bench, Process
from tests.scenarios.case import BOTH, TCP, UNIX, Subject, case
from tests.scenarios.postgres import Postgres, pgbouncer
from tests.scenarios.servers import name_server

SILENT = (
    "import socket, sys\n"
    "at = sys.argv[1]\n"
    "host, _, port = at.rpartition(':')\n"
    "s = socket.socket(socket.AF_UNIX if at[0] == '/' else socket.AF_INET)\n"
    "s.bind(at if at[0] == '/' else (host, int(port)))\n"
    "s.listen()\n"
    "print('listens', flush=True)\n"
    "kept = []\n"
    "while True:\n"
    "    kept.append(s.accept())\n"
    "    print('accepted', flush=True)\n"
)
SPIN = "for i=1,{} do end return 1"


@case("Node", BOTH, needs=("node",), quick=UNIX)
def node_asks_a_slow_service(bench: Bench, upstream_ms: int = 30) -> Subject:
    """Node's upstream takes 30 ms."""
    slow = bench.asyncio(f"sleep_ms={upstream_ms}")
    node = bench.node(f"upstream={slow.address}")
    bench.load(node.address, connections=8)
    return Subject([node.pid], [slow.address])


@case("Python threads", (TCP,), needs=("unshare",))
def threads_that_look_a_name_up(bench: Bench, looks_up: bool = True) -> Subject:
    """For each request, of a name server that takes 40 ms; by the C library, as most do."""
    conf = bench.file("resolv.conf", f"nameserver {name_server.ADDRESS}\n")
    names = bench.start([sys.executable, name_server.__file__, "40"], "names")
    bench.wait_until(lambda: b"listens" in names.log.read_bytes(), "it listens", names)
    script = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", script, "sh", conf]
    options = ["nodelay=1", *(["lookup=app.test"] if looks_up else [])]
    server = bench.python("threaded.py", *options, prefix=prefix)
    bench.load(server.address, connections=8)
    return Subject([server.pid], [f"waits for the name server udp:{name_server.ADDRESS}:53"])


@case("nginx", (TCP,), needs=("nginx",))
def nginx_that_looks_a_name_up(bench: Bench, looks_up: bool = True) -> Subject:
    """Each second, of a name server at Consul's port, which takes 250 ms; all requests wait for it
    then."""
    where = f"{name_server.ADDRESS}:{name_server.CONSUL_PORT}"
    answers = [sys.executable, name_server.__file__, "250", str(name_server.CONSUL_PORT)]
    names = bench.start(answers, "names")
    bench.wait_until(lambda: b"listens" in names.log.read_bytes(), "it listens", names)
    app = bench.asyncio()
    port = app.address.rpartition(":")[2]
    resolver = f"resolver {where} valid=1s ipv6=off; set $name app.test;"
    looked_up = f"{resolver} proxy_pass http://$name:{port};"
    nginx = bench.nginx(looked_up if looks_up else f"proxy_pass http://{app.address};")
    bench.load(nginx.address, connections=8, think_ms=50)
    return Subject(bench.family(nginx.pid), [f"waits for the name server udp:{where}"])


@case("Go", BOTH, needs=("go",))
def go_asks_a_slow_service(bench: Bench, upstream_ms: int = 30) -> Subject:
    """Go's upstream takes 30 ms."""
    slow = bench.asyncio(f"sleep_ms={upstream_ms}")
    server = bench.go(f"upstream={slow.address}")
    bench.load(server.address, connections=8)
    return Subject([server.pid], [slow.address])


@case("nginx", BOTH, needs=("nginx",))
def nginx_whose_upstream_replies_in_pieces(bench: Bench, upstream_ms: int = 20) -> Subject:
    """Its upstream's replies begin at once, and end after 80 ms."""
    upstream = bench.asyncio("pieces=4", f"piece_ms={upstream_ms}")
    at = upstream.address
    nginx = bench.nginx(f"proxy_pass http://{f'unix:{at}' if at[0] == '/' else at};")
    bench.load(nginx.address, connections=8)
    return Subject(bench.family(nginx.pid), [at])


@case("nginx", BOTH, needs=("nginx",), quick=UNIX)
def nginx_whose_upstream_drops_requests(bench: Bench, upstream_drops: bool = True) -> Subject:
    """Its upstream closes the connection of one request in four after 20 ms: nginx replies 502."""
    upstream = bench.asyncio(*(["one_in=4", "sleep_ms=20", "drop=1"] if upstream_drops else []))
    at = upstream.address
    nginx = bench.nginx(f"proxy_pass http://{f'unix:{at}' if at[0] == '/' else at};")
    bench.load(nginx.address, connections=8, rate=200)
    says = f"python {upstream.pid} closes their connections"
    return Subject(bench.family(nginx.pid), [at, says])


@case("nginx", BOTH, needs=("nginx", "node"))
def nginx_whose_upstream_forgets_replies(bench: Bench, upstream_forgets: bool = True) -> Subject:
    """Its upstream never answers one request in four: nginx replies 504 after 0.3 s."""
    node = bench.node(*(["one_in=4", "forget=1"] if upstream_forgets else []))
    at = f"unix:{node.address}" if node.address[0] == "/" else node.address
    nginx = bench.nginx(f"proxy_pass http://{at}; proxy_read_timeout 300ms;")
    bench.load(nginx.address, connections=8, rate=60)
    return Subject(
        bench.family(nginx.pid), [node.address, "has not answered when they are given up"]
    )


@case("asyncio", BOTH)
def asyncio_with_a_full_pool(bench: Bench, upstream_ms: int = 20) -> Subject:
    """Two connections to an upstream that takes 20 ms, for 24 clients: the loop is idle."""
    slow = bench.asyncio(f"sleep_ms={upstream_ms}")
    server = bench.asyncio(f"upstream={slow.address}", "pool=2")
    bench.load(server.address, connections=24)
    return Subject([server.pid], [slow.address, "pool of 2 connections is full"])


@case("asyncio", BOTH)
def asyncio_that_asks_without_await(
    bench: Bench, blocks: bool = True, upstream_ms: int = 20
) -> Subject:
    """The loop itself waits for each answer: 12 clients take turns, and the upstream is idle."""
    slow = bench.asyncio(f"sleep_ms={upstream_ms}")
    server = bench.asyncio(f"upstream={slow.address}", *(["blocking=1"] if blocks else []))
    bench.load(server.address, connections=12)
    return Subject([server.pid], [slow.address, "in its event loop"])


@case("Python threads")
def threads_with_a_full_pool(bench: Bench, upstream_ms: int = 20) -> Subject:
    """The same with threads, which wait for a connection behind a lock."""
    slow = bench.asyncio(f"sleep_ms={upstream_ms}")
    server = bench.threaded(f"upstream={slow.address}", "pool_to=2")
    bench.load(server.address, connections=16)
    return Subject([server.pid], [slow.address, "pool of 2 connections is full"])


@case("Python threads", BOTH)
def threads_that_ask_for_each_row(bench: Bench, asks: int = 40) -> Subject:
    """Forty questions for each request, one after the other, to an upstream that takes 1 ms."""
    upstream = bench.asyncio("sleep_ms=1")
    server = bench.threaded(f"upstream={upstream.address}", "pool_to=8", f"asks={asks}")
    bench.load(server.address, connections=4)
    return Subject([server.pid], [upstream.address, "which it asks 40 times for each request"])


@case("asyncio", (TCP,), needs=("node",))
def asyncio_asks_a_busy_service(bench: Bench, upstream_ms: int = 10) -> Subject:
    """asyncio's upstream computes for 10 ms, one request after the other."""
    busy = bench.node(f"spin_ms={upstream_ms}")
    server = bench.asyncio(f"upstream={busy.address}")
    bench.load(server.address, connections=4)
    return Subject([server.pid], [busy.address])


@case("nginx", needs=("nginx", "node"))
def nginx_before_a_slow_app(bench: Bench, upstream_ms: int = 40) -> Subject:
    """nginx with kept upstream connections; the app takes 40 ms."""
    node = bench.node(f"sleep_ms={upstream_ms}")
    nginx = bench.nginx(
        'proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";',
        upstream=f"upstream app {{ server unix:{node.address}; keepalive 32; }}",
        address=bench.address("nginx", TCP),
    )
    bench.load(nginx.address, connections=8)
    return Subject([nginx.pid], [node.address])


def _silent(bench: Bench, address: str) -> Process:
    """Accepts there, says so, and never answers."""
    started = bench.start([sys.executable, "-c", SILENT, address], "silent")
    bench.wait_until(lambda: b"listens" in started.log.read_bytes(), "it listens", started)
    return started


@case("asyncio", BOTH)
def asyncio_that_hangs(bench: Bench, upstream_hangs_after: int = 200) -> Subject:
    """Since before udsprobe came its loop waits for an upstream that says nothing."""
    silent = bench.address("silent", TCP)
    _silent(bench, silent)
    server = bench.asyncio(f"hang_after={upstream_hangs_after}", f"hang_at={silent}")
    bench.load(server.address, connections=8, rate=400)
    if upstream_hangs_after < 1_000_000:
        bench.wait_until(lambda: b"hangs" in server.log.read_bytes(), "it hangs", server)
    return Subject([server.pid], [silent])


@case("gunicorn", BOTH)
def gunicorn_that_hangs(bench: Bench, upstream_hangs_after: int = 0) -> Subject:
    """Since before udsprobe came both sync workers wait for an upstream that says nothing."""
    silent = bench.address("silent", UNIX)
    upstream = _silent(bench, silent)
    if upstream_hangs_after:
        server = bench.gunicorn()
        bench.load(server.address, connections=2, rate=20)
        return Subject([server.pid])
    server = bench.gunicorn(UPSTREAM=silent, COMMAND="GET x")
    bench.load(server.address, connections=2, rate=20, warm=0)
    has_both = lambda: upstream.log.read_bytes().count(b"accepted") == 2  # noqa: E731
    bench.wait_until(has_both, "both workers hang", server)
    return Subject([server.pid], [f"python {upstream.pid} has sent nothing"])


@case("nginx", BOTH, needs=("nginx", "node"))
def nginx_whose_clients_give_up(bench: Bench, upstream_ms: int = 3000) -> Subject:
    """The app needs 3 s for one request in four, and clients give up after 0.4 s (status 499)."""
    node = bench.node("one_in=4", f"sleep_ms={upstream_ms}")
    at = f"unix:{node.address}" if node.address.startswith("/") else node.address
    nginx = bench.nginx(
        'proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";',
        upstream=f"upstream app {{ server {at}; keepalive 32; }}",
        address=bench.address("nginx"),
    )
    bench.load(nginx.address, connections=8, rate=100, timeout_ms=400)
    return Subject([nginx.pid], [node.address, "give up"])


@case("Node", BOTH, needs=("node", "postgres", "initdb"))
def node_asks_postgres(bench: Bench, upstream_ms: int = 50) -> Subject:
    """Each request is a query that takes 50 ms in PostgreSQL."""
    postgres = Postgres(bench, transport=bench.transport)
    query = [f"query=SELECT pg_sleep({upstream_ms / 1000})", f"postgres={postgres.address}"]
    node = bench.node(*query)
    bench.load(node.address, connections=8)
    return Subject([node.pid], [postgres.address])


@case("gunicorn", needs=("redis-server",))
def gunicorn_asks_a_busy_redis(bench: Bench, upstream_rounds: int = 600_000) -> Subject:
    """Sync workers ask a Redis that runs a script of milliseconds each time."""
    redis = bench.redis()
    command = f'EVAL "{SPIN.format(upstream_rounds)}" 0'
    server = bench.gunicorn(UPSTREAM=redis.address, COMMAND=command)
    bench.load(server.address, connections=4)
    return Subject([server.pid], [redis.address])


@case("Caddy", needs=("caddy", "node"))
def caddy_before_a_slow_app(bench: Bench, upstream_ms: int = 40) -> Subject:
    """reverse_proxy to an app that takes 40 ms."""
    node = bench.node(f"sleep_ms={upstream_ms}")
    caddy = bench.caddy(f"reverse_proxy unix/{node.address}")
    bench.load(caddy.address, connections=8)
    return Subject([caddy.pid], [node.address])


@case("HAProxy", BOTH, needs=("haproxy",))
def haproxy_lets_two_at_once_through(bench: Bench, pool: int = 2) -> Subject:
    """`maxconn 2` on the server's line, an app that takes 20 ms, and 12 clients: HAProxy queues."""
    slow = bench.asyncio("sleep_ms=20", address=bench.address(transport=TCP))
    haproxy = bench.haproxy("use_backend app", f"server one {slow.address} maxconn {pool}")
    bench.load(haproxy.address, connections=12)
    return Subject([haproxy.pid], [slow.address, "queues for it", "maxconn"])


@case("PgBouncer", (TCP,), needs=("pgbouncer", "postgres", "initdb", "pgbench"))
def pgbouncer_with_a_pool_of_two(bench: Bench, pool: int = 2) -> Subject:
    """12 clients whose queries sleep for 20 ms, and two connections to PostgreSQL."""
    postgres = Postgres(bench, UNIX)
    bouncer, clients = pgbouncer(bench, postgres, pool)
    clients("SELECT pg_sleep(0.02);", 12)
    return Subject([bouncer.pid], [postgres.socket, "queues for it", "default_pool_size"])


@case("PgBouncer", (TCP,), needs=("pgbouncer", "postgres", "initdb", "pgbench"))
def pgbouncer_whose_sessions_are_kept(bench: Bench, pool: int = 2) -> Subject:
    """Of 12 clients two have a connection to PostgreSQL, and keep it; the others wait for ever."""
    postgres = Postgres(bench, UNIX)
    bouncer, clients = pgbouncer(bench, postgres, pool, mode="session")
    clients("SELECT pg_sleep(0.002);", 12)
    return Subject([bouncer.pid], [postgres.socket, "which others keep", "pool_mode"])


@case("nginx", BOTH, needs=("nginx", "node"))
def nginx_two_hops_before_a_busy_service(bench: Bench, upstream_ms: int = 10) -> Subject:
    """What computes is the app's upstream, and holds the CPU that nginx waits for: no stranger."""
    busy = bench.node(f"spin_ms={upstream_ms}")
    app = bench.asyncio(f"upstream={busy.address}")
    at = f"unix:{app.address}" if app.address.startswith("/") else app.address
    block = f"upstream app {{ server {at}; keepalive 8; }}"
    kept = 'proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";'
    nginx = bench.nginx(kept, upstream=block)
    bench.load(nginx.address, connections=8)
    return Subject([nginx.pid], [app.address])
