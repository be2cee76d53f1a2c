#!/usr/bin/env python3
"""How udsprobe bears large hosts: own CPU, memory, exact counts, what is turned away.

Run as root: scripts/bench/scale.py [--only CASE,…]. Cases: `idle-N` and `busy-N`, N
connections followed (both ends of N/2), nothing or turns on all of them; `hot`, what a call costs
on 20 connections among 100,000 and alone; `listeners`, `threads` and `processes`. Each case
compares what the report counts with what the load made. Prints one JSON document. One process
opens at most --per-process pairs, because each takes two descriptors.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Callable, Dict, Iterator, List, Sequence

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cost.machine import describe  # noqa: E402
from scripts.bench.cost.own_python import go_on_in_own_python  # noqa: E402
from scripts.bench.cost.processes import Talking, cpu_s_of, end, wait_until  # noqa: E402
from scripts.bench.cost.programs import built  # noqa: E402

CONNECTIONS = (1_000, 10_000, 100_000)
LISTENERS, THREADS, PROCESSES_PER_S = 1_000, 5_000, 10_000 / 60
HOT = 10


class Watched:
    """udsprobe on these processes while the block lasts.

    Attributes:
        attach_s: from the command until it looks.
        report: the document, behind the block.
    """

    def __init__(self, pids: Sequence[int], folder: Path) -> None:
        ready, self._output = folder / "ready", folder / "report.json"
        for path in (ready, self._output):
            path.unlink(missing_ok=True)
        words = [sys.executable, "-m", "udsprobe", "attach", "--json"]
        words += ["--output", str(self._output), "--ready-file", str(ready)]
        for pid in pids:
            words += ["--pid", str(pid)]
        began = time.monotonic()
        self._process = subprocess.Popen(
            words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        wait_until(ready.exists, "udsprobe", self._process, patience_s=300.0)
        self.attach_s = time.monotonic() - began
        self.report: Dict[str, Any] = {}

    def own_cpu_pct(self, seconds: float) -> float:
        """Of a core, over that long."""
        before_s, began = cpu_s_of(self._process.pid), time.monotonic()
        time.sleep(seconds)
        spent_s = cpu_s_of(self._process.pid) - before_s
        return 100 * spent_s / (time.monotonic() - began)

    def rss_mb(self) -> float:
        """Resident now."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        end(self._process)
        self.report = json.loads(self._output.read_text())


@contextmanager
def loads(words: Sequence[Sequence[str]], folder: Path) -> Iterator[List[Talking]]:
    """Programs `many`, ready."""
    with ExitStack() as stack:
        talking = []
        for arguments in words:
            one = Talking([built("many", folder), *arguments])
            stack.callback(one.close)
            talking.append(one)
        for one in talking:
            one.heard()
        yield talking


def watching(talking: Sequence[Talking], folder: Path) -> Watched:
    """udsprobe on these loads."""
    return Watched([one.process.pid for one in talking], folder)


def connection_loads(connections: int, per_process: int, folder: Path) -> List[List[str]]:
    """As many processes as it takes; both ends of a connection are followed, each is one."""
    words, left = [], connections // 2
    while left:
        now = min(left, per_process)
        words.append(["connections", str(now), str(folder / f"{len(words)}.sock")])
        left -= now
    return words


def with_connections(connections: int, busy: bool, asked: argparse.Namespace) -> Dict[str, Any]:
    """Own CPU, memory and counts with so many connections observed."""
    with tempfile.TemporaryDirectory(prefix="udsprobe-bench-") as name:
        folder = Path(name)
        words = connection_loads(connections, asked.per_process, folder)
        with loads(words, folder) as talking, watching(talking, folder) as watched:
            for one, arguments in zip(talking, words):
                one.tell(f"{int(asked.seconds * 1000) if busy else 0} {arguments[1]}")
            cpu_pct, rss_mb = watched.own_cpu_pct(asked.seconds), watched.rss_mb()
            made = sum(int(one.heard()[1]) for one in talking)
    return {
        "own_cpu_pct": cpu_pct,
        "rss_mb": rss_mb,
        "attach_s": watched.attach_s,
        "calls_made": made,
        "calls_counted": calls(watched.report, ("sendto", "recvfrom")),
        "connections": connections,
        "connections_seen": watched.report["connections_total"],
        **account(watched.report),
    }


def calls(report: Dict[str, Any], names: Sequence[str]) -> int:
    """Of these names, on Unix sockets."""
    rows = report["syscalls"]
    return sum(r["calls"] for r in rows if r["name"] in names and r["transport"] == "unix")


