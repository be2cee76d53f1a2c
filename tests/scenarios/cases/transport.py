"""Moving bytes is all the server does, as fast as it may, or TCP holds them."""

from __future__ import annotations

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, Subject, case

KB = 1024


@case("C echo", BOTH)
def echo_4_mb(bench: Bench, bytes_each: int = 4 * KB * KB) -> Subject:
    """Messages of 4 MB, sent back: milliseconds of copying."""
    server = bench.echo(bytes_each)
    message = b"x" * (bytes_each // 4)
    load = {"connections": 4, "repeat": 4}
    bench.load(server.address, message, f"bytes:{bytes_each}", **load)
    return Subject([server.pid])


@case("C echo", BOTH)
def echo_in_pieces(bench: Bench, piece_bytes: int = 32) -> Subject:
    """Messages of 8 KB, read and sent 32 bytes at a time: system calls and little else."""
    server = bench.echo(8 * KB, piece_bytes)
    bench.load(server.address, b"x" * 8 * KB, f"bytes:{8 * KB}", connections=4)
    return Subject([server.pid])


@case("nginx", (TCP,), needs=("nginx",))
def nginx_files_of_1_mb(bench: Bench, bytes_each: int = KB * KB) -> Subject:
    """A file of 1 MB from the page cache."""
    bench.file("big.bin", "x" * bytes_each)
    nginx = bench.nginx(f"root {bench.folder}; try_files /big.bin =404;")
    bench.load(nginx.address, connections=4)
    return Subject([nginx.pid])


@case("Redis", (TCP,), needs=("redis-server",))
def redis_values_of_512_kb(bench: Bench, bytes_each: int = 512 * KB) -> Subject:
    """GET of 512 KB."""
    redis = bench.redis()
    value = b"x" * bytes_each
    store = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%b\r\n" % (len(value), value)
    bench.load(redis.address, store, "resp", connections=1, rate=1, warm=1).result()
    bench.load(redis.address, b"GET k\r\n", "resp", connections=4)
    return Subject([redis.pid])


@case("C service", (TCP,))
def relay_of_7_mb(bench: Bench, bytes_each: int = 7_000_000) -> Subject:
    """A proxy of threads: the request is over with the first piece, and moving goes on after it."""
    source = bench.service(f"bytes={bytes_each}")
    relay = bench.service(
        "kind=threads", f"upstream={source.address}", f"upstream_bytes={bytes_each}", "relay=1"
    )
    bench.load(relay.address, b"request\n", f"bytes:{bytes_each}", connections=3, warm=6)
    return Subject([relay.pid])


@case("Python threads", (TCP,))
def head_and_body_in_two_sends(bench: Bench, nodelay: bool = False, spin_ms: float = 1) -> Subject:
    """1 ms of computing, and each body waits for the client to acknowledge the head: 40 ms."""
    server = bench.threaded("parts=2", f"nodelay={nodelay:d}", f"spin_ms={spin_ms}")
    bench.load(server.address, connections=6)
    return Subject([server.pid], ["Nagle", server.address])


@case("Python threads", (TCP,), needs=("nginx",))
def asks_upstream_in_two_sends(bench: Bench, nodelay: bool = False) -> Subject:
    """The second part of its own request waits for nginx to acknowledge the first: 40 ms."""
    upstream = bench.nginx("return 200 ok;")
    asks = (f"upstream={upstream.address}", "pool_to=6", "ask_parts=2")
    server = bench.threaded(*asks, f"nodelay={nodelay:d}")
    bench.load(server.address, connections=6)
    return Subject([server.pid], ["Nagle", upstream.address])
