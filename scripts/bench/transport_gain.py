#!/usr/bin/env python3
"""Whether `max_gain_pct` keeps its word: the same servers on TCP and on a Unix socket.

Run as root: scripts/bench/transport_gain.py [--runs N] [--seconds S]. Alternates the two
transports. The change of the mean served request from TCP to Unix has to lie between nothing and
what was predicted on TCP: a Unix socket is cheaper and not free. Prints a table, and JSON with
--json. Servers and load are those of the scenario lab; 1 and 8 connections.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Dict, Iterator, List

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cost.own_python import go_on_in_own_python  # noqa: E402

UDSPROBE = [sys.executable, "-m", "udsprobe"]
LAB = ROOT / "tests" / "scenarios"
PATIENCE_S = 10.0
HTTP = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
SERVERS = {
    "echo of 64 bytes, C": ("echo", "64"),
    "hello, Node": ("node", "spin_ms=0"),
    "1 ms of computing, Node": ("node", "spin_ms=1"),
}


@dataclass(frozen=True)
class Outcome:
    """Medians: the mean request in µs on each transport, and shares of it in %."""

    server: str
    connections: int
    tcp_us: float
    unix_us: float
    saved_pct: float
    share_pct: float
    max_gain_pct: float


def main() -> None:
    go_on_in_own_python()
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="udsprobe-") as name:
        folder = Path(name)
        programs = {each: compiled(each, folder) for each in ("servers/echo.c", "load/client.c")}
        outcomes = [
            outcome(server, connections, programs, folder, options)
            for server in SERVERS
            for connections in (1, 8)
        ]
    if options.json:
        print(json.dumps([asdict(each) for each in outcomes], indent=2, ensure_ascii=False))
    else:
        print(table(outcomes))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def compiled(source: str, folder: Path) -> Path:
    path = LAB / source
    target = folder / path.stem
    subprocess.run(["gcc", "-O2", "-pthread", "-o", target, path, "-lm"], check=True)
    return target


def outcome(
    server: str,
    connections: int,
    programs: Dict[str, Path],
    folder: Path,
    options: argparse.Namespace,
) -> Outcome:
    reports: Dict[str, List[Dict[str, Any]]] = {"tcp": [], "unix": []}
    for run in range(options.runs):
        for transport, seen in reports.items():
            place = folder / f"{transport}{run}"
            address = "127.0.0.1:47123" if transport == "tcp" else f"{place}.sock"
            Path(address).unlink(missing_ok=True)
            seen.append(observed(server, address, connections, programs, folder, options.seconds))
    tcp_us, unix_us = (median(map(mean_us, seen)) for seen in reports.values())
    verdicts = [report["verdict"] for report in reports["tcp"]]
    return Outcome(
        server,
        connections,
        tcp_us,
        unix_us,
        100 * (tcp_us - unix_us) / tcp_us,
        median(each["transport_share_pct"] for each in verdicts),
        median(each["max_gain_pct"] for each in verdicts),
    )


def observed(
    server: str,
    address: str,
    connections: int,
    programs: Dict[str, Path],
    folder: Path,
    seconds: float,
) -> Dict[str, Any]:
    kind, option = SERVERS[server]
    request = folder / "request"
    request.write_bytes(HTTP if kind == "node" else b"x" * 64)
    frame = "http" if kind == "node" else "bytes:64"
    command = (
        ["node", str(LAB / "servers" / "http.js"), address, option]
        if kind == "node"
        else [str(programs["servers/echo.c"]), address, option]
    )
    load = [str(programs["load/client.c"]), address, str(request), frame]
    with running(command) as serving, loaded([*load, f"connections={connections}"], address):
        attach = [*UDSPROBE, "attach", "--pid", str(serving.pid), "--duration", str(seconds)]
        report = subprocess.run(
            [*attach, "--json"],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
        )
    document: Dict[str, Any] = json.loads(report.stdout)
    return document


@contextmanager
def running(command: List[str]) -> Iterator[subprocess.Popen[str]]:
    """Until the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def loaded(command: List[str], address: str) -> Iterator[None]:
    """Once the server listens, and replies come."""
    wait_until_it_listens(address)
    with running(command) as load:
        assert load.stdout is not None
        assert load.stdout.readline() == "warm\n", "no replies"
        yield


def wait_until_it_listens(address: str) -> None:
    family = socket.AF_UNIX if address.startswith("/") else socket.AF_INET
    host, _, port = address.rpartition(":")
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        with socket.socket(family) as attempt:
            if not attempt.connect_ex(address if not port.isdigit() else (host, int(port))):
                return
        time.sleep(0.01)
    raise TimeoutError(f"nobody listens at {address}")


def mean_us(report: Dict[str, Any]) -> float:
    return float(report["requests"]["served"]["latency_us"]["mean"])


def table(outcomes: List[Outcome]) -> str:
    lines = [
        "| server | connections | TCP µs | Unix µs | saved % | transport % | at most % | within |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in outcomes:
        within = "yes" if 0 <= each.saved_pct <= each.max_gain_pct else "no"
        lines.append(
            f"| {each.server} | {each.connections} | {each.tcp_us:.1f} | {each.unix_us:.1f} | "
            f"{each.saved_pct:.1f} | {each.share_pct:.1f} | {each.max_gain_pct:.1f} | {within} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
