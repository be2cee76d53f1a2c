#!/usr/bin/env python3
"""What it costs to observe a host full of processes: scripts/bench/crowd.py [--seconds N].

Root, gcc. Starts 5,000 processes with 50,000 connected Unix sockets, which sleep, and observes
them by name for a while (--all would observe processes of others, too). Prints one JSON document:
the probe's own account of that, and the wall time of attaching and of ending.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cost.own_python import go_on_in_own_python  # noqa: E402

NAME = "udsprobecrowd"


def observed(folder: Path, seconds: float, interval: float) -> Dict[str, Any]:
    """The report, and how long the command took besides its window."""
    output = folder / "report.json"
    window = ["--duration", str(seconds), "--interval", str(interval)]
    command = ["attach", "--comm", NAME, *window, "--json", "--output", str(output)]
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-m", "udsprobe", *command], cwd=ROOT, check=True)
    took_s = time.monotonic() - began_s
    report = json.loads(output.read_text())
    probe = report["probe"]
    return {
        "interval_s": interval,
        "targets": len(report["targets"]),
        "connections": report["connections_total"],
        "attach_ms": round(probe["attach_ms"]),
        "self_cpu_pct": probe["self_cpu_pct"],
        "bpf_cpu_pct": probe["bpf_cpu_pct"],
        "rss_mb": round(probe["rss_bytes"] / 1e6),
        "window_s": report["window"]["duration_s"],
        "outside_the_window_s": round(took_s - report["window"]["duration_s"], 1),
        "turned_away": probe.get("turned_away"),
    }


def main() -> None:
    go_on_in_own_python()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=5_000)
    parser.add_argument("--sockets", type=int, default=50_000)
    options = parser.parse_args()
    pairs = options.sockets // options.processes // 2
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / NAME
        source = Path(__file__).with_name("crowd.c")
        subprocess.run(["gcc", "-O2", "-o", str(program), str(source)], check=True)
        command = [str(program), str(options.processes), str(pairs)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as crowd:
            try:
                assert crowd.stdout is not None
                if crowd.stdout.readline() != "ready\n":
                    raise SystemExit("the crowd could not be started: limits of processes?")
                print(json.dumps(observed(Path(name), options.seconds, options.interval), indent=2))
            finally:
                crowd.kill()


if __name__ == "__main__":
    main()
