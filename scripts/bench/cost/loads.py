"""What is measured: loads that run until they are told to end, and report each round."""

from __future__ import annotations

import csv
import re
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

from scripts.bench.cost.processes import Talking, children, end, wait_until
from scripts.bench.cost.programs import built

NODE_SERVER = """
require('http').createServer((request, response) => response.end('hello\\n'))
  .listen(process.argv[2]).keepAliveTimeout = 600000;
"""
NGINX = """
daemon off; user root; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off; keepalive_requests 100000000;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream app {{ server unix:{folder}/app.sock; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} reuseport;
    location / {{
      proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";
    }}
  }}
}}
"""
PILOT_REQUESTS = 2000


@dataclass(frozen=True)
class Measured:
    """One measurement.

    Attributes:
        figures: name with unit → value.
        made: system call → how many the load knows it made; empty when it does not know.
    """

    figures: Mapping[str, float]
    made: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Running:
    """A load that was started.

    Attributes:
        targets: processes to look at.
        measure: seconds → what one measurement gave.
    """

    targets: Tuple[int, ...]
    measure: Callable[[float], Measured]


@dataclass(frozen=True)
class Load:
    """One load.

    Attributes:
        figure: the figure it is about: `ns_per_socket_call`, `requests_per_s` or `own_cpu_pct`.
        needs: programs that have to be installed.
        start: (folder, words before the target's command line) → the running load.
    """

    name: str
    says: str
    figure: str
    start: Callable[[Path, Sequence[str]], _Started]
    needs: Tuple[str, ...] = ()


_Started = Iterator[Running]


def _call_loop(kind: str) -> Callable[[Path, Sequence[str]], _Started]:
    def start(folder: Path, prefix: Sequence[str]) -> _Started:
        loop = Talking([*prefix, built("call_loop", folder), kind])
        try:
            yield Running((loop.process.pid,), lambda seconds: _calls(loop, seconds))
        finally:
            loop.close()

    return start


def _calls(loop: Talking, seconds: float) -> Measured:
    socket_ns, other_ns, sends, receives, others = loop.ask(str(int(seconds * 1000)))
    made = {"sendto": int(sends), "recvfrom": int(receives), "getppid": int(others)}
    return Measured({"ns_per_socket_call": socket_ns, "ns_per_other_call": other_ns}, made)


def _untargeted(folder: Path, prefix: Sequence[str]) -> _Started:
    """Busy, while another process, which sleeps, is looked at."""
    with _sleeper(prefix) as bystander:
        loop = Talking([built("call_loop", folder), "socketpair"])
        try:
            yield Running((bystander,), lambda s: Measured(_calls(loop, s).figures))
        finally:
            loop.close()


def _idle(_: Path, prefix: Sequence[str]) -> _Started:
    with _sleeper(prefix) as pid:
        yield Running((pid,), _wait)


def _wait(seconds: float) -> Measured:
    time.sleep(seconds)
    return Measured({})


@contextmanager
def _sleeper(prefix: Sequence[str]) -> Iterator[int]:
    process = subprocess.Popen([*prefix, "sleep", "infinity"])
    try:
        yield process.pid
    finally:
        _end_target(process, prefix)


def _per_request(folder: Path, prefix: Sequence[str]) -> _Started:
    program, path = built("per_request", folder), str(folder / "per_request.sock")
    with _server([*prefix, program, "server", path], path, prefix) as server:
        client = Talking([program, "client", path])
        try:
            yield Running((server.pid,), lambda s: _served(client.ask(str(int(s * 1000)))))
        finally:
            client.close()


def _served(answer: List[float]) -> Measured:
    return Measured({"requests_per_s": answer[0], "p99_us": answer[1]})


def _redis(connections: int, pipeline: int) -> Callable[[Path, Sequence[str]], _Started]:
    def start(folder: Path, prefix: Sequence[str]) -> _Started:
        path = str(folder / "redis.sock")
        program = shutil.which("redis-server") or "redis-server"
        words = [program, "--port", "0", "--unixsocket", path, "--save", "", "--dir", str(folder)]
        with _server([*prefix, *words], path, prefix) as server:
            client = ["redis-benchmark", "-s", path, "-c", str(connections), "-P", str(pipeline)]
            client += ["-t", "get", "--csv"]
            yield Running((server.pid,), lambda seconds: _redis_benchmark(client, seconds))

    return start


def _redis_benchmark(client: Sequence[str], seconds: float) -> Measured:
    """So many requests as take that long at the pace of a few."""
    pace, _ = _redis_run(client, PILOT_REQUESTS)
    rate, p99_us = _redis_run(client, max(PILOT_REQUESTS, int(pace * seconds)))
    return Measured({"requests_per_s": rate, "p99_us": p99_us})


