"""Nobody listens there, or not for this user."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, UNIX, Subject, case

NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


def _nobody_there(bench: Bench) -> str:
    """An address where nobody listens; on Unix the socket file of a server that died."""
    address = bench.address("dead")
    if address.startswith("/"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(address)
    return address


def _there(bench: Bench, gone: bool, address: str) -> str:
    """The address, where an app listens unless it is to be gone."""
    if not gone:
        Path(address).unlink(missing_ok=True)
        bench.asyncio(address=address)
    return address


def _before(bench: Bench, upstream: str, main: str = "user root;") -> Subject:
    at = f"unix:{upstream}" if upstream.startswith("/") else upstream
    nginx = bench.nginx(f"proxy_pass http://{at};", main=main, address=bench.address("nginx", TCP))
    bench.load(nginx.address, connections=4, rate=100)
    return Subject([nginx.pid], [upstream])


@case("nginx", needs=("nginx",), quick=UNIX)
def nginx_no_such_socket(bench: Bench, upstream_gone: bool = True) -> Subject:
    """The upstream's socket does not exist: ENOENT, 502."""
    subject = _before(bench, _there(bench, upstream_gone, bench.address("gone")))
    return Subject(subject.pids, [*subject.names, "ENOENT"])


@case("nginx", BOTH, needs=("nginx",))
def nginx_upstream_dead(bench: Bench, upstream_gone: bool = True) -> Subject:
    """The upstream died: ECONNREFUSED, 502."""
    subject = _before(bench, _there(bench, upstream_gone, _nobody_there(bench)))
    return Subject(subject.pids, [*subject.names, "ECONNREFUSED"])


@case("nginx", needs=("nginx", "node"))
def nginx_may_not(bench: Bench, forbidden: bool = True) -> Subject:
    """nginx's workers run as nobody and may not open the live app's socket: EACCES, 502."""
    node = bench.node()
    os.chmod(node.address, 0o700 if forbidden else 0o777)
    subject = _before(bench, node.address, main="user nobody nogroup;")
    return Subject(subject.pids, [*subject.names, "EACCES"])


@case("nginx", needs=("nginx", "node"))
def nginx_one_of_two_dead(bench: Bench, upstream_gone: bool = True) -> Subject:
    """One of two upstreams is gone and tried each time: clients are served, by the other."""
    node, gone = bench.node(), bench.address("gone")
    _there(bench, upstream_gone, gone)
    servers = f"server unix:{node.address} max_fails=0; server unix:{gone} max_fails=0;"
    nginx = bench.nginx(
        "proxy_pass http://app;",
        upstream=f"upstream app {{ {servers} }}",
        address=bench.address("nginx", TCP),
    )
    bench.load(nginx.address, connections=4, rate=100)
    return Subject([nginx.pid], [gone, "ENOENT"])


@case("Node", (TCP,), needs=("node",))
def node_upstream_dead(bench: Bench, upstream_gone: bool = True) -> Subject:
    """Each request needs an upstream port where nobody listens."""
    dead = _there(bench, upstream_gone, _nobody_there(bench))
    node = bench.node(f"upstream={dead}")
    bench.load(node.address, connections=4, rate=100)
    return Subject([node.pid], [dead, "ECONNREFUSED"])


@case("Go", needs=("go",))
def go_upstream_missing(bench: Bench, upstream_gone: bool = True) -> Subject:
    """Each request needs an upstream socket that does not exist."""
    gone = _there(bench, upstream_gone, bench.address("gone"))
    server = bench.go(f"upstream={gone}")
    bench.load(server.address, connections=4, rate=100)
    return Subject([server.pid], [gone, "ENOENT"])


@case("Caddy", needs=("caddy",))
def caddy_upstream_dead(bench: Bench, upstream_gone: bool = True) -> Subject:
    """reverse_proxy to the socket file of a server that died."""
    dead = _there(bench, upstream_gone, _nobody_there(bench))
    caddy = bench.caddy(f"reverse_proxy unix/{dead}")
    bench.load(caddy.address, connections=4, rate=100)
    return Subject([caddy.pid], [dead, "ECONNREFUSED"])


@case("Node", needs=("node",))
def clients_may_not(bench: Bench, forbidden: bool = True) -> Subject:
    """Some clients of the observed server may not open its socket; others are served."""
    node = bench.node()
    os.chmod(node.address, 0o700 if forbidden else 0o777)
    bench.load(node.address, connections=2, rate=50)
    bench.load(node.address, prefix=NOBODY, connections=4, warm=0)
    return Subject([node.pid], [node.address, "EACCES"])
