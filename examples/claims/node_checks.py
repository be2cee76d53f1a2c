"""Claims about Node and nginx, by the programs themselves."""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

from examples.claims.check import Between, Figures, check, exactly
from examples.frame import observe
from examples.frame.pairs import in_turns, paired
from examples.frame.times import typical
from tests.patience import PATIENCE_S
from tests.scenarios import baseline
from tests.scenarios.bench import Bench, Server
from tests.scenarios.case import BOTH, TCP, UNIX
from tests.scenarios.programs import HERE, program
from udsprobe.compare.comparison import Figure

PAIRS = 7
KEPT = 'proxy_http_version 1.1; proxy_set_header Connection "";'


def _node(script: str) -> str:
    argv = [program("node"), "-p", script]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@check(
    "keepAliveTimeout {keepalive_ms} ms, backlog {backlog}",
    keepalive_ms=exactly(5000),
    backlog=exactly(511),
)
def node_defaults() -> Figures:
    """keepAliveTimeout; the backlog of listen()."""
    timeout = _node("require('http').createServer().keepAliveTimeout")
    with Bench(UNIX) as bench:
        script = "require('net').createServer().listen(process.argv[1])"
        address = bench.address()
        bench.server([program("node"), "-e", script, address], address, "node")
        # Names of other sockets need not be text.
        shown = subprocess.run(["ss", "-xlH"], capture_output=True, check=True).stdout
        line = next(line for line in shown.splitlines() if address.encode() in line)
    return {"keepalive_ms": int(timeout), "backlog": int(line.split()[3])}


@check(
    "Unix: read {unix_read:.2f}, writev {unix_writev:.2f}, sendmsg and recvmsg {unix_msg:.2f} a "
    "request; TCP: {tcp_read:.2f}, {tcp_writev:.2f}, {tcp_msg:.2f}",
    unix_read=Between(0.95, 1.1),
    tcp_read=Between(0.95, 1.1),
    unix_writev=Between(0.95, 1.1),
    tcp_writev=Between(0.95, 1.1),
    unix_msg=Between(0.0, 0.01),
    tcp_msg=Between(0.0, 0.01),
)
def node_calls() -> Figures:
    """Which system calls Node makes for a request."""
    figures: Figures = {}
    for transport in BOTH:
        with Bench(transport) as bench:
            node = bench.node()
            bench.load(node.address, connections=8)
            report = observe([node.pid], 1).report
        calls = report["requests"]["syscalls_per_request"]["by_syscall"]
        figures[f"{transport}_read"] = calls["read"]
        figures[f"{transport}_writev"] = calls["writev"]
        figures[f"{transport}_msg"] = calls.get("sendmsg", 0.0) + calls.get("recvmsg", 0.0)
    return figures


def _proxy(bench: Bench, transport: str) -> Tuple[Server, Server]:
    """nginx before Node, connections kept."""
    node = bench.node()
    to = f"unix:{node.address}" if transport == UNIX else node.address
    upstream = f"upstream app {{ server {to}; keepalive 64; }}"
    location = f"proxy_pass http://app; {KEPT}"
    return bench.nginx(location, upstream=upstream, address=bench.address("nginx", TCP)), node


@check(
    "at 1,000 requests a second {unix_calls:.1f} calls a request over Unix, {tcp_calls:.1f} over "
    "TCP: {tcp_to_unix:.2f} times as many",
    unix_calls=Between(5.0, 13.0),
    tcp_calls=Between(5.0, 13.0),
    tcp_to_unix=Between(0.7, 1.4),
)
def proxied_calls() -> Figures:
    """System calls of nginx and Node together for each request of a client."""
    calls: Dict[str, float] = {}
    for transport in BOTH:
        with Bench(transport) as bench:
            nginx, node = _proxy(bench, transport)
            bench.load(nginx.address, connections=16, rate=1000)
            seen = observe([nginx.pid, node.pid], 2)
            calls[transport] = seen.calls_per_request(bench.family(nginx.pid)) or 0.0
    figures: Figures = {f"{transport}_calls": each for transport, each in calls.items()}
    return {**figures, "tcp_to_unix": calls[TCP] / calls[UNIX]}


