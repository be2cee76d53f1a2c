"""Claims about Node and nginx, by the programs themselves."""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Tuple

from check import check

from examples.frame import observe
from tests.patience import PATIENCE_S
from tests.scenarios import baseline
from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP, UNIX
from tests.scenarios.programs import HERE, program

KEPT = 'proxy_http_version 1.1; proxy_set_header Connection "";'


def _node(script: str) -> str:
    argv = [program("node"), "-p", script]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@check
def node_defaults() -> str:
    """keepAliveTimeout; the backlog of listen()."""
    timeout = _node("require('http').createServer().keepAliveTimeout")
    with Bench(UNIX) as bench:
        script = "require('net').createServer().listen(process.argv[1])"
        address = bench.address()
        bench.server([program("node"), "-e", script, address], address, "node")
        # Names of other sockets need not be text.
        shown = subprocess.run(["ss", "-xlH"], capture_output=True, check=True).stdout
        line = next(line for line in shown.splitlines() if address.encode() in line)
    backlog = int(line.split()[3])
    assert (timeout, backlog) == ("5000", 511)
    return f"keepAliveTimeout {timeout} ms, backlog {backlog}"


@check
def node_calls() -> str:
    """Which system calls Node makes for a request."""
    said = []
    for transport in BOTH:
        with Bench(transport) as bench:
            node = bench.node()
            bench.load(node.address, connections=8)
            report = observe([node.pid], 1).report
            calls = report["requests"]["syscalls_per_request"]["by_syscall"]
        assert not {"sendmsg", "recvmsg"} & {name for name, n in calls.items() if n > 0.01}
        top = ", ".join(f"{name} {n:.2f}" for name, n in list(calls.items())[:4])
        said.append(f"{transport}: {top}")
    return "; ".join(said) + "; no sendmsg or recvmsg"


@check
def proxied_calls() -> str:
    """System calls of nginx and Node together for each request of a client."""
    said: Dict[str, float] = {}
    for transport in BOTH:
        with Bench(transport) as bench:
            node = bench.node()
            to = f"unix:{node.address}" if transport == UNIX else node.address
            nginx = bench.nginx(
                f"proxy_pass http://app; {KEPT}",
                upstream=f"upstream app {{ server {to}; keepalive 64; }}",
                address=bench.address("nginx", TCP),
            )
            bench.load(nginx.address, connections=16)
            seen = observe([nginx.pid, node.pid], 2)
            said[transport] = seen.calls_per_request(bench.family(nginx.pid)) or 0.0
    return ", ".join(f"{transport} {n:.1f}" for transport, n in said.items())


@check
def strace_of_an_idle_node() -> str:
    """The recipe of the guide on a Node that does nothing but answer 20 requests a second."""
    with Bench(UNIX) as bench:
        node = bench.node()
        bench.load(node.address, connections=1, rate=20, warm=1)
        out = bench.folder / "strace.txt"
        table = baseline.trace(["-c", "-w"], [node.pid], 2, out)
        line = next(line for line in table.splitlines() if "epoll_pwait" in line)
    share = float(line.split()[0])
    assert share > 60
    return f"epoll_pwait {share:.0f} % of the wall time in calls of a Node that is idle"


@check
def strace_with_a_command() -> str:
    """`strace -p PID … sleep 1`: does it end with the command?"""
    with Bench(UNIX) as bench:
        node = bench.node()
        argv = ["timeout", "-s", "INT", "3", "strace", "-c", "-p", str(node.pid), "sleep", "1"]
        code = subprocess.run(argv, capture_output=True, check=False).returncode
    assert code == 124
    return "still tracing 2 s after the command has ended"