def _redis_run(client: Sequence[str], requests: int) -> Tuple[float, float]:
    done = subprocess.run([*client, "-n", str(requests)], capture_output=True, text=True)
    row = next(csv.DictReader(done.stdout.splitlines()))
    return float(row["rps"]), float(row["p99_latency_ms"]) * 1000


def _nginx_node(both: bool) -> Callable[[Path, Sequence[str]], _Started]:
    def start(folder: Path, prefix: Sequence[str]) -> _Started:
        path, port = str(folder / "app.sock"), _free_port()
        configuration, script = folder / "nginx.conf", folder / "server.js"
        configuration.write_text(NGINX.format(folder=folder, port=port))
        script.write_text(NODE_SERVER)
        with ExitStack() as stack:
            node = stack.enter_context(_server([*prefix, "node", str(script), path], path, prefix))
            nginx = stack.enter_context(
                _server(["nginx", "-c", str(configuration)], ("127.0.0.1", port), ())
            )
            targets = (node.pid, *children(nginx.pid)) if both else (node.pid,)
            yield Running(targets, lambda seconds: _wrk(port, seconds))

    return start


def _wrk(port: int, seconds: float) -> Measured:
    words = ["wrk", "-t1", "-c32", f"-d{max(1, round(seconds))}s", "--latency"]
    done = subprocess.run(
        [*words, f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=True
    )
    return Measured({"requests_per_s": wrk_rate(done.stdout), "p99_us": wrk_p99_us(done.stdout)})


def wrk_rate(said: str) -> float:
    """Requests per second that wrk reports."""
    found = re.search(r"Requests/sec:\s+([0-9.]+)", said)
    assert found is not None, said
    return float(found.group(1))


def wrk_p99_us(said: str) -> float:
    """The 99th percentile that wrk reports, in microseconds."""
    found = re.search(r"99%\s+([0-9.]+)(us|ms|s)\b", said)
    assert found is not None, said
    return float(found.group(1)) * {"us": 1.0, "ms": 1e3, "s": 1e6}[found.group(2)]


@contextmanager
def _server(
    argv: Sequence[str], address: object, prefix: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A server that answers, while the block lasts."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(list(argv), stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        wait_until(lambda: _answers(address), argv[0], process)
        yield process
    finally:
        _end_target(process, prefix)
        if isinstance(address, str):
            Path(address).unlink(missing_ok=True)


def _end_target(process: subprocess.Popen[bytes], prefix: Sequence[str]) -> None:
    """By SIGTERM; where it is another's child, that one ends with it and writes its account."""
    if not prefix:
        process.terminate()
        end(process, by=0)
        return
    for pid in children(process.pid):
        subprocess.run(["kill", str(pid)], check=False)
    end(process, by=0)


def _answers(address: object) -> bool:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as probe:
        return probe.connect_ex(address) == 0  # type: ignore[arg-type]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


CALL, SERVED = "ns_per_socket_call", "requests_per_s"
LOADS = (
    Load(
        "socketpair", "C loop, send and recv on a Unix socketpair", CALL, _call_loop("socketpair")
    ),
    Load("unix", "C loop, turns on an accepted Unix connection", CALL, _call_loop("unix")),
    Load("tcp", "C loop, turns on an accepted TCP connection, loopback", CALL, _call_loop("tcp")),
    Load("untargeted", "the socketpair loop while another process is looked at", CALL, _untargeted),
    Load(
        *("nginx-node", "nginx → Node over a Unix socket, Node looked at", SERVED),
        *(_nginx_node(False), ("nginx", "node", "wrk")),
    ),
    Load(
        *("nginx-node-both", "the same, nginx and Node looked at", SERVED),
        *(_nginx_node(True), ("nginx", "node", "wrk")),
    ),
    Load(
        *("redis-1", "Redis over a Unix socket, 1 connection", SERVED, _redis(1, 1)),
        ("redis-server", "redis-benchmark"),
    ),
    Load(
        *("redis-50", "Redis over a Unix socket, 50 connections", SERVED, _redis(50, 1)),
        ("redis-server", "redis-benchmark"),
    ),
    Load(
        *("redis-pipelined", "Redis, 50 connections, 16 requests in one", SERVED, _redis(50, 16)),
        ("redis-server", "redis-benchmark"),
    ),
    Load("per-request", "a Unix connection for each request", SERVED, _per_request),
    Load("idle", "a process that sleeps, on a host that does nothing", "own_cpu_pct", _idle),
)


@contextmanager
def started(load: Load, folder: Path, prefix: Sequence[str] = ()) -> Iterator[Running]:
    """`load` while the block lasts."""
    with contextmanager(load.start)(folder, prefix) as running:
        yield running


def chosen_loads(names: Optional[Sequence[str]]) -> Tuple[Load, ...]:
    """Those of these names, or all.

    Raises:
        KeyError: there is none of a name.
    """
    known = {load.name: load for load in LOADS}
    return LOADS if names is None else tuple(known[name] for name in names)
