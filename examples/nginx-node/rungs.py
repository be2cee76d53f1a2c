"""The rungs: what is planted, the load that shows it, and the cause that is then true."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from tests.scenarios.bench import Bench, Server
from tests.scenarios.case import TCP, UNIX
from tests.scenarios.programs import HERE, program

HEALTHY = "healthy"
KEPT = 'proxy_http_version 1.1; proxy_set_header Connection "";'
# Where Debian's soft limit is lower, Node would raise it itself (node::InitializeOncePerProcess).
ROOM = ["prlimit", "--nofile=16384:16384"]


@dataclass(frozen=True)
class Site:
    """What was started.

    Attributes:
        entry: the address that clients use. app: Node's own.
        pids: of the processes to observe; the first of them serves the entry.
        names: what the verdict must name.
    """

    entry: str
    app: str
    pids: Sequence[int]
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Rung:
    """One configuration.

    Attributes:
        what: is planted or repaired. cause: what the verdict must be, and over TCP `tcp_cause`
            where that differs. names: what else a verdict that is not healthy must name.
        paced: the load that it is judged under. pushed: the load that measures how much it can
            take; None where clients that wait for each other measure nothing else.
        quick: the transports it is part of the quick form for.
    """

    step: str
    what: str
    cause: str
    build: Callable[[Bench], Site]
    paced: Mapping[str, float]
    pushed: Optional[Mapping[str, float]] = None
    somaxconn: int = 4096
    quick: Tuple[str, ...] = ()
    names: Sequence[str] = ()
    tcp_cause: Optional[str] = None

    def cause_over(self, transport: str) -> str:
        """What the verdict must be over a transport."""
        return self.tcp_cause if transport == TCP and self.tcp_cause else self.cause

    @property
    def name(self) -> str:
        """For the command line."""
        words = f"{self.step} {self.what}".lower()
        kept = "".join(c if c.isalnum() or c in ".-" else " " for c in words)
        return "-".join(kept.split())


def proxied(keepalive: int, how: str, *options: str) -> Callable[[Bench], Site]:
    """nginx before Node, with the lines of its location."""

    def build(bench: Bench) -> Site:
        node = bench.node(*options)
        to = f"unix:{node.address}" if node.address.startswith("/") else node.address
        nginx = bench.nginx(
            f"proxy_pass http://app; {how}",
            upstream=f"upstream app {{ server {to}; keepalive {keepalive}; }}",
            address=bench.address("nginx", TCP),
        )
        return Site(nginx.address, node.address, [nginx.pid, node.pid], [node.address])

    return build


def direct(
    *options: str, prefix: Sequence[str] = ROOM, named: bool = False
) -> Callable[[Bench], Site]:
    """Node alone: what a proxy does to its queue or descriptors, done by the load itself."""

    def build(bench: Bench) -> Site:
        node = bench.node(*options, prefix=prefix)
        return Site(node.address, node.address, [node.pid], [node.address] if named else [])

    return build


def small_buffers(body: int, bytes_: int) -> Callable[[Bench], Site]:
    """Node whose accepted sockets have a SO_SNDBUF of `bytes_`."""

    def build(bench: Bench) -> Site:
        library = bench.folder / "sndbuf.so"
        source = Path(__file__).with_name("sndbuf.c")
        argv = [program("gcc"), "-O2", "-shared", "-fPIC", str(source), "-o", str(library)]
        subprocess.run(argv, check=True)
        preload = ["env", f"LD_PRELOAD={library}", f"SNDBUF={bytes_}"]
        return direct(f"body={body}", prefix=preload)(bench)

    return build


def two_apart(bench: Bench) -> Site:
    """Two processes that each listen() at the same address: the second ends by EADDRINUSE."""
    node = bench.node("spin_ms=1.5")
    argv = [program("node"), str(HERE / "servers/http.js"), node.address]
    second: Server = bench.start(argv, "second")  # type: ignore[assignment]
    bench.wait_until(second.ended, "the second Node has ended")
    assert "EADDRINUSE" in second.log.read_text(), second.log.read_text()
    return Site(node.address, node.address, [node.pid], [f"node thread {node.pid}"])


def cluster(bench: Bench) -> Site:
    """The same by the cluster module: one queue, two workers."""
    node = bench.node("spin_ms=1.5", "workers=2")
    return Site(node.address, node.address, [node.pid])


KB = 1024
STEADY: Dict[str, float] = {"connections": 32, "rate": 1000}
TOGETHER: Dict[str, float] = {"connections": 32, "burst_ms": 20}
CROWD: Dict[str, float] = {"connections": 1000, "burst_ms": 300, "reconnect": 11, "refuse_wait": 1}
MANY: Dict[str, float] = {"connections": 1100, "think_ms": 2000}
ALL_OUT: Dict[str, float] = {"connections": 32}
BIG: Dict[str, float] = {"connections": 4, "rate": 100}
CHURN = "connection-churn"
FULL = "accept-queue-full"


def _connections() -> List[Rung]:
    step = "kept connections"
    old, bare = "proxy_http_version 1.0;", "proxy_http_version 1.1;"
    return [
        Rung(step, "HTTP/1.0", CHURN, proxied(64, old), STEADY, ALL_OUT, quick=(UNIX,)),
        Rung(step, 'HTTP/1.1 without Connection ""', CHURN, proxied(64, bare), STEADY, ALL_OUT),
        Rung(step, "both lines", HEALTHY, proxied(64, KEPT), STEADY, ALL_OUT, quick=(UNIX,)),
    ]


def _keepalive() -> List[Rung]:
    step = "keepalive, 32 clients at once"
    return [
        Rung(step, "keepalive 2", CHURN, proxied(2, KEPT), TOGETHER, ALL_OUT, quick=(UNIX,)),
        Rung(step, "keepalive 8", CHURN, proxied(8, KEPT), TOGETHER, ALL_OUT),
        Rung(step, "keepalive 64", HEALTHY, proxied(64, KEPT), TOGETHER, ALL_OUT, quick=(UNIX,)),
    ]


def _backlog() -> List[Rung]:
    step = "1,000 clients connect at once"
    rows = []
    for backlog, somaxconn in ((511, 128), (2048, 128), (511, 2048), (2048, 2048)):
        cause = HEALTHY if min(backlog, somaxconn) > 1000 else FULL
        names = ("somaxconn",) if somaxconn < backlog else ()
        what = f"backlog {backlog}, somaxconn {somaxconn}"
        quick = (UNIX,) if backlog == 2048 else ()
        build = direct(f"backlog={backlog}", named=True)
        rows.append(Rung(step, what, cause, build, CROWD, None, somaxconn, quick, names))
    return rows


def _descriptors() -> List[Rung]:
    step = "1,100 clients stay"
    small = direct(prefix=["prlimit", "--nofile=1024:1024"])
    return [
        Rung(step, "nofile 1,024", "fd-limit", small, MANY, quick=(UNIX,), names=("1024",)),
        Rung(step, "nofile 16,384", HEALTHY, direct(), MANY, quick=(UNIX,)),
    ]


def _buffers() -> List[Rung]:
    rows = []
    for label, body in (("1 KB", KB), ("64 KB", 64 * KB), ("1 MB", KB * KB)):
        step = f"replies of {label}"
        small, large = small_buffers(body, 4 * KB), direct(f"body={body}")
        cause = "send-blocked" if body > 64 * KB else HEALTHY
        tcp_cause = "send-blocked" if body > KB else HEALTHY
        names, quick = ("SO_SNDBUF",), (TCP,) if body == KB * KB else ()
        what, others = "send buffers of 8 KB", {"connections": 4}
        rows += [
            Rung(
                step, what, cause, small, BIG, others, names=names, tcp_cause=tcp_cause, quick=quick
            ),
            Rung(step, "default buffers", HEALTHY, large, BIG, others, quick=quick),
        ]
    return rows


def _cluster() -> List[Rung]:
    step = "two Nodes, 600 requests a second of 1.5 ms"
    load: Dict[str, float] = {"connections": 32, "rate": 600}
    return [
        Rung(step, "each listens itself", "app-cpu", two_apart, load, ALL_OUT, quick=(UNIX,)),
        Rung(step, "by the cluster module", HEALTHY, cluster, load, ALL_OUT, quick=(UNIX,)),
    ]


def _computing() -> List[Rung]:
    step = "a handler that computes"
    load: Dict[str, float] = {"connections": 16, "rate": 112}
    return [
        Rung(step, "8 ms a request", "app-cpu", direct("spin_ms=8"), load, quick=(UNIX,)),
        Rung(step, "1 ms a request", HEALTHY, direct("spin_ms=1"), load),
    ]


def rungs() -> List[Rung]:
    """All, broken before repaired."""
    return [
        *_connections(),
        *_keepalive(),
        *_backlog(),
        *_descriptors(),
        *_buffers(),
        *_cluster(),
        *_computing(),
    ]
