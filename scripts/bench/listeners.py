#!/usr/bin/env python3
"""What the listener probes cost a host that opens many Unix connections.

Run as root: scripts/bench/listeners.py [--rounds N] [--ms N]. Each figure is a pair, without
udsprobe and with it, one right after the other and in turns first. The results are the ratio of
throughputs, at 20,000 connections per second and at as many as there can be, and the ratio of CPU
time per connection, which other users of the machine disturb less. `nothing` is a pair without
udsprobe: the noise of this machine. `elsewhere`: udsprobe watches another process. `target`: it
watches the one that connects and accepts. The first interval is not measured: the kernel's own
statistics of programs are on then, as they are in one of thirty later. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Dict, Iterator, List, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cost.own_python import go_on_in_own_python  # noqa: E402

SOURCE = Path(__file__).resolve().parent / "connects.c"
UDSPROBE = [sys.executable, "-m", "udsprobe", "attach", "--json"]
PATIENCE_S = 20.0
AIM_PER_S = 20_000
FIRST_INTERVAL_S = 1.2
CONDITIONS = ("nothing", "elsewhere", "target")


class Run(NamedTuple):
    """Connections opened, in wall time and in CPU time of the client (`one`: of both ends)."""

    opened: int
    wall_ns: int
    cpu_ns: int

    @property
    def per_s(self) -> float:
        return self.opened / self.wall_ns * 1e9

    @property
    def cpu_ns_each(self) -> float:
        return self.cpu_ns / self.opened


class Ratios(NamedTuple):
    """With udsprobe ÷ without."""

    throughput: float
    cpu: float


class Load:
    """The workload, which opens connections whenever it is told."""

    def __init__(self, program: Path, mode: str, milliseconds: int, rate_per_s: int) -> None:
        self._process = subprocess.Popen(
            [str(program), mode, str(milliseconds), str(rate_per_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.pid = int(self._line())

    def run(self) -> Run:
        assert self._process.stdin is not None
        self._process.stdin.write("x")
        self._process.stdin.flush()
        return Run(*map(int, self._line().split()))

    def end(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextlib.contextmanager
def watching(pid: int, folder: Path) -> Iterator[None]:
    """udsprobe at work on a process; once a second it reads everything, as it does live."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    argv = [*UDSPROBE, "--pid", str(pid), "--output", str(folder / "report.json")]
    probe = subprocess.Popen([*argv, "--ready-file", str(ready)], cwd=ROOT)
    try:
        give_up_at = time.monotonic() + PATIENCE_S
        while not ready.exists():
            if probe.poll() is not None or time.monotonic() > give_up_at:
                raise SystemExit("udsprobe attach was never ready")
            time.sleep(0.005)
        yield
    finally:
        probe.terminate()
        probe.wait()


def pair(load: Load, condition: str, sleeper: int, folder: Path, *, without_first: bool) -> Ratios:
    """One run without udsprobe and one with it."""

    def with_it() -> Run:
        if condition == "nothing":
            return load.run()
        with watching(load.pid if condition == "target" else sleeper, folder):
            began = time.monotonic()
            while time.monotonic() < began + FIRST_INTERVAL_S:
                load.run()
            return load.run()

    before = load.run() if without_first else None
    probed = with_it()
    base = before or load.run()
    return Ratios(probed.per_s / base.per_s, probed.cpu_ns_each / base.cpu_ns_each)


def measure(load: Load, rounds: int, folder: Path) -> Dict[str, object]:
    sleeper = subprocess.Popen(["sleep", "100000"])
    ratios: Dict[str, List[Ratios]] = {condition: [] for condition in CONDITIONS}
    try:
        load.run()
        plain = [load.run() for _ in range(3)]
        for number in range(rounds):
            for condition in CONDITIONS:
                first = number % 2 == 0
                found = pair(load, condition, sleeper.pid, folder, without_first=first)
                ratios[condition].append(found)
    finally:
        load.end()
        sleeper.terminate()
        sleeper.wait()
    cpu_ns = median(run.cpu_ns_each for run in plain)
    return {
        "connections_per_s_without": round(median(run.per_s for run in plain)),
        "client_cpu_ns_per_connection_without": round(cpu_ns),
        **{condition: summary(found, cpu_ns) for condition, found in ratios.items()},
    }


def summary(found: List[Ratios], cpu_ns: float) -> Dict[str, object]:
    cpu = [each.cpu for each in found]
    added_ns = cpu_ns * (median(cpu) - 1)
    return {
        "throughput": spread([each.throughput for each in found]),
        "cpu_per_connection": spread(cpu),
        "added_cpu_ns_per_connection": round(added_ns),
        f"pct_of_a_cpu_at_{AIM_PER_S}_per_s": round(added_ns * AIM_PER_S / 1e7, 2),
    }


def spread(ratios: List[float]) -> Dict[str, object]:
    return {
        "median": round(median(ratios), 4),
        "quartiles": [round(q, 4) for q in quantiles(ratios, n=4)[::2]],
        "least_and_most": [round(min(ratios), 4), round(max(ratios), 4)],
    }


def main() -> None:
    go_on_in_own_python()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ms", type=int, default=500, help="length of one run")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="udsprobe-") as made:
        folder = Path(made)
        program = folder / "connects"
        subprocess.run(["gcc", "-O2", "-Wall", str(SOURCE), "-o", str(program)], check=True)
        found = {
            f"{mode}, {rate or 'all it can'}": measure(
                Load(program, mode, wanted.ms, rate), wanted.rounds, folder
            )
            for mode, rate in (("one", AIM_PER_S), ("one", 0), ("two", AIM_PER_S), ("two", 0))
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
