#!/usr/bin/env python3
"""What following who ends waits costs their threads, in two ways in turns.

    sudo scripts/bench/waits.py [--rounds 24] [--seconds 1] [--only LOAD,LOAD] [--output FILE]

`off`: all of udsprobe's programs, but none at sched_waking, as where the kernel does not tell
interrupts from threads. `on`: that one too, and the account of waits. Programs are loaded anew each
time, before a measurement begins.

`pingpong`: two threads and a byte on a Unix socketpair. `handover`: two threads and a futex. Both
sleep in each round. `socketpair`: a loop that sends and receives and never sleeps.
`nginx-node-both`: nginx → Node, both looked at (left out where one of them or wrk is missing). Off
and on in each round, beginning with the other one each time. Prints one JSON document: of each load
the figures with either way, and by how much they are higher with `on` in the same round, in % and
for each round of work, medians and 95 % intervals; and the waits counted, of which there are none
with `off`. `programs_ns`: what all programs take for a round, a call or a request, by the kernel's
own account in a measurement of its own after each one. Take a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cost.figures import spread  # noqa: E402
from scripts.bench.cost.loads import Measured, chosen_loads, started  # noqa: E402
from scripts.bench.cost.machine import describe  # noqa: E402
from scripts.bench.cost.own_python import go_on_in_own_python  # noqa: E402
from scripts.bench.cost.programs import missing  # noqa: E402
from scripts.bench.stacks import Target  # noqa: E402

OFF, ON = "off", "on"
PAIRS, LOADS = ("pingpong", "handover"), ("socketpair", "nginx-node-both")
SETTLES_S, REQUESTS = 0.1, "requests_per_s"
Figures = Dict[str, float]
Measure = Callable[[float], Tuple[Figures, float]]
"""Seconds → figures, and how many rounds, calls or requests there were."""


class Probe(NamedTuple):
    """What follows the targets: its waits so far, and the time of its programs so far."""

    waits: Callable[[], int]
    programs_ns: Callable[[], int]


@contextmanager
def observed(pids: Sequence[int], way: str) -> Iterator[Probe]:
    """Targets of all programs."""
    from udsprobe.kernel.abilities import features
    from udsprobe.kernel.proc.procfs import Procfs
    from udsprobe.kernel.tracer import Tracer

    procfs = Procfs()
    may_be_told = features.may_be_told

    def told(types: bytes) -> bool:
        return way == ON and may_be_told(types)

    with patch.object(features, "may_be_told", told):
        tracer = Tracer()
    try:
        table = tracer.wait_table(procfs)
        if (table is not None) != (way == ON):
            raise RuntimeError("this kernel does not tell who ends waits: nothing to measure")
        tracer.seed({pid: start_ticks(procfs, pid) for pid in pids})
        yield Probe(
            waits=lambda: 0 if table is None else sum(row.count for row in table.read()),
            programs_ns=lambda: sum(run_ns for run_ns, _ in tracer.program_runs().values()),
        )
    finally:
        tracer.close()


def start_ticks(procfs: Any, pid: int) -> int:
    """When a living process began."""
    process = procfs.process(pid)
    if process is None:
        raise RuntimeError(f"the target {pid} has ended")
    return int(process.start_ticks)


def per_round(target: Target) -> Measure:
    """Wall and CPU time of a round of a pair of threads."""

    def measure(seconds: float) -> Tuple[Figures, float]:
        (rounds, cpu_ns), began_ns = target.account(), time.monotonic_ns()
        time.sleep(seconds)
        (rounds_after, cpu_ns_after), ended_ns = target.account(), time.monotonic_ns()
        done = max(1, rounds_after - rounds)
        figures = {
            "wall_ns_per_round": (ended_ns - began_ns) / done,
            "cpu_ns_per_round": (cpu_ns_after - cpu_ns) / done,
        }
        return figures, done

    return measure


def per_request(measure: Callable[[float], Measured]) -> Measure:
    """A load that tells its own figures: of the calls that it made, or of requests."""

    def measured_load(seconds: float) -> Tuple[Figures, float]:
        told = measure(seconds)
        return dict(told.figures), sum(told.made.values()) or told.figures[REQUESTS] * seconds

    return measured_load


def measured(
    pids: Sequence[int], measure: Measure, rounds: int, seconds: float
) -> Dict[str, Dict[str, Any]]:
    """Both ways in turns."""
    seen: Dict[str, List[Figures]] = {OFF: [], ON: []}
    waits = {OFF: 0, ON: 0}
    for number in range(rounds):
        for way in (OFF, ON) if number % 2 == 0 else (ON, OFF):
            with observed(pids, way) as probe:
                time.sleep(SETTLES_S)
                figures, _ = measure(seconds)
                waits[way] += probe.waits()
                seen[way].append({**figures, "programs_ns": programs_ns(probe, measure, seconds)})
    return {"waits": dict(waits), **compared(seen)}


def programs_ns(probe: Probe, measure: Measure, seconds: float) -> float:
    """Time of all programs for a round, a call or a request, by the kernel's statistics."""
    from udsprobe.kernel.objects.libbpf import libbpf
    from udsprobe.kernel.objects.run_time import STATS_RUN_TIME

    statistics = libbpf().call("bpf_enable_stats", STATS_RUN_TIME)
    try:
        before_ns = probe.programs_ns()
        _, done = measure(seconds)
        return (probe.programs_ns() - before_ns) / done
    finally:
        os.close(statistics)


def compared(seen: Dict[str, List[Figures]]) -> Dict[str, Dict[str, Any]]:
    """Of each figure: with either way, and the difference round by round."""
    found: Dict[str, Dict[str, Any]] = {}
    for name in seen[OFF][0]:
        off, on = ([each[name] for each in seen[way]] for way in (OFF, ON))
        found[name] = {
            OFF: spread(off),
            ON: spread(on),
            "more": spread([b - a for a, b in zip(off, on)]),
            "more_pct": spread([100 * (b / a - 1) for a, b in zip(off, on)]),
        }
    return found


def of_pair(name: str, rounds: int, seconds: float, folder: Path) -> Dict[str, Any]:
    """Two threads that wait for each other."""
    program = str(folder / "pair")
    source = str(ROOT / "scripts/bench/waits.c")
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, source], check=True)
    target = Target(program, name, folder)
    try:
        return measured([target.pid], per_round(target), rounds, seconds)
    finally:
        target.end()


def of_load(name: str, rounds: int, seconds: float, folder: Path) -> Dict[str, Any]:
    """A load of the other benchmarks."""
    (load,) = chosen_loads([name])
    absent = missing(load.needs)
    if absent:
        return {"left_out": absent}
    with started(load, folder) as running:
        return measured(running.targets, per_request(running.measure), rounds, seconds)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default=",".join((*PAIRS, *LOADS)))
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    go_on_in_own_python()
    document: Dict[str, Any] = {"machine": describe(), "seconds": asked.seconds}
    for name in asked.only.split(","):
        measure = of_pair if name in PAIRS else of_load
        with tempfile.TemporaryDirectory() as folder:
            document[name] = measure(name, asked.rounds, asked.seconds, Path(folder))
    text = json.dumps(document, indent=1)
    print(text)
    if asked.output is not None:
        asked.output.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
