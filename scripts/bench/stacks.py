"""What sampling stacks costs its target: rounds of computing per second of its own CPU time.

    sudo .venv/bin/python scripts/bench/stacks.py [--pairs N]

In turns: udsprobe attached without stacks, then with --stacks. The target counts its own rounds
per second of its own CPU time, so what the samples take shows as fewer rounds. Prints each pair,
their median and a 95 % interval of it (the sign test's).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 3
SOURCE = r"""
#include <stdio.h>
#include <time.h>
static volatile unsigned sink;
static double cpu_s(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec / 1e9; }
static void deep(int depth) { if (depth) deep(depth - 1);
  else for (int i = 0; i < 100000; i++) sink = sink * 1664525 + 1; sink++; }
int main(void) { for (;;) { double from = cpu_s(); long rounds = 0;
  while (cpu_s() < from + 0.5) { deep(20); rounds++; }
  printf("%f\n", rounds / (cpu_s() - from)); fflush(stdout); } }
"""


def program(folder: Path) -> str:
    """The compiled target."""
    source, target = folder / "target.c", folder / "target"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-o", str(target), str(source)], check=True)
    return str(target)


def rounds_per_s(target: subprocess.Popen[str], option: str) -> float:
    """On average, while udsprobe is attached that way."""
    udsprobe = [sys.executable, "-m", "udsprobe", "attach", "--pid", str(target.pid), option]
    ready = Path(tempfile.mkdtemp()) / "ready"
    argv = [*udsprobe, "--duration", str(SECONDS + 1), "--plain", "--ready-file", str(ready)]
    observer = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL)
    assert target.stdout is not None
    while not ready.exists() and observer.poll() is None:
        target.stdout.readline()
    target.stdout.readline()
    told = [float(target.stdout.readline()) for _ in range(2 * SECONDS - 1)]
    assert observer.wait() == 0
    return statistics.mean(told)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        target = subprocess.Popen([program(Path(folder))], stdout=subprocess.PIPE, text=True)
        try:
            costs: List[float] = []
            for _ in range(asked.pairs):
                without, sampled = (rounds_per_s(target, o) for o in ("--no-stacks", "--stacks"))
                costs.append(100 * (without / sampled - 1))
                print(f"{without:,.0f}/s {sampled:,.0f}/s: {costs[-1]:+.2f} % more CPU a round")
        finally:
            target.kill()
            target.wait()
    ranked = sorted(costs)
    # Of eight values the median lies between the second and the last but one in 93 % of samples.
    print(f"median {statistics.median(costs):+.2f} %, {ranked[1]:+.2f} to {ranked[-2]:+.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