def account(report: Dict[str, Any]) -> Dict[str, Any]:
    """What was lost or turned away, and memory of the maps."""
    probe = report["probe"]
    return {
        "turned_away": probe["turned_away"],
        "events_lost": sum(probe["events_lost"].values()),
        "maps_bytes": probe["maps_bytes"],
    }


def hot(asked: argparse.Namespace) -> Dict[str, Any]:
    """ns per call on the same connections, alone and among many."""
    found: Dict[str, List[float]] = {str(2 * HOT): [], str(asked.hot_among): []}
    for _ in range(asked.rounds):
        for count, figures in found.items():
            with tempfile.TemporaryDirectory(prefix="udsprobe-bench-") as name:
                folder = Path(name)
                words = connection_loads(int(count), asked.per_process, folder)
                with loads(words, folder) as talking, watching(talking, folder):
                    talking[0].ask(f"300 {HOT}")
                    figures.append(talking[0].ask(f"500 {HOT}")[0])
    few, many = (median(figures) for figures in found.values())
    return {"ns_per_call": found, "ratio": many / few}


def listeners(asked: argparse.Namespace) -> Dict[str, Any]:
    """All are in the report."""
    return simple(["listeners", str(LISTENERS), "{folder}/l"], asked, counted_listeners)


def counted_listeners(report: Dict[str, Any], _: float) -> Dict[str, Any]:
    return {"made": LISTENERS, "counted": len(report["listeners"])}


def threads(asked: argparse.Namespace) -> Dict[str, Any]:
    """All are in the report, beside the first."""
    return simple(["threads", str(THREADS)], asked, counted_threads)


def counted_threads(report: Dict[str, Any], _: float) -> Dict[str, Any]:
    return {"made": THREADS + 1, "counted": sum(t["threads"] for t in report["targets"])}


def processes(asked: argparse.Namespace) -> Dict[str, Any]:
    """10,000 a minute that end at once: all have exited."""
    return simple(
        ["processes"], asked, counted_processes, f"{asked.seconds * 1000:.0f} {PROCESSES_PER_S:.0f}"
    )


def counted_processes(report: Dict[str, Any], made: float) -> Dict[str, Any]:
    return {"made": int(made), "counted": report["targets_exited"]}


def simple(
    words: Sequence[str],
    asked: argparse.Namespace,
    counted: Callable[[Dict[str, Any], float], Dict[str, Any]],
    line: str = "0 1",
) -> Dict[str, Any]:
    """One process; what was made and what the report counts."""
    with tempfile.TemporaryDirectory(prefix="udsprobe-bench-") as name:
        folder = Path(name)
        arguments = [[word.format(folder=name) for word in words]]
        with loads(arguments, folder) as talking, watching(talking, folder) as watched:
            talking[0].tell(line)
            cpu_pct, rss_mb = watched.own_cpu_pct(asked.seconds), watched.rss_mb()
            made = talking[0].heard()[1]
    return {
        "own_cpu_pct": cpu_pct,
        "rss_mb": rss_mb,
        "attach_s": watched.attach_s,
        **counted(watched.report, made),
        **account(watched.report),
    }


def cases(asked: argparse.Namespace) -> Dict[str, Callable[[], Dict[str, Any]]]:
    """Name → what measures it."""
    found: Dict[str, Callable[[], Dict[str, Any]]] = {}
    for count in CONNECTIONS:
        found[f"idle-{count}"] = lambda count=count: with_connections(count, False, asked)
        found[f"busy-{count}"] = lambda count=count: with_connections(count, True, asked)
    found["hot"] = lambda: hot(asked)
    found["listeners"] = lambda: listeners(asked)
    found["threads"] = lambda: threads(asked)
    found["processes"] = lambda: processes(asked)
    return found


def main() -> None:
    """Measure and print."""
    go_on_in_own_python()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="CASE,…", help="these cases (all)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each case (8)")
    parser.add_argument("--rounds", type=int, default=3, help="of `hot` (3)")
    parser.add_argument("--hot-among", type=int, default=100_000, help="connections of `hot`")
    parser.add_argument("--per-process", type=int, default=room_in_a_process())
    asked = parser.parse_args()
    known = cases(asked)
    names = asked.only.split(",") if asked.only else list(known)
    document: Dict[str, Any] = {"machine": describe()}
    for name in names:
        print(name, file=sys.stderr)
        try:
            document[name] = known[name]()
        except KeyboardInterrupt:  # no time is left; what was measured is not lost
            break
        except Exception as error:  # nor by one case that cannot run here
            document[name] = {"reason": f"{type(error).__name__}: {error}"}
    json.dump(document, sys.stdout, indent=1)
    print()


def room_in_a_process() -> int:
    """Pairs of descriptors."""
    return (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 64) // 2


if __name__ == "__main__":
    main()
