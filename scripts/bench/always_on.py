#!/usr/bin/env python3
"""What being there all the time costs: nothing, the empty pair, detail full, light and auto.

    sudo scripts/bench/always_on.py [--rounds 24] [--seconds 5] [--settle 0] [--output FILE]

nginx → Node over a Unix socket, saturated by wrk, Node observed. In each round each of them looks
once, beginning with another one each time. Prints for each the requests lost, the shift of the
p99 and the CPU time per request of wrk, nginx and Node together that is added, against nothing in
the same round: medians with their 95 % intervals. Take a quiet machine: on two CPUs one run's
requests/s vary by 10 %, CPU time per request by less.

A saturated service is under pressure from the first moment on: auto has full detail for up to a
minute then. What it costs for good is measured behind that (--settle 120), over a time with
scheduled windows in it (--seconds 60); without --settle it costs what full does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cost import figures, loads, tools  # noqa: E402
from scripts.bench.cost.alternation import Alternation  # noqa: E402
from scripts.bench.cost.machine import describe  # noqa: E402
from scripts.bench.cost.own_python import go_on_in_own_python  # noqa: E402
from scripts.bench.cost.processes import cpu_s_of  # noqa: E402

COLUMNS = (
    ("requests lost %", "requests_lost_pct"),
    ("p99 shift %", "p99_shift_pct"),
    ("CPU per request more %", "cpu_more_pct"),
)


def measured_with_cpu(running: loads.Running) -> loads.Running:
    """The same with the CPU time of client and servers; of these the first is looked at."""

    def measure(seconds: float) -> loads.Measured:
        before_s = _cpu_s(running.targets)
        measured = running.measure(seconds)
        spent_s = _cpu_s(running.targets) - before_s
        requests = measured.figures["requests_per_s"] * max(1, round(seconds))
        cpu = {"cpu_us_per_request": 1e6 * spent_s / requests}
        return replace(measured, figures={**measured.figures, **cpu})

    return loads.Running(running.targets[:1], measure)


def _cpu_s(pids: Sequence[int]) -> float:
    # The client is a child that has ended; a tool that looks has not.
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(map(cpu_s_of, pids))


def start(folder: Path, prefix: Sequence[str]) -> Iterator[loads.Running]:
    """nginx and Node, while the block lasts."""
    (both,) = loads.chosen_loads(["nginx-node-both"])
    with contextmanager(both.start)(folder, prefix) as running:
        yield measured_with_cpu(running)


def arms(settle_s: float = 0.0) -> List[tools.Tool]:
    """Who looks.

    Args:
        settle_s: how long auto is under load before it is measured.
    """
    known = tools.chosen_tools(["nothing", "empty"])
    details = (
        tools.Tool(detail, f"`udsprobe attach --detail {detail}`", tools.udsprobe(detail))
        for detail in ("full", "light")
    )
    auto = tools.Tool("auto", "`udsprobe attach --detail auto`", tools.udsprobe("auto"))
    return [*known, *details, replace(auto, settle_s=settle_s)]


def of_arm(rounds: figures.Rounds, name: str) -> Dict[str, Any]:
    """Its figures, with the CPU time per request against nothing."""
    found = figures.of_tool(rounds, name)
    if name != figures.BARE:
        found["cpu_more_pct"] = figures.more_pct(rounds, name, "cpu_us_per_request")
    return found


def table(told: Dict[str, Dict[str, Any]]) -> str:
    """One line for each arm."""
    lines = [f"{'':8}" + "".join(f"{title:>28}" for title, _ in COLUMNS)]
    for name, found in told.items():
        cells = (_cell(found.get(key)) for _, key in COLUMNS)
        lines.append(f"{name:8}" + "".join(f"{cell:>28}" for cell in cells))
    return "\n".join(lines)


def _cell(figure: Optional[Dict[str, float]]) -> str:
    if figure is None:
        return "-"
    return f"{figure['median']:+.1f} ({figure['low']:+.1f} to {figure['high']:+.1f})"


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=5.0, help="of one measurement (5)")
    parser.add_argument(
        "--settle", type=float, default=0.0, help="seconds under load before auto is measured (0)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="everything, as JSON")
    asked = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("always_on: probes take root; run it with sudo")
    go_on_in_own_python()
    load = loads.Load("nginx-node", "", loads.SERVED, start, ("nginx", "node", "wrk"))
    with tempfile.TemporaryDirectory(prefix="udsprobe-bench-") as folder:
        alternation = Alternation(load, arms(asked.settle), Path(folder), asked.seconds)
        alternation.run(asked.rounds)
    for name, reason in alternation.reasons.items():
        print(f"{name} did not run: {reason}", file=sys.stderr)
    told = {name: of_arm(alternation.rounds, name) for name in alternation.rounds}
    print(table(told))
    if asked.output is not None:
        document = {"machine": describe(), "arms": told, "rounds": alternation.rounds}
        asked.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
