#!/usr/bin/env python3
"""What the probes add to one system call.

Run as root on a quiet machine: scripts/bench/call_cost.py [--rounds N] [--calls N]. A C loop
sends and receives 64 bytes on a Unix socketpair, then calls getppid; each round measures it in
turn under `nothing`, `empty` (a pair of programs on sys_enter and sys_exit that do nothing),
`other` (udsprobe observes another process) and `target` (udsprobe observes the loop). Figures are
ns of CPU time per call: medians, and the ratio of what was added to what `empty` adds, median of
the rounds' own ratios. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
HERE = Path(__file__).resolve().parent
MODES = ("nothing", "empty", "other", "target")


class Loop:
    """The C loop, running and idle until asked for a round."""

    def __init__(self, program: Path, calls: int) -> None:
        self._process = subprocess.Popen(
            [str(program), str(calls)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def round(self) -> Tuple[float, float]:
        """(ns per send or recv, ns per getppid)."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        socket_ns, other_ns = map(float, self._process.stdout.readline().split())
        return socket_ns, other_ns

    def close(self) -> None:
        """End it, by end of input."""
        self._process.communicate()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--calls", type=int, default=200_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        program, empty = _built(Path(directory))
        measured = _measure(program, empty.read_bytes(), asked.rounds, asked.calls)
    json.dump(_figures(measured), sys.stdout, indent=2)
    print()


def _built(directory: Path) -> Tuple[Path, Path]:
    program, empty = directory / "socket_loop", directory / "empty_pair.bpf.o"
    subprocess.run(["cc", "-O2", "-o", program, HERE / "socket_loop.c"], check=True)
    target = {"x86_64": "x86", "aarch64": "arm64"}[os.uname().machine]
    flags = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", f"-D__TARGET_ARCH_{target}"]
    source = HERE / "empty_pair.bpf.c"
    subprocess.run(["clang", *flags, "-I", ROOT / "bpf", "-c", source, "-o", empty], check=True)
    return program, empty


def _measure(
    program: Path, empty: bytes, rounds: int, calls: int
) -> Dict[str, List[Tuple[float, float]]]:
    loop, bystander = Loop(program, calls), Loop(program, calls)
    measured: Dict[str, List[Tuple[float, float]]] = {mode: [] for mode in MODES}
    loop.round()
    try:
        for _ in range(rounds):
            for mode in MODES:
                observed = {"other": bystander.pid, "target": loop.pid}.get(mode)
                with _empty(empty) if mode == "empty" else _udsprobe(observed):
                    # The first is not counted: in its first interval udsprobe has the kernel's
                    # own statistics of BPF programs on, as in one of thirty later.
                    loop.round()
                    measured[mode].append(loop.round())
    finally:
        loop.close()
        bystander.close()
    return measured


@contextmanager
def _empty(raw: bytes) -> Iterator[None]:
    from udsprobe.kernel.probe_object import ProbeObject

    pair = ProbeObject(raw)
    pair.load()
    for name in ("sys_enter", "sys_exit"):
        pair.attach(name)
    yield
    pair.close()


@contextmanager
def _udsprobe(pid: Optional[int]) -> Iterator[None]:
    if pid is None:
        yield
        return
    with tempfile.TemporaryDirectory() as directory:
        ready = Path(directory) / "ready"
        words = ["attach", "--pid", str(pid), "--json", "--output", os.devnull]
        words += ["--interval", "0.1"]
        command = [sys.executable, "-m", "udsprobe", *words, "--ready-file"]
        process = subprocess.Popen([*command, str(ready)], cwd=ROOT)
        while not ready.exists() and process.poll() is None:
            os.sched_yield()
        yield
        process.send_signal(signal.SIGINT)
        process.wait()


def _figures(measured: Dict[str, List[Tuple[float, float]]]) -> Dict[str, object]:
    figures: Dict[str, object] = {"kernel": os.uname().release, "rounds": len(measured["nothing"])}
    for at, what in enumerate(("send_recv", "getppid")):
        rows = {mode: [pair[at] for pair in measured[mode]] for mode in MODES}
        figures[what] = {
            "ns_per_call": {mode: _spread(values) for mode, values in rows.items()},
            "added_over_empty": {mode: _ratio(rows, mode) for mode in ("other", "target")},
        }
    return figures


def _ratio(rows: Dict[str, List[float]], mode: str) -> Dict[str, float]:
    triples = zip(rows["nothing"], rows["empty"], rows[mode])
    return _spread([(seen - bare) / (empty - bare) for bare, empty, seen in triples])


def _spread(values: List[float]) -> Dict[str, float]:
    return {
        "min": round(min(values), 2),
        "median": round(statistics.median(values), 2),
        "max": round(max(values), 2),
    }


if __name__ == "__main__":
    main()
