#!/usr/bin/env python3
"""udsprobe's own CPU time, of this checkout and of another one at the same time.

    sudo scripts/bench/own_cpu.py --against DIR [--case idle-1000] [--seconds 30] [--turns 2]

What a second takes differs several times over on a shared host, from one minute to the next: so
both look at the same moment, and begin in turns. Cases: `idle-N` and `busy-N`, N connections of a
load of its own for each, as scripts/bench/scale.py has them; `record` (--ring 2h) and `export`, in
detail auto, of one demo service that answers 500 requests a second. The first 3 s are left out.
Prints one JSON document: ms of CPU time in each second, their mean and median, resident MB, and
bytes of the recording.
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
from statistics import mean, median
from typing import Any, Dict, Iterator, List, Sequence

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cost.machine import describe  # noqa: E402
from scripts.bench.cost.own_python import go_on_in_own_python  # noqa: E402
from scripts.bench.cost.processes import cpu_s_of, end, wait_until  # noqa: E402
from scripts.bench.scale import connection_loads, loads, room_in_a_process  # noqa: E402

SETTLED_S = 3
RATE = 500
ALWAYS_ON: Dict[str, List[str]] = {
    "record": ["record", "--ring", "2h", "-o", "{folder}/recording"],
    "export": ["export", "--bind", "127.0.0.1:0"],
}
ATTACHED = ["attach", "--json", "--output", "{folder}/report"]
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


class Watching:
    """One checkout's udsprobe, whose probes are live.

    Args:
        checkout: whose package runs.
        words: its command, without the processes.
        folder: for its files.
    """

    def __init__(
        self, checkout: Path, words: Sequence[str], pids: Sequence[int], folder: Path
    ) -> None:
        self.recording, ready = folder / "recording", folder / "ready"
        argv = [sys.executable, "-m", "udsprobe", *(w.format(folder=folder) for w in words)]
        argv += ["--ready-file", str(ready)]
        for pid in pids:
            argv += ["--pid", str(pid)]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        self._process = subprocess.Popen(
            argv, cwd=checkout, env=environment, stderr=subprocess.DEVNULL
        )
        wait_until(ready.exists, "udsprobe", self._process)
        self.ms: List[float] = []
        self._before_s = self._cpu_s()

    def _cpu_s(self) -> float:
        return cpu_s_of(self._process.pid)

    def second_is_over(self) -> None:
        """Note what it took."""
        now_s = self._cpu_s()
        self.ms.append(1000 * (now_s - self._before_s))
        self._before_s = now_s

    def ended(self) -> Dict[str, Any]:
        """What it took; a recording is one file then."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        end(self._process)
        kept = self.ms[SETTLED_S:]
        told: Dict[str, Any] = {"mean_ms": mean(kept), "median_ms": median(kept), "ms": self.ms}
        told["rss_mb"] = pages * resource.getpagesize() / 1e6
        if self.recording.exists():
            told["recording_bytes"] = self.recording.stat().st_size
        return told


@contextmanager
def demo(seconds: float) -> Iterator[int]:
    """The process id of a service that answers 500 requests a second."""
    words = [sys.executable, "-m", "udsprobe.demo"]
    pipe = subprocess.PIPE
    serving = subprocess.Popen([*words, "serve"], cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
    assert serving.stdout is not None
    service = json.loads(serving.stdout.readline())
    words += ["load", "--socket", service["socket"], "--seconds", f"{seconds + 60:.0f}"]
    words += ["--rate", str(RATE)]
    loading = subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=subprocess.DEVNULL)
    try:
        yield int(service["pid"])
    finally:
        for process in (loading, serving):
            process.terminate()
            process.wait()


def watched(watching: Sequence[Watching], seconds: int) -> None:
    """Second by second, all of them."""
    began = time.monotonic()
    for second in range(1, seconds + 1):
        time.sleep(max(0.0, began + second - time.monotonic()))
        for one in watching:
            one.second_is_over()


def always_on(case: str, checkouts: Sequence[Path], seconds: int, folder: Path) -> List[Any]:
    """All of them on one service."""
    with demo(seconds) as pid:
        folders = [Path(tempfile.mkdtemp(dir=folder)) for _ in checkouts]
        watching = [
            Watching(one, ALWAYS_ON[case], [pid], own) for one, own in zip(checkouts, folders)
        ]
        watched(watching, seconds)
        return [each.ended() for each in watching]


def attached(case: str, checkouts: Sequence[Path], seconds: int, folder: Path) -> List[Any]:
    """Each on connections of its own."""
    kind, count = case.split("-")
    with ExitStack() as stack:
        watching = []
        for one in checkouts:
            own = Path(tempfile.mkdtemp(dir=folder))
            words = connection_loads(int(count), room_in_a_process(), own)
            talking = stack.enter_context(loads(words, own))
            watching.append(Watching(one, ATTACHED, [t.process.pid for t in talking], own))
            for load, arguments in zip(talking, words):
                load.tell(f"{1000 * seconds if kind == 'busy' else 0} {arguments[1]}")
        watched(watching, seconds)
        return [each.ended() for each in watching]


def main() -> None:
    """Measure and print."""
    go_on_in_own_python()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path, required=True, metavar="DIR")
    parser.add_argument("--case", default="idle-1000")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--turns", type=int, default=2)
    asked = parser.parse_args()
    checkouts = {"here": ROOT, "there": asked.against.resolve()}
    measure = always_on if asked.case in ALWAYS_ON else attached
    document: Dict[str, Any] = {"machine": describe(), "case": asked.case, "turns": []}
    for turn in range(asked.turns):
        names = list(checkouts) if turn % 2 == 0 else list(checkouts)[::-1]
        with tempfile.TemporaryDirectory(prefix="udsprobe-bench-") as name:
            paths = [checkouts[each] for each in names]
            found = measure(asked.case, paths, asked.seconds, Path(name))
        document["turns"].append(dict(zip(names, found)))
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
