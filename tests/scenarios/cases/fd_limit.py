"""Descriptors run out, or are about to."""

from __future__ import annotations

from typing import List

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, UNIX, Subject, case


def _limit(count: int) -> List[str]:
    return ["prlimit", f"--nofile={count}:{count}"]


@case("asyncio", BOTH, quick=UNIX)
def asyncio_limit_of_64(bench: Bench, nofile: int = 64) -> Subject:
    """100 clients keep connections; the process may open 64: EMFILE."""
    server = bench.asyncio(prefix=_limit(nofile))
    bench.load(server.address, connections=100, think_ms=100)
    return Subject([server.pid], ["64"])


@case("Node", needs=("node",))
def node_limit_of_80(bench: Bench, nofile: int = 80) -> Subject:
    """150 clients keep connections; Node may open 80 and drops what it cannot accept."""
    node = bench.node(prefix=_limit(nofile))
    bench.load(node.address, connections=150, think_ms=100)
    return Subject([node.pid], ["80"])


@case("Go", (TCP,), needs=("go",))
def go_limit_of_64(bench: Bench, nofile: int = 64) -> Subject:
    """100 clients keep connections; accept fails and Go tries again later."""
    server = bench.go(prefix=_limit(nofile))
    bench.load(server.address, connections=100, think_ms=100)
    return Subject([server.pid], ["64"])


@case("nginx", (TCP,), needs=("nginx",))
def nginx_worker_limit_of_40(bench: Bench, nofile: int = 40) -> Subject:
    """worker_rlimit_nofile 40 and 100 clients that keep connections."""
    nginx = bench.nginx("return 200 ok;", main=f"user root; worker_rlimit_nofile {nofile};")
    bench.load(nginx.address, connections=100, think_ms=100)
    return Subject([nginx.pid], ["40"])


@case("asyncio")
def leak_towards_the_limit(bench: Bench) -> Subject:
    """Each request leaks a descriptor: 1,024 are allowed, more than nine in ten are open."""
    server = bench.asyncio("leak=1", prefix=_limit(1024))
    bench.load(server.address, connections=4, rate=2000, warm=880).result()
    bench.load(server.address, connections=2, rate=10, warm=5)
    return Subject([server.pid], ["1024"])