@check(
    "epoll_pwait {epoll_pct:.0f} % of the wall time in calls of a Node that is idle",
    epoll_pct=Between(85, 100),
)
def strace_of_an_idle_node() -> Figures:
    """The recipe of the guide on a Node that does nothing but answer 20 requests a second."""
    with Bench(UNIX) as bench:
        node = bench.node()
        bench.load(node.address, connections=1, rate=20, warm=1)
        out = bench.folder / "strace.txt"
        table = baseline.trace(["-c", "-w"], [node.pid], 2, out)
        line = next(line for line in table.splitlines() if "epoll_pwait" in line)
    return {"epoll_pct": float(line.split()[0])}


@check(
    "`strace -p PID … sleep 1` ended with {status} after {ended_after_s:.1f} s: by `timeout 3`",
    status=exactly(124),
    ended_after_s=Between(3.0, 10.0),
)
def strace_with_a_command() -> Figures:
    """`strace -p PID … sleep 1`: does it end with the command?"""
    with Bench(UNIX) as bench:
        node = bench.node()
        argv = ["timeout", "-s", "INT", "3", "strace", "-c", "-p", str(node.pid), "sleep", "1"]
        began = time.monotonic()
        code = subprocess.run(argv, capture_output=True, check=False).returncode
        return {"status": code, "ended_after_s": time.monotonic() - began}