@check
def cluster_on_one_path() -> str:
    """Two workers of the cluster module call listen(); then a second Node beside them."""
    script = (
        "const c=require('cluster'),h=require('http');"
        "if(c.isPrimary){c.fork();c.fork();c.on('listening',w=>console.log('listening',w.id))}"
        "else h.createServer((q,r)=>r.end()).listen(process.argv[1]);"
    )
    with Bench(UNIX) as bench:
        address = bench.address()
        node = bench.server([program("node"), "-e", script, address], address, "node")
        bench.wait_until(
            lambda: node.log.read_text().count("listening") == 2, "both workers listen", node
        )
        argv = [program("node"), str(HERE / "servers/http.js"), address]
        other = subprocess.run(
            argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    assert other.returncode and "EADDRINUSE" in other.stderr
    return "both workers of a cluster listen; a Node beside them ends by EADDRINUSE, loudly"


@check
def descriptors_at_the_wall() -> str:
    """A Node with a limit of 1,024: how many connections it holds, and what the next ones see."""
    with Bench(UNIX) as bench:
        node = bench.node(prefix=["prlimit", "--nofile=1024:1024"])
        base = len(os.listdir(f"/proc/{node.pid}/fd"))
        clients: List[socket.socket] = []
        for _ in range(1100):
            clients.append(socket.socket(socket.AF_UNIX))
            clients[-1].connect(node.address)
        kept, closed = _kept(clients)
        for client in clients:
            client.close()
    assert abs(kept + base - 1024) <= 2, (kept, base)
    return f"{base} descriptors of its own, {kept:,} connections served, {closed} closed at once"


def _kept(clients: List[socket.socket]) -> Tuple[int, int]:
    answered = 0
    for client in clients:
        client.settimeout(PATIENCE_S)
        try:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            answered += bool(client.recv(65536))
        except OSError:
            continue
    return answered, len(clients) - answered


@check
def node_raises_its_limit() -> str:
    """A soft limit of 1,024 below a hard one, as systemd gives it."""
    with Bench(UNIX) as bench:
        node = bench.node(prefix=["prlimit", "--nofile=1024:4096"])
        limits = Path(f"/proc/{node.pid}/limits").read_text()
    soft = int(re.findall(r"Max open files +(\d+)", limits)[0])
    assert soft == 4096
    return f"Node has made its soft limit {soft:,}, the hard one"


@check
def full_queue_behind_nginx() -> str:
    """Node is stopped with a queue of 8; what nginx's clients get, and its log says."""
    with Bench(UNIX) as bench:
        node = bench.node("backlog=8")
        nginx = bench.nginx(
            f"proxy_pass http://unix:{node.address};", address=bench.address("nginx", TCP)
        )
        os.kill(node.pid, 19)
        host, port = nginx.address.split(":")
        clients = [socket.create_connection((host, int(port))) for _ in range(12)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        log = next(bench.folder.glob("nginx*/error.log"))
        bench.wait_until(lambda: "(11:" in log.read_text(), "nginx logs errno 11")
        refused = log.read_text().count("(11: Resource temporarily unavailable)")
        answered, _, _ = select.select(clients, [], [], PATIENCE_S)
        status = answered[0].recv(15).decode()
        for client in clients:
            client.close()
    assert status.endswith("502") or " 502" in status
    return f"nginx logs errno 11 (EAGAIN), not ECONNREFUSED, {refused} times, and answers 502"


@check
def worker_connections_run_out() -> str:
    """worker_connections 12, and 10 clients of a proxy that needs two for each."""
    with Bench(UNIX) as bench:
        node = bench.node("sleep_ms=200")
        conf = "proxy_pass http://unix:%s;" % node.address  # noqa: UP031
        nginx = bench.nginx(conf, address=bench.address("nginx", TCP))
        path = next(bench.folder.glob("nginx*/nginx.conf"))
        path.write_text(
            path.read_text().replace("worker_connections 1024", "worker_connections 12")
        )
        os.kill(nginx.pid, 1)
        log = path.with_name("error.log")
        host, port = nginx.address.split(":")

        def starved() -> bool:
            clients = [socket.create_connection((host, int(port))) for _ in range(10)]
            for client in clients:
                client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            seen.extend(_statuses(clients))
            return "worker_connections are not enough" in log.read_text()

        seen: List[str] = []
        bench.wait_until(starved, "nginx runs out of connections", nginx)
    kinds = sorted(set(seen))
    return f"the log says so at level alert; its clients saw {', '.join(kinds)}"


def _statuses(clients: List[socket.socket]) -> List[str]:
    found = []
    for client in clients:
        client.settimeout(PATIENCE_S)
        with client:
            try:
                found.append(client.recv(12).decode()[9:] or "a closed connection")
            except OSError:
                found.append("a reset connection")
    return found


@check
def proxy_buffering() -> str:
    """System calls of nginx and Node for a request of 64 KB, buffered and not."""
    said = []
    for how in ("on", "off"):
        with Bench(UNIX) as bench:
            node = bench.node("body=65536")
            nginx = bench.nginx(
                f"proxy_pass http://app; {KEPT} proxy_buffering {how};",
                upstream=f"upstream app {{ server unix:{node.address}; keepalive 64; }}",
                address=bench.address("nginx", TCP),
            )
            load = bench.load(nginx.address, connections=4, rate=200)
            seen = observe([nginx.pid, node.pid], 2)
            calls = seen.calls_per_request(bench.family(nginx.pid)) or 0.0
            said.append(f"{how}: {calls:.1f} calls, p50 {load.result()['p50_us'] / 1000:.2f} ms")
    return "; ".join(said)


def _cpu_pct(report: Dict[str, Any]) -> float:
    """CPU time of all targets, % of one CPU."""
    on_cpu = ("user", "sys_socket", "sys_poll", "sys_other")
    time = report["time"]
    used_s = sum(time["total"][name] for name in on_cpu) * time["total_s"]
    return float(100 * used_s / report["window"]["duration_s"])


@check
def cpu_at_5000_requests() -> str:
    """CPU time of nginx and Node at 5,000 requests a second."""
    said = []
    for transport in BOTH:
        with Bench(transport) as bench:
            node = bench.node()
            to = f"unix:{node.address}" if transport == UNIX else node.address
            nginx = bench.nginx(
                f"proxy_pass http://app; {KEPT}",
                upstream=f"upstream app {{ server {to}; keepalive 64; }}",
                address=bench.address("nginx", TCP),
            )
            bench.load(nginx.address, connections=32, rate=5000)
            seen = observe([nginx.pid, node.pid], 3)
            rate = seen.served(bench.family(nginx.pid)) / seen.report["window"]["duration_s"]
            said.append(f"{transport} {_cpu_pct(seen.report):.0f} % of a CPU at {rate:,.0f}/s")
    return ", ".join(said)


@check
def pauses_on_both_transports() -> str:
    """One request in 20 stops the loop for 20 ms, as a long garbage collection does."""
    said = []
    for transport in BOTH:
        with Bench(transport) as bench:
            node = bench.node("spin_ms=20", "one_in=20")
            load = bench.load(node.address, connections=8, rate=200, seconds=4)
            load.popen.wait(PATIENCE_S)
            said.append(f"{transport}: p99 {load.result()['p99_us'] / 1000:.0f} ms")
    return ", ".join(said)


@check
def idle_connections() -> str:
    """500 requests a second, alone and beside 2,000 connections that say nothing."""
    said = []
    for idle in (0, 2000):
        with Bench(UNIX) as bench:
            node = bench.node(prefix=["prlimit", "--nofile=16384:16384"])
            prefix = ["prlimit", "--nofile=16384:16384"]
            bench.load(node.address, prefix=prefix, connections=4, rate=500, idle=idle)
            seen = observe([node.pid], 2)
            calls = seen.calls_per_request() or 0.0
            said.append(f"{idle:,} idle: {calls:.1f} calls, {_cpu_pct(seen.report):.0f} % of a CPU")
    return "; ".join(said)
