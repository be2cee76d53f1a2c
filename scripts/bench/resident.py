#!/usr/bin/env python3
"""udsprobe's resident memory while it names the code of a real server under load.

    sudo scripts/bench/resident.py [--only node,java] [--seconds 60] [--against DIR] [--output FILE]

For each runtime one server, which computes and waits a little for each request, and a client that
keeps 32 connections busy. `attach --stacks --interval 1 --jsonl` observes it, of this checkout and,
with `--against`, of another one at the same time. Read once a second from outside: VmRSS, Pss, and
the most that was ever resident. A runtime that is not installed is left out, with the reason.
Prints one JSON document; MB are 1,000,000 bytes. What is resident at the end is the median of the
last quarter.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Dict, List, Sequence

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cost.machine import describe  # noqa: E402
from scripts.bench.cost.own_python import go_on_in_own_python  # noqa: E402
from scripts.bench.cost.processes import cpu_s_of, end, wait_until  # noqa: E402
from scripts.bench.cost.runtimes import RUNTIMES, Runtime  # noqa: E402

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


class Observer:
    """One checkout's udsprobe, which names code.

    Args:
        checkout: whose package runs.
        folder: for its files.
    """

    def __init__(self, checkout: Path, pid: int, options: Sequence[str], folder: Path) -> None:
        folder.mkdir()
        self._report, ready = folder / "report.jsonl", folder / "ready"
        argv = [sys.executable, "-m", "udsprobe", "attach", "--pid", str(pid), *options]
        argv += ["--jsonl", "--output", str(self._report), "--ready-file", str(ready)]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        self._process = subprocess.Popen(argv, cwd=checkout, env=environment)
        wait_until(ready.exists, "udsprobe", self._process)
        self._began_s, self._cpu_s = time.monotonic(), cpu_s_of(self._process.pid)
        self._rss: List[float] = []
        self._pss: List[float] = []

    def look(self) -> None:
        """Read its memory now."""
        self._rss.append(_kib(self._process.pid, "smaps_rollup", "Rss"))
        self._pss.append(_kib(self._process.pid, "smaps_rollup", "Pss"))

    def outcome(self) -> Dict[str, Any]:
        """Of the whole time; it still observes."""
        pid, quarter = self._process.pid, max(1, len(self._rss) // 4)
        spent_s = cpu_s_of(pid) - self._cpu_s
        return {
            "rss_mb": median(self._rss[-quarter:]),
            "pss_mb": median(self._pss[-quarter:]),
            "most_rss_mb": _kib(pid, "status", "VmHWM"),
            "own_cpu_pct": 100 * spent_s / (time.monotonic() - self._began_s),
            "mapped_mb": _by_mapping(pid),
        }

    def close(self) -> Dict[str, Any]:
        """End it; what it took of the server's code."""
        end(self._process)
        found = [json.loads(line)["stacks"] for line in self._report.read_text().splitlines()]
        taken = [each for each in found if each is not None]
        return {
            "intervals": len(found),
            "stacks": max((each["stacks_total"] for each in taken), default=0),
            "taken": sum(
                each["samples"] + (each["sleeps"] or {}).get("count", 0) for each in taken
            ),
            "lost": sum(each["lost"] for each in taken),
        }


def _kib(pid: int, file: str, name: str) -> float:
    """MB of a field of a file in /proc that is told in KiB."""
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(int(each.split()[1]) for each in lines if each.startswith(f"{name}:")) * 1024 / 1e6


def _by_mapping(pid: int) -> Dict[str, float]:
    """MB resident by what is mapped, those of 0.3 MB or more."""
    found: Dict[str, float] = {}
    name = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            name = words[5].rsplit("/", 1)[-1] if len(words) > 5 else "anonymous"
        elif words[0] == "Rss:":
            found[name] = found.get(name, 0.0) + int(words[1]) * 1024 / 1e6
    most = sorted(found.items(), key=lambda each: -each[1])
    return {name: round(mb, 2) for name, mb in most if mb >= 0.3}


def free_port() -> int:
    """Of TCP, here."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def measured(runtime: Runtime, asked: argparse.Namespace) -> Dict[str, Any]:
    """Each checkout's udsprobe on one server."""
    checkouts = {"here": ROOT, **({"there": asked.against} if asked.against else {})}
    found: Dict[str, Any] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="udsprobe-bench-")))
        port = asked.port or free_port()
        server = runtime.server(port, folder)
        stack.callback(end, server)
        pid = server.pid
        load = runtime.load(port, asked.seconds + 30)
        stack.callback(end, load)
        observers = {
            name: Observer(path, pid, asked.options.split(), folder / name)
            for name, path in checkouts.items()
        }
        ends = time.monotonic() + asked.seconds
        while time.monotonic() < ends:
            time.sleep(1)
            for each in observers.values():
                each.look()
        for name, each in observers.items():
            found[name] = each.outcome()
        for name, each in observers.items():
            found[name] |= each.close()
    return found


def main() -> None:
    """Measure and print."""
    go_on_in_own_python()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", metavar="RUNTIME,…", help=f"of {', '.join(RUNTIMES)} (all)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each runtime (60)")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout, beside it")
    parser.add_argument("--options", default="--stacks --interval 1", help="of attach")
    parser.add_argument("--port", type=int, default=0, help="for the servers (a free one)")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    document: Dict[str, Any] = {"machine": describe(), "options": asked.options}
    for name in asked.only.split(",") if asked.only else RUNTIMES:
        print(name, file=sys.stderr)
        try:
            document[name] = measured(RUNTIMES[name], asked)
        except KeyboardInterrupt:
            break
        except Exception as error:  # The others can be measured.
            document[name] = {"reason": f"{type(error).__name__}: {error}"}
    text = json.dumps(document, indent=1)
    print(text)
    if asked.output is not None:
        asked.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