@check(
    "{listening} workers of a cluster listen; a Node beside them ends with {other_status} and "
    "{other_says} on stderr",
    listening=exactly(2),
    other_status=exactly(1),
    other_says=exactly("EADDRINUSE"),
)
def cluster_on_one_path() -> Figures:
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
        listening = node.log.read_text().count("listening")
        argv = [program("node"), str(HERE / "servers/http.js"), address]
        other = subprocess.run(
            argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    says = re.search(r"\bE[A-Z]{4,}\b", other.stderr)
    return {
        "listening": listening,
        "other_status": other.returncode,
        "other_says": says[0] if says else "nothing",
    }


@check(
    "{own} descriptors of its own, {served:,} connections served, {closed} closed at once: "
    "{held:,} in all",
    own=Between(15, 30),
    served=Between(994, 1009),
    closed=Between(91, 106),
    held=Between(1022, 1024),
)
def descriptors_at_the_wall() -> Figures:
    """A Node with a limit of 1,024: how many connections it holds, and what the next ones see."""
    with Bench(UNIX) as bench:
        node = bench.node(prefix=["prlimit", "--nofile=1024:1024"])
        # Node may not yet have closed the connection that asked whether it listens.
        bench.wait_until(lambda: _sockets_at(node.address) == 1, "the first client has gone")
        base = len(os.listdir(f"/proc/{node.pid}/fd"))
        clients: List[socket.socket] = []
        for _ in range(1100):
            clients.append(socket.socket(socket.AF_UNIX))
            clients[-1].connect(node.address)
        kept, closed = _kept(clients)
        for client in clients:
            client.close()
    return {"own": base, "served": kept, "closed": closed, "held": kept + base}


def _sockets_at(path: str) -> int:
    return sum(
        line.endswith(path)
        for line in Path("/proc/net/unix").read_text("utf-8", "replace").splitlines()
    )


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


@check("Node has made its soft limit {soft:,}, the hard one", soft=exactly(4096))
def node_raises_its_limit() -> Figures:
    """A soft limit of 1,024 below a hard one, as systemd gives it."""
    with Bench(UNIX) as bench:
        node = bench.node(prefix=["prlimit", "--nofile=1024:4096"])
        limits = Path(f"/proc/{node.pid}/limits").read_text()
    return {"soft": int(re.findall(r"Max open files +(\d+)", limits)[0])}


@check(
    "nginx logs errno 11 (EAGAIN) {errno_11} times, 111 (ECONNREFUSED) {errno_111} times, and "
    "answers {status}",
    errno_11=Between(1, 3),
    errno_111=exactly(0),
    status=exactly("502"),
)
def full_queue_behind_nginx() -> Figures:
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
        logged = log.read_text()
        answered, _, _ = select.select(clients, [], [], PATIENCE_S)
        status = answered[0].recv(12).decode()[9:]
        for client in clients:
            client.close()
    counts: Figures = {f"errno_{one}": logged.count(f"({one}:") for one in (11, 111)}
    return {**counts, "status": status}


@check(
    "the log says so at level {level}; of its clients {dropped} saw a reset or closed connection, "
    "{bad_gateways} a 502",
    level=exactly("alert"),
    dropped=Between(1, 1000),
    bad_gateways=exactly(0),
)
def worker_connections_run_out() -> Figures:
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
        level = re.search(r"\[(\w+)\].*worker_connections are not enough", log.read_text())
    return {
        "level": level[1] if level else "none",
        "dropped": sum(not one.isdigit() for one in seen),
        "bad_gateways": seen.count("502"),
    }


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


@check(
    "{on_calls:.1f} calls buffered, {off_calls:.1f} not; p50 {off_to_on:.2f} times as long "
    "({low:.2f} to {high:.2f}, {pairs} pairs)",
    on_calls=Between(18, 30),
    off_calls=Between(35, 90),
    off_to_on=Between(0.9, 1.4),
    low=Between(0.7, 1.3),
    high=Between(1.0, 1.6),
    pairs=exactly(PAIRS),
)
def proxy_buffering() -> Figures:
    """A reply of 64 KB, buffered by nginx and not: system calls, and the median of a run."""
    calls: Dict[str, float] = {}
    p50_us: Dict[str, List[float]] = {"on": [], "off": []}
    with Bench(UNIX) as bench:
        node = bench.node("body=65536")
        proxies = {how: _buffering(bench, node, how) for how in p50_us}
        for order in in_turns(p50_us, PAIRS):
            for how in order:
                load = bench.load(proxies[how].address, connections=4, rate=200, seconds=2)
                load.popen.wait(PATIENCE_S)
                p50_us[how].append(load.result()["p50_us"])
        for how, nginx in proxies.items():
            bench.load(nginx.address, connections=4, rate=200, seconds=5)
            seen = observe([nginx.pid, node.pid], 2)
            calls[how] = seen.calls_per_request(bench.family(nginx.pid)) or 0.0
    figure = paired(p50_us["on"], p50_us["off"])
    counts: Figures = {"on_calls": calls["on"], "off_calls": calls["off"]}
    return {**counts, **_ratio(figure, "off_to_on")}


def _buffering(bench: Bench, node: Server, how: str) -> Server:
    return bench.nginx(
        f"proxy_pass http://app; {KEPT} proxy_buffering {how};",
        upstream=f"upstream app {{ server unix:{node.address}; keepalive 64; }}",
        address=bench.address("nginx", TCP),
    )


def _cpu_pct(report: Dict[str, Any]) -> float:
    """CPU time of all targets, % of one CPU."""
    on_cpu = ("user", "sys_socket", "sys_poll", "sys_other")
    time = report["time"]
    used_s = sum(time["total"][name] for name in on_cpu) * time["total_s"]
    return float(100 * used_s / report["window"]["duration_s"])


@check(
    "Unix {unix_cpu_pct:.0f} % of a CPU, TCP {tcp_cpu_pct:.0f} %, at {lowest_per_s:,.0f} requests "
    "a second and more; for each request {unix_to_tcp:.2f} times as much ({low:.2f} to {high:.2f}, "
    "{pairs} pairs)",
    unix_cpu_pct=Between(20, 60),
    tcp_cpu_pct=Between(20, 70),
    lowest_per_s=Between(4000, 5100),
    unix_to_tcp=Between(0.70, 1.05),
    low=Between(0.67, 1.05),  # a third less is excluded
    high=Between(0.70, 1.3),
    pairs=exactly(PAIRS),
)
def cpu_at_5000_requests() -> Figures:
    """CPU time of nginx and Node at 5,000 requests a second, the transports in turns."""
    cpu_pct: Dict[str, List[float]] = {transport: [] for transport in BOTH}
    per_s: Dict[str, List[float]] = {transport: [] for transport in BOTH}
    for order in in_turns(BOTH, PAIRS):
        for transport in order:
            with Bench(transport) as bench:
                nginx, node = _proxy(bench, transport)
                bench.load(nginx.address, connections=32, rate=5000)
                seen = observe([nginx.pid, node.pid], 3)
                served = seen.served(bench.family(nginx.pid))
            cpu_pct[transport].append(_cpu_pct(seen.report))
            per_s[transport].append(served / seen.report["window"]["duration_s"])
    each = {how: [cpu / rate for cpu, rate in zip(cpu_pct[how], per_s[how])] for how in BOTH}
    figure = paired(each[TCP], each[UNIX])
    return {
        "unix_cpu_pct": typical(cpu_pct[UNIX]),
        "tcp_cpu_pct": typical(cpu_pct[TCP]),
        "lowest_per_s": min(min(rates) for rates in per_s.values()),
        **_ratio(figure, "unix_to_tcp"),
    }


def _ratio(figure: Figure, name: str) -> Figures:
    assert figure.ratio and figure.ratio_low and figure.ratio_high
    ends: Figures = {"low": figure.ratio_low, "high": figure.ratio_high, "pairs": PAIRS}
    return {name: figure.ratio, **ends}


@check(
    "p99 {unix_p99_ms:.0f} ms over Unix, {tcp_p99_ms:.0f} over TCP",
    unix_p99_ms=Between(19, 45),
    tcp_p99_ms=Between(19, 45),
)
def pauses_on_both_transports() -> Figures:
    """One request in 20 stops the loop for 20 ms, as a long garbage collection does."""
    figures: Figures = {}
    for transport in BOTH:
        with Bench(transport) as bench:
            node = bench.node("spin_ms=20", "one_in=20")
            load = bench.load(node.address, connections=8, rate=200, seconds=4)
            load.popen.wait(PATIENCE_S)
            figures[f"{transport}_p99_ms"] = load.result()["p99_us"] / 1000
    return figures


@check(
    "{alone_cpu_pct:.0f} % of a CPU alone, {idle_to_alone:.2f} times as much ({low:.2f} to "
    "{high:.2f}, {pairs} pairs) beside 2,000 idle connections",
    alone_cpu_pct=Between(5, 40),
    idle_to_alone=Between(0.85, 1.15),
    low=Between(0.5, 1.0),
    high=Between(1.0, 1.5),
    pairs=exactly(PAIRS),
)
def idle_connections() -> Figures:
    """500 requests a second, alone and beside 2,000 connections that say nothing."""
    prefix = ["prlimit", "--nofile=16384:16384"]
    cpu_pct: Dict[int, List[float]] = {0: [], 2000: []}
    for order in in_turns(cpu_pct, PAIRS):
        for idle in order:
            with Bench(UNIX) as bench:
                node = bench.node(prefix=prefix)
                bench.load(node.address, prefix=prefix, connections=4, rate=500, idle=idle)
                cpu_pct[idle].append(_cpu_pct(observe([node.pid], 2).report))
    figure = paired(cpu_pct[0], cpu_pct[2000])
    return {"alone_cpu_pct": typical(cpu_pct[0]), **_ratio(figure, "idle_to_alone")}
